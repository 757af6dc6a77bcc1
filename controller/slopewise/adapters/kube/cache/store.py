"""The newest parsed version of each object of one watched kind, with notification of changes.

`cache/reflector.py` adds lists and watch events, and a writer adds the response to its write (`observe`), so that the
next pass does not read the state before it. Nothing here waits or sends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

import msgspec
import structlog

from slopewise.adapters.kube.client.protocol import Json

T = TypeVar("T")
Key = tuple[str, str]
"""Namespace (empty for kinds without) and name."""

UNREADABLE = (ValueError, LookupError, TypeError, AttributeError)
"""What `parse` may raise for a malformed object."""


class Kept(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """The kept version of one object. `record` is None when it could not be read."""

    version: int
    record: T | None


class Collection(Generic[T]):
    """Safe from any thread. Listeners get changes one at a time, in order, with the old and the new record."""

    def __init__(
        self,
        what: str,
        parse: Callable[[Json], T],
        on_change: Callable[[T | None, T | None], None] = lambda old, new: None,
    ) -> None:
        """`what` names the kind in messages; `parse` raises one of `UNREADABLE` for what it cannot use."""
        self._what = what
        self._parse = parse
        self._on_change = on_change
        self._kept: dict[Key, Kept[T]] = {}
        self._in_order: tuple[T, ...] | None = ()
        self._lock = threading.Lock()
        # Held while a change is made and its listeners run, so that they run in order; a listener may read.
        self._changing = threading.RLock()
        self._seen_version = 0
        self._observed: set[Key] = set()
        self._logged_unreadable: set[Key] = set()
        self._log = structlog.get_logger("slopewise")

    def items(self) -> tuple[T, ...]:
        """All readable objects, in the order of namespace and name; the same tuple until something changes."""
        with self._lock:
            if self._in_order is None:
                ordered = (self._kept[key].record for key in sorted(self._kept))
                self._in_order = tuple(record for record in ordered if record is not None)
            return self._in_order

    def get(self, namespace: str, name: str) -> T | None:
        """One object; for kinds without namespaces, `namespace` is empty."""
        with self._lock:
            kept = self._kept.get((namespace, name))
            return kept.record if kept else None

    @property
    def unreadable(self) -> int:
        """How many present objects are skipped because they could not be parsed."""
        with self._lock:
            return len(self._logged_unreadable)

    def observe(self, obj: Json) -> None:
        """Store the response to a write of our own, if it is newer than what the watch has shown."""
        with self._changing:
            known = self._kept.get(key := key_of(obj))
            # An absent object that is no newer than the watch was deleted meanwhile. Before each write all Freezes
            # come here, and hundreds of known ones would be parsed each time.
            if version_of(obj) > (known.version if known else self._seen_version):
                self._observed.add(key)
                self._put(*self.read(obj))

    def apply(self, kind: str, obj: Json) -> None:
        """One event of a watch: ADDED, MODIFIED, DELETED; others only carry the watch's version."""
        with self._changing:
            self._seen_version = max(self._seen_version, version_of(obj))
            if kind == "DELETED":
                self._remove(key_of(obj), version_of(obj))
            elif kind in ("ADDED", "MODIFIED"):
                key, kept = self.read(obj)
                known = self._kept.get(key)
                if known is None or kept.version >= known.version:
                    self._put(key, kept)

    def begin_listing(self) -> None:
        """A list is about to be read; objects observed from here on may be newer than it."""
        with self._changing:
            self._observed.clear()

    def replace(self, listed: Mapping[Key, Kept[T]], version: int) -> None:
        """The list is read: `listed` is all there is, as of `version`.

        It is a consistent read, so it replaces all earlier objects, also those with a higher version: those are from
        before the cluster was restored from a backup.
        """
        with self._changing:
            if version < self._seen_version:
                self._log.warning("resource version decreased", resource=self._what, version=version)
            newer = {key for key in self._observed if key in self._kept and self._kept[key].version > version}
            self._seen_version = version
            for key in [key for key in self._kept if key not in listed and key not in newer]:
                self._remove(key, self._kept[key].version)
            for key, kept in listed.items():
                if key not in newer:
                    self._put(key, kept)

    def read(self, obj: Json) -> tuple[Key, Kept[T]]:
        """Parse one object. An unreadable one is logged once, and counts as absent."""
        key, record = key_of(obj), None
        try:
            record = self._parse(obj)
        except UNREADABLE as error:
            self._log_unreadable(key, error)
        else:
            self._logged_unreadable.discard(key)
        return key, Kept(version_of(obj), record)

    def read_all(self, objects: Iterable[Json]) -> dict[Key, Kept[T]]:
        """Parse a page of a list."""
        return dict(self.read(obj) for obj in objects)

    def _put(self, key: Key, kept: Kept[T]) -> None:
        with self._lock:
            old = self._kept.get(key)
            self._kept[key] = kept
            before = old.record if old else None
            if before != kept.record:
                self._in_order = None
        self._notify(before, kept.record)

    def _remove(self, key: Key, version: int) -> None:
        self._logged_unreadable.discard(key)
        with self._lock:
            old = self._kept.get(key)
            if old is None or old.version > version:  # created again since, and observed
                return
            del self._kept[key]
            self._in_order = None
        self._notify(old.record, None)

    def _notify(self, old: T | None, new: T | None) -> None:
        if old != new:
            self._on_change(old, new)

    def _log_unreadable(self, key: Key, error: Exception) -> None:
        if key not in self._logged_unreadable:
            self._logged_unreadable.add(key)
            name = "/".join(part for part in key if part)
            reason = f"{type(error).__name__}: {error}"
            self._log.warning("object skipped", resource=self._what, name=name, reason=reason)


def key_of(obj: Json) -> Key:
    """An object's namespace and name. The API server never sends one without a name."""
    metadata = obj["metadata"]
    return metadata.get("namespace") or "", metadata["name"]


def version_of(obj: Json) -> int:
    """An object's resource version as a number, since versions are compared and as text 100 is less than 99.

    Kubernetes guarantees since 1.35 that versions are growing numbers, and they always were; 0 for anything else.
    """
    version = obj["metadata"].get("resourceVersion")
    return int(version) if isinstance(version, str) and version.isdecimal() else 0
