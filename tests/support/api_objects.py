"""The objects behind `api_server.ApiServer`: stored, patched and watched the way a Kubernetes API server does it.

It knows no kinds: any path is a collection. What it keeps from the real one is what clients trip over: resource
versions that grow over all kinds, preconditions, merge patches, subresources, finalizers, paged lists, and a history
of changes that watches are served from and that can be forgotten (410).
"""

from __future__ import annotations

import copy
import threading
import time
import uuid
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

Json = dict[str, Any]

FIRST_RESOURCE_VERSION = 95
"""So that a few changes later it has a digit more: compared as text, 100 is older than 95."""


class RefusedError(Exception):
    """What the API server answers instead: a Status."""

    def __init__(self, code: int, reason: str, message: str, causes: tuple[Json, ...] = ()) -> None:
        super().__init__(message)
        self.status: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": code,
            "reason": reason,
            "message": message,
            "details": {"causes": list(causes)},
        }


@dataclass(frozen=True)
class Address:
    """Where a path points: `/api/v1/namespaces/n/pods/p/resize` is (`/api/v1`, pods, n, p, resize)."""

    group: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @staticmethod
    def of(path: str) -> Address:
        parts = path.strip("/").split("/")
        size = 2 if parts[0] == "api" else 3
        group, rest = "/" + "/".join(parts[:size]), parts[size:]
        namespace = ""
        if rest[:1] == ["namespaces"] and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        resource, name, subresource = (*rest, "", "", "")[:3]
        return Address(group, resource, namespace, name, subresource)

    def holds(self, other: Address) -> bool:
        """True when this collection has `other` in it; one without a namespace is over all of them."""
        return (self.group, self.resource) == (other.group, other.resource) and (
            not self.namespace or self.namespace == other.namespace
        )


@dataclass(frozen=True)
class Selector:
    """`labelSelector` and `fieldSelector`, as far as tests use them: equal, unequal, labels that exist or do not."""

    labels: str = ""
    fields: str = ""

    def picks(self, obj: Json | None) -> bool:
        if obj is None:
            return False
        labels: Mapping[str, str] = obj["metadata"].get("labels") or {}
        return all(_label_fits(term, labels) for term in self.labels.split(",") if term) and all(
            _field_fits(term, obj) for term in self.fields.split(",") if term
        )


@dataclass(frozen=True)
class Entry:
    """One change in the history."""

    version: int
    address: Address
    old: Json | None
    new: Json | None
    at_seconds: float = 0.0
    """By the monotonic clock."""

    def event(self, selector: Selector) -> Json | None:
        """What a watch with that selector receives; None: nothing."""
        was, now = selector.picks(self.old), selector.picks(self.new)
        if not was and not now:
            return None
        kind = "MODIFIED" if was and now else "ADDED" if now else "DELETED"
        obj: Json = copy.deepcopy(cast("Json", self.new if now else self.old))
        obj["metadata"]["resourceVersion"] = str(self.version)  # a deletion carries the version of the deletion
        return {"type": kind, "object": obj}


class Objects:
    """All objects and their history. Safe from any thread; `changed` is notified on every change."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.version = FIRST_RESOURCE_VERSION
        self.history: list[Entry] = []
        self.forgotten_until = 0
        self.kubelets_follow = False
        """What was resized is in effect, and reported so, a moment after the answer."""
        self.on_change: Callable[[Entry], None] = lambda _: None
        """Called with each change, in their order."""
        self._objects: dict[tuple[str, str], dict[Address, Json]] = defaultdict(dict)
        """By group and resource: a list of one kind among 30,000 objects must not look at all."""

    def saved(self) -> dict[Address, Json]:
        """A copy of all objects, which another one may begin with."""
        with self.changed:
            return copy.deepcopy({at: obj for of_kind in self._objects.values() for at, obj in of_kind.items()})

    def begin_with(self, saved: Mapping[Address, Json]) -> None:
        """These objects in the place of all others, and no history."""
        with self.changed:
            self._objects.clear()
            for at, obj in copy.deepcopy(dict(saved)).items():
                self._of(at)[at] = obj
            self.version = max(int(obj["metadata"]["resourceVersion"]) for obj in saved.values())
            self.forget()

    def get(self, at: Address) -> Json:
        with self.changed:
            obj = self._of(at).get(Address(at.group, at.resource, at.namespace, at.name))
            if obj is None:
                raise RefusedError(404, "NotFound", f'{at.resource} "{at.name}" not found')
            return copy.deepcopy(obj)

    def listed(self, at: Address, selector: Selector) -> list[Json]:
        return copy.deepcopy(self.stored(at, selector))

    def stored(self, at: Address, selector: Selector) -> list[Json]:
        """The objects themselves, only to be read: of 10,000, a page of 500 needs no copies of the others."""
        with self.changed:
            found = [
                (each.namespace, each.name, obj)
                for each, obj in self._of(at).items()
                if at.holds(each) and selector.picks(obj)
            ]
            return [obj for _, _, obj in sorted(found, key=lambda row: row[:2])]

    def put(self, collection: Address, obj: Json) -> Json:
        """Make it or replace it without asking for versions: what a test, or another controller, does."""
        obj = copy.deepcopy(obj)
        meta = obj.setdefault("metadata", {})
        namespace = meta.get("namespace", collection.namespace)
        at = Address(collection.group, collection.resource, namespace, meta["name"])
        with self.changed:
            old = self._of(at).get(at)
            if namespace:
                meta["namespace"] = namespace
            meta.setdefault("uid", old["metadata"]["uid"] if old else str(uuid.uuid4()))
            meta.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
            meta["generation"] = _next_generation(old, obj)
            return self._store(at, obj)

    def create(self, collection: Address, obj: Json) -> Json:
        with self.changed:
            if collection.subresource == "eviction":
                return self._evict(collection, obj)
            meta = obj.setdefault("metadata", {})
            if not meta.get("name") and meta.get("generateName"):
                meta["name"] = meta["generateName"] + uuid.uuid4().hex[:5]
            at = Address(collection.group, collection.resource, collection.namespace, meta["name"])
            if at in self._of(at):
                raise RefusedError(409, "AlreadyExists", f'{at.resource} "{at.name}" already exists')
            return self.put(collection, obj)

    def _evict(self, at: Address, eviction: Json) -> Json:
        """The pod is signalled to end, or is gone at once where it has no node; a kubelet's part is the test's."""
        old, options = self.get(at), eviction.get("deleteOptions") or {}
        _check_version(at, old, options.get("preconditions") or {})
        if options.get("dryRun"):
            return eviction
        if not old["spec"].get("nodeName"):
            self._remove(at, old)
            return eviction
        old["metadata"].setdefault("deletionTimestamp", "2026-01-01T01:00:00Z")
        self._store(Address(at.group, at.resource, at.namespace, at.name), old)
        return eviction

    def replace(self, at: Address, obj: Json) -> Json:
        with self.changed:
            old = self.get(at)
            _check_version(at, old, obj.get("metadata") or {})
            return self._write(at, old, obj)

    def patch(self, at: Address, patch: Json, *, strategic: bool) -> Json:
        with self.changed:
            old, metadata = self.get(at), patch.get("metadata") or {}
            _check_version(at, old, {key: metadata[key] for key in metadata if key != "uid"})
            _check_uid(at, old, metadata)
            return self._write(at, old, merged(old, patch, strategic=strategic))

    def delete(self, at: Address, preconditions: Json | None = None) -> Json:
        """Gone at once, or marked as being deleted while it has finalizers."""
        with self.changed:
            old = self.get(at)
            _check_version(at, old, preconditions or {})
            if not old["metadata"].get("finalizers"):
                return self._remove(at, old)
            old["metadata"].setdefault("deletionTimestamp", "2026-01-01T01:00:00Z")
            return self._store(at, old)

    def remove(self, at: Address) -> Json:
        """Gone at once, whatever its finalizers."""
        with self.changed:
            return self._remove(at, self.get(at))

    def forget(self) -> None:
        """The history is compacted: a watch from before now gets 410."""
        with self.changed:
            self.forgotten_until = self.version
            self.history.clear()
            self.changed.notify_all()

    def since(self, version: int) -> list[Entry]:
        """Changes after `version`; RefusedError (410) when they are forgotten."""
        with self.changed:
            if version < self.forgotten_until:
                raise RefusedError(410, "Expired", f"too old resource version: {version} ({self.forgotten_until})")
            return self.history[bisect_right(self.history, version, key=lambda entry: entry.version) :]

    def _write(self, at: Address, old: Json, wished: Json) -> Json:
        """A subresource changes only what belongs to it, and the object itself never its `status`, if it has one."""
        new = copy.deepcopy(old)
        if at.subresource == "status":
            new["status"] = wished.get("status")
        elif at.subresource == "resize":
            _resize(at, new["spec"], wished["spec"])
        else:
            new = {**copy.deepcopy(wished), **({"status": old["status"]} if "status" in old else {})}
        new["metadata"] = {**wished["metadata"], "uid": old["metadata"]["uid"]}
        new["metadata"]["generation"] = _next_generation(old, new)
        if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers"):
            return self._remove(at, new)
        stored = self._store(Address(at.group, at.resource, at.namespace, at.name), new)
        if at.subresource == "resize" and self.kubelets_follow:
            self.follow(at)
        return stored

    def follow(self, at: Address) -> None:
        """What a kubelet does about a pod: what its spec says is in effect, and reported."""
        with self.changed:
            pod = self.get(at)
            wished = {each["name"]: each.get("resources", {}) for each in pod["spec"]["containers"]}
            for status in pod["status"].get("containerStatuses", []):
                status["resources"] = copy.deepcopy(wished[status["name"]])
            pod["status"]["observedGeneration"] = pod["metadata"]["generation"]
            self._store(Address(at.group, at.resource, at.namespace, at.name), pod)

    def _of(self, at: Address) -> dict[Address, Json]:
        return self._objects[at.group, at.resource]

    def _store(self, at: Address, new: Json) -> Json:
        old = self._of(at).get(at)
        self.version += 1
        new["metadata"]["resourceVersion"] = str(self.version)
        self._of(at)[at] = new
        self._notify(at, old, new)
        return copy.deepcopy(new)

    def _remove(self, at: Address, last: Json) -> Json:
        self.version += 1
        at = Address(at.group, at.resource, at.namespace, at.name)
        self._notify(at, self._of(at).pop(at), None)
        return copy.deepcopy(last)

    def _notify(self, at: Address, old: Json | None, new: Json | None) -> None:
        self.history.append(Entry(self.version, at, old, new, time.monotonic()))
        self.on_change(self.history[-1])
        self.changed.notify_all()


def _resize(at: Address, spec: Json, wished: Json) -> None:
    for kind in ("containers", "initContainers"):
        old, new = spec.get(kind, []), wished.get(kind, [])
        if [each["name"] for each in old] != [each["name"] for each in new]:
            raise _invalid(at, f"spec.{kind}", "Forbidden: containers may not be added or removed on resize")
        for container, resized in zip(old, new, strict=True):
            container["resources"] = resized.get("resources", {})


def merged(old: Json, patch: Json, *, strategic: bool) -> Json:
    """`old` after a merge patch; a strategic one merges lists of named (or typed) things instead of replacing them."""
    new = copy.deepcopy(old)
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        elif isinstance(value, dict):
            below = new.get(key)
            new[key] = merged(below if isinstance(below, dict) else {}, value, strategic=strategic)
        elif strategic and isinstance(value, list) and (merge_key := _merge_key(value)):
            new[key] = _merged_list(new.get(key) or [], value, merge_key)
        else:
            new[key] = copy.deepcopy(value)
    return new


def _merge_key(items: list[Any]) -> str | None:
    keys = ("name", "type")
    return next((key for key in keys if items and all(isinstance(each, dict) and key in each for each in items)), None)


def _merged_list(old: list[Json], patch: list[Json], key: str) -> list[Json]:
    gone = {each[key] for each in patch if each.get("$patch") == "delete"}
    changes = {each[key]: each for each in patch if each[key] not in gone}
    kept = [merged(each, changes.pop(each[key], {}), strategic=True) for each in old if each[key] not in gone]
    return [*kept, *(merged({}, each, strategic=True) for each in changes.values())]


def _check_version(at: Address, old: Json, wished: Mapping[str, Any]) -> None:
    """A resource version that is given must be the present one. So must a uid where it is a precondition."""
    for field in ("uid", "resourceVersion"):
        if wished.get(field, old["metadata"][field]) != old["metadata"][field]:
            raise RefusedError(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on {at.resource} "{at.name}": the object has been modified; please '
                "apply your changes to the latest version and try again",
            )


def _check_uid(at: Address, old: Json, wished: Mapping[str, Any]) -> None:
    """In a patch another uid is no conflict but a change that is not allowed, as on 1.36."""
    if wished.get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
        raise _invalid(at, "metadata.uid", f'Invalid value: "{wished["uid"]}": field is immutable')


def _invalid(at: Address, field: str, message: str) -> RefusedError:
    cause = {"reason": "FieldValueInvalid", "message": message, "field": field}
    return RefusedError(422, "Invalid", f'{at.resource} "{at.name}" is invalid: {field}: {message}', (cause,))


def _next_generation(old: Json | None, new: Json) -> int:
    if old is None:
        return int(new["metadata"].get("generation", 1))
    return int(old["metadata"].get("generation", 1)) + (old.get("spec") != new.get("spec"))


def _label_fits(term: str, labels: Mapping[str, str]) -> bool:
    if term.startswith("!"):
        return term[1:] not in labels
    key, equals, value = term.replace("==", "=").partition("=")
    return labels.get(key) == value if equals else key in labels


def _field_fits(term: str, obj: Json) -> bool:
    key, _, value = term.partition("=")
    found = str(_field(obj, key.removesuffix("!")))
    return found != value if key.endswith("!") else found == value


def _field(obj: Json, dotted: str) -> object:
    value: Any = obj
    for key in dotted.split("."):
        value = (value or {}).get(key, "")
    return value


def page_of(items: list[Json], limit: int, token: str) -> tuple[list[Json], str, int]:
    """The page that a continue token asks for: (items, the next token, how many remain)."""
    start = int(token or 0)
    end = start + limit if limit else len(items)
    return items[start:end], str(end) if end < len(items) else "", max(0, len(items) - end)
