"""Keeps a kind of object up to date: one list, then a watch, in a thread of its own.

A pass reads the store (`items`, `get`) and asks the API server for nothing. What makes this longer than a loop over a
watch is what watches do wrong: they end, they expire (410), they stay open and silent on a connection that is half
dead, and they miss things. So a watch is short, its silence is bounded, and every ten minutes the list is read again.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from controller.adapters.kube.api_error import ApiError
from controller.adapters.kube.collection import Collection, Kept, Key, version_of
from controller.adapters.kube.contracts import Api, Events, Json

T = TypeVar("T")

_PAGE_OBJECTS = 500
"""5,000 pods are 50 MB of JSON, and 300 MB once parsed: read by pages, it is a tenth of that.

Pages are read without a resource version, so they are consistent and never older than what was seen before; with
`resourceVersion=0` the server would answer from its cache, which may lag behind, and ignore the limit.
"""

_FAILURES_BEFORE_RELIST = 3
"""A watch that cannot be taken up again from where it was is given up, whatever the reason."""

_SHORT_WATCH_SECONDS = 1.0
"""A watch that ends sooner than this waits before the next: some proxies end each one at once."""

_STOP_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Timing:
    """When a Reflector does what, in seconds."""

    watch_seconds: float = 30.0
    """How long a watch is asked to last. The server's end of it is a sign of life: without bookmarks, which come once a
    minute, 30 s is the longest that an idle store does not know whether it is up to date."""
    grace_seconds: float = 10.0
    """A watch that is silent for this much longer than it was to last hangs on a dead connection."""
    relist_seconds: float = 600.0
    first_wait_seconds: float = 0.5
    longest_wait_seconds: float = 30.0


def pages(api: Api, path: str, params: Mapping[str, str], *, metadata_only: bool = False) -> Iterator[Json]:
    """The list of a collection, page by page; ApiError as soon as one cannot be had."""
    params = {**params, "limit": str(_PAGE_OBJECTS)}
    while True:
        page = api.get(path, params, metadata_only=metadata_only)
        yield page
        if not (token := page["metadata"].get("continue")):
            return
        params["continue"] = token


class Reflector(Generic[T]):
    """A store of parsed objects. Shape: `contracts.Store`. `start` it, `stop` it, once."""

    def __init__(
        self,
        api: Api,
        path: str,
        parse: Callable[[Json], T],
        *,
        params: Mapping[str, str] | None = None,
        metadata_only: bool = False,
        on_change: Callable[[T | None, T | None], None] = lambda old, new: None,
        timing: Timing | None = None,
    ) -> None:
        """`path` is a collection's, e.g. `/api/v1/pods`; `params` may hold a `labelSelector`.

        `parse` may raise ValueError, LookupError, TypeError or AttributeError: then that object is passed over, and
        told once. `on_change(old, new)` is called for real changes of the parsed object, mostly from the watching
        thread; None is what is not there.
        """
        self._api = api
        self._path = path
        self._params = dict(params or {})
        self._metadata_only = metadata_only
        self._timing = timing or Timing()
        self._collection = Collection(path.rpartition("/")[2], parse, on_change)
        self._backoff = Backoff(self._timing.first_wait_seconds, self._timing.longest_wait_seconds)
        self._version: str | None = None
        self._relist_at = 0.0
        self._failures_in_a_row = 0
        self._events: Events | None = None
        self._heard_at: float | None = None
        self._synced = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch {path}", daemon=True)
        self._log = structlog.get_logger("slopewise")
        self.failure: str | None = None
        """Why the API server cannot be heard just now, in words; None while it can."""
        self.restarts = 0
        """How often watching had to begin again because something failed."""
        self.relists = 0
        """How many lists were read."""

    def start(self) -> None:
        """Begin to list and watch; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, also while it waits in a read. What is known stays readable."""
        self._stopping.set()
        if (events := self._events) is not None:
            events.close()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)  # one that waits for a list ends with that request's timeout

    @property
    def synced(self) -> bool:
        """True once the first list is in."""
        return self._synced.is_set()

    def silent_seconds(self) -> float:
        """Seconds since the API server was last heard of; infinite before the first list."""
        heard_at = self._heard_at
        return float("inf") if heard_at is None else time.monotonic() - heard_at

    @property
    def unreadable(self) -> int:
        """How many objects are passed over because they could not be parsed."""
        return self._collection.unreadable

    def items(self) -> tuple[T, ...]:
        """All objects now, in the order of namespace and name."""
        return self._collection.items()

    def get(self, namespace: str, name: str) -> T | None:
        """One object now; for kinds without namespaces, `namespace` is empty."""
        return self._collection.get(namespace, name)

    def observe(self, obj: Json) -> None:
        """Take in an object that came another way, if it is newer: the answer to our own write."""
        self._collection.observe(obj)

    def read_now(self) -> None:
        """Take in all objects as they are at this moment, beside the watch, which may be behind; from any thread.

        What is there no more is found out by the watch. ApiError when they cannot be read.
        """
        for page in self._pages():
            for each in page.get("items") or ():
                self.observe(each)

    def _run(self) -> None:
        while not self._stopping.is_set():
            began_at = time.monotonic()
            try:
                if self._version is None or began_at >= self._relist_at:
                    self._list()
                began_at = time.monotonic()
                self._watch()
            except ApiError as error:
                self._failed(str(error), lost_place=error.is_expired)
            except Exception as error:  # a listener's mistake, or an answer that is no list: never the end of watching
                self._log.exception("watching failed", path=self._path)
                self._failed(f"{self._path}: {type(error).__name__}: {error}", lost_place=True)
            else:
                if time.monotonic() - began_at < _SHORT_WATCH_SECONDS:
                    self._stopping.wait(self._backoff.next_seconds())

    def _list(self) -> None:
        self._collection.begin_listing()
        listed: dict[Key, Kept[T]] = {}
        for page in self._pages():
            self._heard()
            listed |= self._collection.read_all(page.get("items") or ())
            if self._stopping.is_set():
                return
        self._version = page["metadata"]["resourceVersion"]
        self._collection.replace(listed, version_of(page))
        self._relist_at = time.monotonic() + self._timing.relist_seconds * random.uniform(0.9, 1.1)  # noqa: S311
        self.relists += 1
        self.failure = None
        self._synced.set()

    def _pages(self) -> Iterator[Json]:
        return pages(self._api, self._path, self._params, metadata_only=self._metadata_only)

    def _watch(self) -> None:
        """Follow one watch to its end. Raises ApiError when that is not the end that was asked for."""
        timing = self._timing
        params = {
            **self._params,
            "resourceVersion": self._version or "",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": f"{timing.watch_seconds:.0f}",
        }
        silence_seconds = timing.watch_seconds + timing.grace_seconds
        self._events = self._api.watch(
            self._path, params, read_timeout_seconds=silence_seconds, metadata_only=self._metadata_only
        )
        if self._stopping.is_set():  # `stop` may have come before there was anything to close
            self._events.close()
        self._heard()
        try:
            for event in self._events:
                self._heard()
                self._take(event["type"], event["object"])
        finally:
            self._events.close()
        self._heard()
        self._progressed()

    def _take(self, kind: str, obj: Json) -> None:
        self._collection.apply(kind, obj)
        self._version = obj["metadata"].get("resourceVersion") or self._version
        self._progressed()

    def _heard(self) -> None:
        self._heard_at = time.monotonic()

    def _progressed(self) -> None:
        self._failures_in_a_row = 0
        self._backoff.reset()
        self.failure = None

    def _failed(self, reason: str, *, lost_place: bool) -> None:
        if self._stopping.is_set():
            return
        self.failure = reason
        self.restarts += 1
        self._failures_in_a_row += 1
        if lost_place or self._failures_in_a_row >= _FAILURES_BEFORE_RELIST:
            self._version = None
        self._stopping.wait(self._backoff.next_seconds())


class Backoff:
    """Waits that double up to a bound, and differ, so that a server that comes back is not stormed by all at once."""

    def __init__(self, first_seconds: float, longest_seconds: float) -> None:
        self._first, self._longest = first_seconds, longest_seconds
        self._next = first_seconds

    def next_seconds(self) -> float:
        wait = self._next * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, keeps no secret
        self._next = min(2 * self._next, self._longest)
        return wait

    def reset(self) -> None:
        self._next = self._first
