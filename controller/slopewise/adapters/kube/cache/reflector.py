"""Keeps the objects of one kind up to date by list and watch, in a thread of its own.

A pass reads the store (`items`, `get`) and sends no request. Watches end, expire (410), stay open and silent on
half-dead connections, and miss events. So a watch is short, its silence is bounded, and every ten minutes the list is
read again.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from slopewise.adapters.kube.cache.store import Collection, Kept, Key, version_of
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.protocol import Api, Events, Json
from slopewise.adapters.pauses import Doubling

T = TypeVar("T")

_NO_PARAMS: Mapping[str, str] = {}
_PAGE_OBJECTS = 500
"""5,000 pods are 50 MB of JSON, and 300 MB once parsed: read by pages, it is a tenth of that.

Pages are read without a resource version, so they are consistent and never older than what was seen before; with
`resourceVersion=0` the server would answer from its cache, which may lag behind, and ignore the limit.
"""

_FAILURES_BEFORE_RELIST = 3
"""After so many failures in a row a watch is not resumed, and the list is read again."""

_SHORT_WATCH_SECONDS = 1.0
"""A watch that ends sooner than this waits before the next: some proxies end each one at once."""

_STOP_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Timing:
    """Periods and limits of a Reflector, in seconds."""

    watch_seconds: float = 30.0
    """How long a watch lasts. The server's end of it proves that the connection works: without bookmarks, which come
    once a minute, an idle store may be out of date for at most 30 s."""
    grace_seconds: float = 10.0
    """A watch that is silent for this much longer than its duration hangs on a dead connection."""
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


def objects(
    api: Api, path: str, params: Mapping[str, str] = _NO_PARAMS, *, metadata_only: bool = False
) -> Iterator[Json]:
    """The objects of a collection; ApiError as soon as a page of them cannot be had."""
    for page in pages(api, path, params, metadata_only=metadata_only):
        yield from page.get("items") or ()


class Reflector(Collection[T]):
    """A store of parsed objects, kept up to date. Shape: `protocol.Store`. `start` it, `stop` it, once."""

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

        An object for which `parse` raises ValueError, LookupError, TypeError or AttributeError is skipped, and logged
        once. `on_change(old, new)` runs for real changes of the parsed object, mostly in the watching thread; None:
        absent.
        """
        self._api = api
        self._path = path
        self._params = dict(params or {})
        self._metadata_only = metadata_only
        self._timing = timing or Timing()
        super().__init__(path.rpartition("/")[2], parse, on_change)
        self._pause = Doubling(self._timing.first_wait_seconds, self._timing.longest_wait_seconds)
        self._pauses = 0
        self._version: str | None = None
        self._relist_at = 0.0
        self._failures_in_a_row = 0
        self._events: Events | None = None
        self._answered_at: float | None = None
        self._synced = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch {path}", daemon=True)
        self.failure: ApiError | str | None = None
        """Why the API server does not answer; None while it does."""
        self.restarts = 0
        """How often a watch was restarted after a failure."""
        self.relists = 0
        """How many lists were read."""

    def start(self) -> None:
        """Start to list and watch; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, also while it waits in a read. The store stays readable."""
        self._stopping.set()
        if (events := self._events) is not None:
            events.close()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)  # one that waits for a list ends with that request's timeout

    @property
    def synced(self) -> bool:
        """True once the first list is read."""
        return self._synced.is_set()

    def silent_seconds(self) -> float:
        """Seconds since the API server's last answer; infinite before the first list."""
        answered_at = self._answered_at
        return float("inf") if answered_at is None else time.monotonic() - answered_at

    def read_now(self) -> None:
        """Store all objects as they are now, beside the watch, which may be behind; from any thread.

        The watch finds deletions. ApiError when the objects cannot be read.
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
                self._failed(error, lost_place=error.is_expired)
            except Exception as error:  # a listener's mistake, or an answer that is no list: never the end of watching
                self._log.exception("watch failed", path=self._path)
                self._failed(f"{self._path}: {type(error).__name__}: {error}", lost_place=True)
            else:
                if time.monotonic() - began_at < _SHORT_WATCH_SECONDS:
                    self._wait()

    def _list(self) -> None:
        self.begin_listing()
        listed: dict[Key, Kept[T]] = {}
        for page in self._pages():
            self._note_answer()
            listed |= self.read_all(page.get("items") or ())
            if self._stopping.is_set():
                return
        self._version = page["metadata"]["resourceVersion"]
        self.replace(listed, version_of(page))
        self._relist_at = time.monotonic() + self._timing.relist_seconds * random.uniform(0.9, 1.1)  # noqa: S311
        self.relists += 1
        self.failure = None
        self._synced.set()

    def _pages(self) -> Iterator[Json]:
        return pages(self._api, self._path, self._params, metadata_only=self._metadata_only)

    def _watch(self) -> None:
        """Follow one watch to its end; ApiError when it does not end as requested."""
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
        self._note_answer()
        try:
            for event in self._events:
                self._note_answer()
                self._take(event["type"], event["object"])
        finally:
            self._events.close()
        self._note_answer()
        self._progressed()

    def _take(self, kind: str, obj: Json) -> None:
        self.apply(kind, obj)
        self._version = obj["metadata"].get("resourceVersion") or self._version
        self._progressed()

    def _note_answer(self) -> None:
        self._answered_at = time.monotonic()

    def _progressed(self) -> None:
        self._failures_in_a_row = 0
        self._pauses = 0
        self.failure = None

    def _failed(self, reason: ApiError | str, *, lost_place: bool) -> None:
        if self._stopping.is_set():
            return
        self.failure = reason
        self.restarts += 1
        self._failures_in_a_row += 1
        if lost_place or self._failures_in_a_row >= _FAILURES_BEFORE_RELIST:
            self._version = None
        self._wait()

    def _wait(self) -> None:
        """Twice as long each time in a row, and half random: not all clients may return to a server at once."""
        self._pauses += 1
        self._stopping.wait(self._pause.after(self._pauses) * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load
