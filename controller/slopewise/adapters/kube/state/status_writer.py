"""Writes statuses in the background: coalesced, rate-limited, transitions before progress.

A submitted document is rendered when its turn comes, so it is written with its newest content, and each document has at
most one write waiting. `StatusSender.send` is one write, also used directly for what must be stored before an action
(originals).
"""

from __future__ import annotations

import heapq
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from operator import attrgetter

import msgspec
import structlog

from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.fencing import NotLeadingError
from slopewise.adapters.kube.client.protocol import MERGE_PATCH, PARAMS, Api, Json
from slopewise.adapters.kube.client.retry import get_or_none, update
from slopewise.adapters.pauses import STATUS_WRITE
from slopewise.errors import SlopewiseError

WRITES_PER_SECOND = 20.0
"""5,000 statuses take four minutes, which is little load for an API server of 500 writes a second."""

PROGRESS_SECONDS = 60.0
"""Progress alone is written at least as often, where the rate of writes allows it."""

LEAST_PROGRESS_SECONDS = 5.0
"""Progress alone is not written more often, however few documents wait: no pass comes sooner."""

PROGRESS_WRITES_RATIO = 1 / 3
"""Of all writes, those that progress may take; of 370 documents that wait, the last one waits for a minute."""

MAX_RETRIES = 8
"""Then it waits for the next change: after four minutes of refusals one more retry does not help."""


class StatusDocument(ABC):
    """One object whose status is written. Only fields that differ from the last write are sent."""

    def __init__(self, key: str, path: str, uid: str | None) -> None:
        self.key = key
        self.path = path
        self.uid = uid
        """Of the object; None: it is to be created first, or its uid is unknown."""
        self.version = ""
        """The object's resource version as last seen."""
        self.writing = threading.Lock()
        self.sent: dict[str, int] = {}
        """A fingerprint of each field of the stored status."""
        self.written_at = float("-inf")
        self.retry_at = float("-inf")
        self.failures = 0
        self.retired = False
        """It is no longer managed: the object is deleted instead of written."""
        self.lost = False
        """The object was deleted, maybe with its workload: it is created again once a pass has found a pod of that."""

    @abstractmethod
    def render(self) -> Json:
        """The whole status as it is to be."""

    def create(self, api: Api) -> bool:
        """Create or find the object, and set `uid`; False: this document's object is not created here."""
        return False

    def stored(self, uid: str, version: str, status: Json) -> None:
        """Record the API server's version."""
        self.uid, self.version = uid, version
        self.sent = fingerprints(status)

    def lose(self) -> None:
        """The object is deleted or replaced, and nothing is stored."""
        self.uid, self.version, self.sent = None, "", {}


def fingerprints(status: Json) -> dict[str, int]:
    """A number for each field: the same for the same content, in a fraction of its memory."""
    return {key: hash(msgspec.json.encode(value, order="deterministic")) for key, value in status.items()}


class StatusSender:
    """Writes one document at a time, and creates a missing object."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def send(self, document: StatusDocument) -> bool:
        """Write the changes; False when there are none. ApiError when it fails, NotLeadingError without the lease."""
        with document.writing:
            if document.retired:
                return self._delete(document)
            tries = 1 if document.uid is None else 2
            return update(
                self._write, lambda: self._read_again(document), document, tries=tries, again=attrgetter("is_outdated")
            )

    def _write(self, document: StatusDocument) -> bool:
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
        answer = self._api.patch(f"{document.path}/status", body, MERGE_PATCH, PARAMS)
        document.version = answer["metadata"]["resourceVersion"]
        document.sent = prints
        return True

    def _read_again(self, document: StatusDocument) -> StatusDocument:
        """After a conflict: another client wrote to the object (labels, a spec), or it is deleted."""
        found = get_or_none(self._api, document.path)
        if found is not None and (meta := found["metadata"])["uid"] == document.uid:
            document.stored(meta["uid"], meta["resourceVersion"], found.get("status") or {})
        else:
            document.lose()
        return document

    def _delete(self, document: StatusDocument) -> bool:
        if document.uid is None:
            return False
        try:
            self._api.delete(document.path, {"preconditions": {"uid": document.uid}})
        except ApiError as error:
            if not error.is_outdated:
                raise
        return True


@dataclass(slots=True)
class _Waiting:
    document: StatusDocument
    urgent: bool
    turn: int


class StatusWriter:
    """One thread that sends submitted documents. Bounded by their number: each waits at most once."""

    def __init__(
        self,
        send: Callable[[StatusDocument], bool],
        *,
        writes_per_second: float = WRITES_PER_SECOND,
        progress_seconds: float = PROGRESS_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
        on_write: Callable[[str], None] = lambda outcome: None,
    ) -> None:
        """`on_write` gets `written`, `unchanged` or `failed`, for the metrics."""
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
        """Write all waiting documents at once, for at most `flush_seconds`, then end the thread."""
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
        """`document` has changed; a transition is written as soon as possible, progress in its time."""
        # Without the lock, which would be taken three times a pass for each document: should its turn come just now, it
        # is rendered after this check, and so with the change.
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
        due = document.retry_at if urgent else max(document.retry_at, document.written_at + self._progress_pause())
        turn = next(self._turns)
        self._waiting[document.key] = _Waiting(document, urgent, turn)
        heapq.heappush(self._urgent if urgent else self._later, (due, turn, document.key))

    def _progress_pause(self) -> float:
        """Seconds between two writes of progress alone: the more documents wait, the longer."""
        queued = len(self._waiting) * self._seconds_per_write / PROGRESS_WRITES_RATIO
        return min(self._progress_seconds, LEAST_PROGRESS_SECONDS + queued)

    def forget(self, document: StatusDocument) -> None:
        """Drop its waiting write."""
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
        """The first due document, urgent ones first; else the seconds until one is due."""
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
        except NotLeadingError:
            return  # another one leads, and writes
        except SlopewiseError as error:
            self._failed(waiting, str(error))
        except Exception as error:
            # An error in one status must not delay the others.
            self._log.error("status write failed", document=document.path, exc_info=error)
            self._on_write("failed")
        else:
            document.failures = 0
            document.retry_at = float("-inf")
            if written:
                document.written_at = self._monotonic()
                self.failure = None
            self._on_write("written" if written else "unchanged")

    def _failed(self, waiting: _Waiting, reason: str) -> None:
        document = waiting.document
        document.failures += 1
        self._on_write("failed")
        if self.failure != reason:
            self._log.warning("status write failed", document=document.path, reason=reason)
        self.failure = reason
        if document.failures > MAX_RETRIES:
            return
        document.retry_at = self._monotonic() + STATUS_WRITE.after(document.failures) * random.uniform(0.5, 1.0)  # noqa: S311 - spreads retries
        with self._changed:
            self._submit(document, urgent=waiting.urgent)
