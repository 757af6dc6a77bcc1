"""The objects of one watched kind: the newest that is known of each, parsed, and who is told of changes.

`watching.py` feeds it from lists and watches, and whoever writes an object feeds it the answer (`observe`), so that the
next look does not see the past. Nothing here waits or sends; that is `watching.Reflector`'s.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from controller.adapters.kube.contracts import Json

T = TypeVar("T")
Key = tuple[str, str]
"""Namespace (empty for kinds without) and name."""

UNREADABLE = (ValueError, LookupError, TypeError, AttributeError)
"""What `parse` may raise of an object that is not as expected."""


@dataclass(frozen=True, slots=True)
class Kept(Generic[T]):
    """What is kept of one object. `record` is None when it could not be read."""

    version: int
    record: T | None


class Collection(Generic[T]):
    """Safe from any thread. Changes are told one at a time, in order, with the old and the new record."""

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
        # Held while a change is made and told, so that changes are told in their order; a listener may read.
        self._changing = threading.RLock()
        self._seen_version = 0
        self._observed: set[Key] = set()
        self._told_unreadable: set[Key] = set()
        self._log = structlog.get_logger("slopewise")

    def items(self) -> tuple[T, ...]:
        """All that could be read, in the order of namespace and name. Made once for each state: 5,000 cost nothing."""
        with self._lock:
            if self._in_order is None:
                ordered = (self._kept[key].record for key in sorted(self._kept))
                self._in_order = tuple(record for record in ordered if record is not None)
            return self._in_order

    def get(self, namespace: str, name: str) -> T | None:
        """One of them."""
        with self._lock:
            kept = self._kept.get((namespace, name))
            return kept.record if kept else None

    @property
    def unreadable(self) -> int:
        """How many objects are there and could not be read."""
        with self._lock:
            return len(self._told_unreadable)

    def observe(self, obj: Json) -> None:
        """Something newer may be known of an object than the watch has told: the answer to a write of our own."""
        with self._changing:
            key, kept = self.read(obj)
            known = self._kept.get(key)
            # What is not here and is no newer than what the watch has told of is not new: it was deleted meanwhile.
            if kept.version > (known.version if known else self._seen_version):
                self._observed.add(key)
                self._put(key, kept)

    def apply(self, kind: str, obj: Json) -> None:
        """One event of a watch: ADDED, MODIFIED, DELETED; others only say how far the watch is."""
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
        """A list is about to be read; what is observed from here on may be newer than it."""
        with self._changing:
            self._observed.clear()

    def replace(self, listed: Mapping[Key, Kept[T]], version: int) -> None:
        """The list is read: `listed` is all there is, as of `version`.

        It is a consistent read, so it wins over everything that was known before it began, even over what carries a
        higher version: then the cluster was restored from a backup, and what we knew of did not happen.
        """
        with self._changing:
            if version < self._seen_version:
                self._log.warning(f"{self._what}: the cluster went back in time; all is read anew", version=version)
            newer = {key for key in self._observed if key in self._kept and self._kept[key].version > version}
            self._seen_version = version
            for key in [key for key in self._kept if key not in listed and key not in newer]:
                self._remove(key, self._kept[key].version)
            for key, kept in listed.items():
                if key not in newer:
                    self._put(key, kept)

    def read(self, obj: Json) -> tuple[Key, Kept[T]]:
        """Parse one object. One that cannot be read is told once, and is as if it were not there."""
        key, record = key_of(obj), None
        try:
            record = self._parse(obj)
        except UNREADABLE as error:
            self._tell_unreadable(key, error)
        else:
            self._told_unreadable.discard(key)
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
        self._tell(before, kept.record)

    def _remove(self, key: Key, version: int) -> None:
        self._told_unreadable.discard(key)
        with self._lock:
            old = self._kept.get(key)
            if old is None or old.version > version:  # made anew since, which we observed
                return
            del self._kept[key]
            self._in_order = None
        self._tell(old.record, None)

    def _tell(self, old: T | None, new: T | None) -> None:
        if old != new:
            self._on_change(old, new)

    def _tell_unreadable(self, key: Key, error: Exception) -> None:
        if key not in self._told_unreadable:
            self._told_unreadable.add(key)
            name = "/".join(part for part in key if part)
            reason = f"{type(error).__name__}: {error}"
            self._log.warning(f"{self._what} {name} cannot be read and is passed over", reason=reason)


def key_of(obj: Json) -> Key:
    """Where an object is. The API server never sends one without a name."""
    metadata = obj["metadata"]
    return metadata.get("namespace") or "", metadata["name"]


def version_of(obj: Json) -> int:
    """An object's resource version as a number: they are compared, and as text 100 is less than 99.

    Kubernetes promises since 1.35 that they are numbers that grow, and they always were; 0 for anything else.
    """
    version = obj["metadata"].get("resourceVersion")
    return int(version) if isinstance(version, str) and version.isdecimal() else 0
