"""Writes statuses behind the controller's back: coalesced, rate-limited, transitions before progress.

Before it: `memory.py` and `reporting.py` say that a document changed; what is written is made when its turn comes. So
however often a status changes, it is written with its newest content, and at most one write a document is waiting.
`StatusSender.send` is one write, also used directly for what must be stored before something happens (originals).
"""

from __future__ import annotations

import heapq
import json
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import structlog

from controller.adapters.kube.api_error import ApiError
from controller.adapters.kube.contracts import MERGE_PATCH, Api, Json, MayWrite
from controller.adapters.kube.records import FIELD_MANAGER
from controller.errors import ActuationError, SlopewiseError

WRITES_PER_SECOND = 20.0
"""5,000 statuses take four minutes, and an API server that does 500 writes a second is left alone."""

PROGRESS_SECONDS = 60.0
"""Progress alone is not written more often."""

RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 60.0
MOST_RETRIES = 8
"""Then it waits for the next change: four minutes of refusals will not end by asking once more."""

PARAMS = {"fieldManager": FIELD_MANAGER}


class StatusDocument(ABC):
    """One object whose status we write. Only fields that differ from what was sent last are sent."""

    def __init__(self, key: str, path: str, uid: str | None) -> None:
        self.key = key
        self.path = path
        self.uid = uid
        """Of the object; None: it is to be made first, or its uid is not known."""
        self.version = ""
        """The object's resource version as last seen."""
        self.writing = threading.Lock()
        self.sent: dict[str, int] = {}
        """A fingerprint of each field of the status as it is stored."""
        self.written_at = float("-inf")
        self.retry_at = float("-inf")
        self.failures = 0
        self.retired = False
        """It is managed no more: the object is deleted instead of written."""

    @abstractmethod
    def render(self) -> Json:
        """The whole status as it is to be."""

    def create(self, api: Api) -> bool:
        """Make the object, or find the one that is there, and set `uid`; False: it is not ours to make."""
        return False

    def stored(self, uid: str, version: str, status: Json) -> None:
        """This is what the API server has."""
        self.uid, self.version = uid, version
        self.sent = fingerprints(status)

    def forget_object(self) -> None:
        """The object is gone, or there is another one in its place."""
        self.uid, self.version, self.sent = None, "", {}


def fingerprints(status: Json) -> dict[str, int]:
    """A number for each field: the same for the same content, in a fraction of its memory."""
    return {key: hash(json.dumps(value, sort_keys=True)) for key, value in status.items()}


def check_leading(may_write: MayWrite) -> None:
    """Before each request that writes; ActuationError when we lead no more, having been suspended meanwhile, say."""
    if not may_write():
        raise ActuationError("this controller is not the leader any more, and writes nothing")


class StatusSender:
    """One write at a time of one document, to an object that is made when it is missing."""

    def __init__(self, api: Api, may_write: MayWrite) -> None:
        self._api = api
        self._may_write = may_write

    def send(self, document: StatusDocument) -> bool:
        """Write what changed; False when nothing did. ApiError when it fails, ActuationError when it may not be."""
        with document.writing:
            check_leading(self._may_write)
            if document.retired:
                return self._delete(document)
            if document.uid is not None:
                try:
                    return self._patch(document)
                except ApiError as error:
                    if not (error.is_gone or error.is_conflict):
                        raise
                self._read_again(document)
            check_leading(self._may_write)
            return (document.uid is not None or document.create(self._api)) and self._patch(document)

    def _patch(self, document: StatusDocument) -> bool:
        status = document.render()
        prints = fingerprints(status)
        changed = {key: value for key, value in status.items() if document.sent.get(key) != prints[key]}
        changed |= {key: None for key in document.sent if key not in status}
        if not changed:
            return False
        # A workload of the same name may have come in its place, and for the status of custom resources the API server
        # does not mind a wrong metadata.uid (1.36); a wrong resource version it does.
        body = {"metadata": {"resourceVersion": document.version}, "status": changed}
        check_leading(self._may_write)
        answer = self._api.patch(f"{document.path}/status", body, MERGE_PATCH, PARAMS)
        document.version = answer["metadata"]["resourceVersion"]
        document.sent = prints
        return True

    def _read_again(self, document: StatusDocument) -> None:
        """After a conflict: somebody wrote to the object (labels, a spec), or it is gone."""
        try:
            found = self._api.get(document.path)
        except ApiError as error:
            if not error.is_gone:
                raise
            document.forget_object()
            return
        meta = found["metadata"]
        if meta["uid"] == document.uid:
            document.stored(meta["uid"], meta["resourceVersion"], found.get("status") or {})
        else:
            document.forget_object()

    def _delete(self, document: StatusDocument) -> bool:
        if document.uid is None:
            return False
        try:
            self._api.delete(document.path, {"preconditions": {"uid": document.uid}})
        except ApiError as error:
            if not (error.is_gone or error.is_conflict):
                raise
        return True


@dataclass(slots=True)
class _Waiting:
    document: StatusDocument
    urgent: bool
    turn: int


class StatusWriter:
    """One thread that sends what was submitted. Bounded by the number of documents: each waits at most once."""

    def __init__(
        self,
        send: Callable[[StatusDocument], bool],
        *,
        writes_per_second: float = WRITES_PER_SECOND,
        progress_seconds: float = PROGRESS_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
        on_write: Callable[[str], None] = lambda outcome: None,
    ) -> None:
        """`on_write` is told `written`, `unchanged` or `failed`, for the metrics."""
        self._send = send
        self._seconds_per_write = 1.0 / writes_per_second
        self._progress_seconds = progress_seconds
        self._monotonic = monotonic
        self._on_write = on_write
        self._changed = threading.Condition()
        self._waiting: dict[str, _Waiting] = {}
        self._urgent: list[tuple[float, int, str]] = []
        self._later: list[tuple[float, int, str]] = []
        self._turns = count()
        self._next_write_at = float("-inf")
        self._stop_at: float | None = None
        self._thread = threading.Thread(target=self._run, name="status-writer", daemon=True)
        self._log = structlog.get_logger("slopewise")
        self.failure: str | None = None
        """Why the last write failed; None: it did not."""

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self, flush_seconds: float = 5.0) -> None:
        """Write what waits, without waiting for its time, for at most so long, and end."""
        with self._changed:
            self._stop_at = self._monotonic() + flush_seconds
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(flush_seconds + 1.0)

    @property
    def waiting(self) -> int:
        """How many documents wait for their turn."""
        return len(self._waiting)

    def submit(self, document: StatusDocument, *, transition: bool) -> None:
        """`document` has changed; a transition is written as soon as may be, progress in its time."""
        # Without the lock, which would be taken three times a pass for each document: should its turn come just now, it
        # is rendered after this look, and so with what has changed.
        if self._waits_already(document, urgent=transition):
            return
        with self._changed:
            self._submit(document, urgent=transition)
            self._changed.notify()

    def _waits_already(self, document: StatusDocument, *, urgent: bool) -> bool:
        there = self._waiting.get(document.key)
        return there is not None and (there.urgent or not urgent) and there.document is document

    def _submit(self, document: StatusDocument, *, urgent: bool) -> None:
        if self._waits_already(document, urgent=urgent):
            return
        due = document.retry_at if urgent else max(document.retry_at, document.written_at + self._progress_seconds)
        turn = next(self._turns)
        self._waiting[document.key] = _Waiting(document, urgent, turn)
        heapq.heappush(self._urgent if urgent else self._later, (due, turn, document.key))

    def forget(self, document: StatusDocument) -> None:
        """Do not write it any more."""
        with self._changed:
            self._waiting.pop(document.key, None)

    def _run(self) -> None:
        while (waiting := self._next()) is not None:
            self._write(waiting)

    def _next(self) -> _Waiting | None:
        """The next document whose turn it is; None: stopped."""
        with self._changed:
            while True:
                now = self._monotonic()
                if self._stop_at is not None and (now >= self._stop_at or not self._waiting):
                    return None
                wait = 0.0 if self._stop_at is not None else self._next_write_at - now
                if wait <= 0:
                    found, wait = self._pop(now)
                    if found is not None:
                        self._next_write_at = max(now - 1.0, self._next_write_at) + self._seconds_per_write
                        return found
                self._changed.wait(min(wait, 3600.0))

    def _pop(self, now: float) -> tuple[_Waiting | None, float]:
        """The first that is due, and else how long until one is: urgent ones first."""
        wait = float("inf")
        for queue in (self._urgent, self._later):
            while queue and self._is_stale(queue[0]):
                heapq.heappop(queue)
            if queue and (queue[0][0] <= now or self._stop_at is not None):
                return self._waiting.pop(heapq.heappop(queue)[2]), 0.0
            if queue:
                wait = min(wait, queue[0][0] - now)
        return None, wait

    def _is_stale(self, entry: tuple[float, int, str]) -> bool:
        waiting = self._waiting.get(entry[2])
        return waiting is None or waiting.turn != entry[1]

    def _write(self, waiting: _Waiting) -> None:
        document = waiting.document
        try:
            written = self._send(document)
        except ActuationError:
            return  # another one leads, and writes
        except SlopewiseError as error:
            self._failed(waiting, str(error))
        except Exception as error:
            # A mistake of ours in one status must not keep the others from being written.
            self._log.error("status not written", document=document.path, exc_info=error)
            self._on_write("failed")
        else:
            document.failures = 0
            document.retry_at = float("-inf")
            if written:
                document.written_at = self._monotonic()
                self.failure = None
            self._on_write("written" if written else "unchanged")

    def _failed(self, waiting: _Waiting, why: str) -> None:
        document = waiting.document
        document.failures += 1
        self._on_write("failed")
        if self.failure != why:
            self._log.warning("status not written", document=document.path, reason=why)
        self.failure = why
        if document.failures > MOST_RETRIES:
            return
        pause = min(LONGEST_RETRY_SECONDS, RETRY_SECONDS * 2.0 ** (document.failures - 1))
        document.retry_at = self._monotonic() + pause * random.uniform(0.5, 1.0)  # noqa: S311 - spreads retries
        with self._changed:
            self._submit(document, urgent=waiting.urgent)
