"""The events of a history, and the cluster's objects as the accepted writes before a moment have made them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
Key = tuple[str, str, str]
"""Resource, namespace and name; the namespace of what belongs to the whole cluster is empty."""

_NO_OBJECT: Json = {}


@dataclass(frozen=True, slots=True)
class Write:
    """One request that changes something, as the API server's audit log has it."""

    at_seconds: float
    """When the API server received it."""
    until_seconds: float
    """When it was answered: what it stored can be read from then on at the latest."""
    writer: str
    """Who sent it: each replica of the controller has another name."""
    verb: str
    kind: str
    """The resource with its subresource, such as `pods/resize`."""
    namespace: str
    name: str
    code: int
    body: Json | None = None
    after: Json = field(default_factory=dict)
    """The object as it was stored; empty where the answer is no object."""
    ours: bool = False
    """It names our field manager, or a replica sent it that has asked for the lease."""

    @property
    def accepted(self) -> bool:
        """The API server carried it out."""
        return 200 <= self.code < 300

    @property
    def key(self) -> Key:
        """Of the object that it changes."""
        return self.kind.partition("/")[0], self.namespace, self.name

    @property
    def removes(self) -> bool:
        """The object is gone: a pod stays until its grace is over, any object until its last finalizer is removed."""
        meta = self.after.get("metadata") or {}
        if self.verb != "delete" and "deletionTimestamp" not in meta:
            return False
        return "/" not in self.kind and not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds")

    @property
    def version(self) -> int:
        """The resource version that it made, which orders all writes; 0: none is known.

        What removes an object is answered with the version of the write before it.
        """
        return 0 if self.removes else int((self.after.get("metadata") or {}).get("resourceVersion") or 0)

    def __str__(self) -> str:
        version = f" (version {self.version})" if self.version else ""
        where = "/".join(filter(None, (self.namespace, self.name)))
        return f"{self.at_seconds:.3f} {self.writer}: {self.verb} {self.kind} {where} -> {self.code}{version}"


@dataclass(frozen=True, slots=True)
class Sample:
    """The CPU limit of a pod's cgroup at one moment, in millicores; None: it has none."""

    at_seconds: float
    pod_uid: str
    limit_millicores: int | None

    def __str__(self) -> str:
        return f"{self.at_seconds:.3f} cgroup of pod {self.pod_uid}: limit {shown(self.limit_millicores)}"


@dataclass(frozen=True, slots=True)
class Step:
    """A line of a training's diary: `goes on` after so many steps, `step`, `saved`, `ends`. A life is one process."""

    at_seconds: float
    training: str
    life: str
    event: str
    steps: int = 0

    def __str__(self) -> str:
        return f"{self.at_seconds:.3f} {self.training} in {self.life}: {self.event} {self.steps}"


@dataclass(frozen=True, slots=True)
class Decided:
    """One decision of a pass, from the decision record: the CPU of a job is `after_millicores` with this result."""

    at_seconds: float
    policy: str
    job_uid: str
    after_millicores: int
    result: str
    since_seconds: float = 0.0
    """When the pass observed."""

    def __str__(self) -> str:
        return f"{self.at_seconds:.3f} pass of {self.policy}: {self.job_uid} to {self.after_millicores}m, {self.result}"


Event = Write | Sample | Step | Decided


@dataclass(frozen=True, slots=True)
class Contradiction:
    """What is wrong, and the events that show it."""

    rule: str
    message: str
    events: tuple[Event, ...]

    def __str__(self) -> str:
        return "\n    ".join([f"{self.rule}: {self.message}", *map(str, self.events)])


class World:
    """All objects, and the write that made each of them what it is."""

    def __init__(self) -> None:
        self.now_seconds = 0.0
        self._objects: dict[Key, tuple[Json, Write]] = {}

    def get(self, resource: str, namespace: str, name: str) -> Json:
        """The object; empty where there is none."""
        return self._objects[key][0] if (key := (resource, namespace, name)) in self._objects else _NO_OBJECT

    def of(self, resource: str, namespace: str | None = None) -> Iterator[tuple[Json, Write]]:
        """The objects of a kind, with their last writes."""
        for (kind, space, _), found in self._objects.items():
            if kind == resource and namespace in (None, space):
                yield found

    def apply(self, event: Event) -> None:
        """What an accepted write leaves; other events change nothing."""
        self.now_seconds = max(self.now_seconds, event.at_seconds)
        if not isinstance(event, Write) or not event.accepted:
            return
        if event.verb == "deletecollection":
            for key in [key for key in self._objects if key[:2] == event.key[:2]]:
                del self._objects[key]
        elif event.removes:
            self._objects.pop(event.key, None)
        elif "metadata" in event.after:
            self._objects[event.key] = (event.after, event)


def shown(millicores: int | None) -> str:
    """In a message."""
    return "none" if millicores is None else f"{millicores}m"
