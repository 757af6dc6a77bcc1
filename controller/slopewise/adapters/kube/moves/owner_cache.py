"""Reads and caches the owners' templates and volumes of pods that may be moved.

A watch of all Jobs with their templates would cost every cluster tens of megabytes. These are read one by one, for
migratable pods only, at most `READS_A_PASS` in a pass, and kept until the owner's generation changes or they expire.
What may not be read blocks a move, with the missing right as the reason.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar
from urllib.parse import quote

from slopewise.adapters.kube.cache.records import GROUP, OwnerRef
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.meanings import explain
from slopewise.adapters.kube.client.protocol import Api, Json, path_of
from slopewise.adapters.kube.moves.recreation import (
    EVICTABLE,
    ended_reason,
    ends_with_failure,
    failed_when_ended_reason,
    foreign_manager,
    is_finished,
    not_recreated_reason_of,
)
from slopewise.adapters.kube.moves.stop_note import note_on
from slopewise.adapters.kube.workloads.owners import owner_path
from slopewise.adapters.pauses import GRANT_SECONDS

READS_A_PASS = 100
"""Some 3 ms each: the reads of 1,000 migratable jobs take ten passes, and no pass takes a second for them."""

FIRST_READS_A_PASS = 50
"""Of these, so many are reserved for first reads. At one pass in 20 s, 1,500 reads fall into 300 s: of 5,000 claims the
first ones would be read again and again, and the last ones never."""

KEPT_SECONDS = 300.0
"""How long a read without a generation counts: a claim, a StatefulSet's template."""

PAUSE_KEPT_SECONDS = 60.0
"""How long a positive answer counts: an owner may end without another spec. A suspension or an end lasts."""

NOT_READ_YET = "it has not been read yet; its turn comes in one of the next passes"

SHARED_STORAGE = f"{GROUP}/shared-storage"
"""Annotation of a PersistentVolume, `"true"`: an administrator states that every node mounts the same there."""

_UNASKED_PASSES = 10
"""After so many passes an answer that no pass has asked for is dropped: its pod has ended."""

Answer = TypeVar("Answer")
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class OwnerTemplate:
    """What a pod's direct owner says about moves of its pods."""

    blocked_reason: str | None = None
    """Neither way is possible."""
    not_evictable_reason: str | None = None
    """Its pod would not be recreated, or not behind our gate; suspending may be possible."""
    not_suspendable_reason: str | None = None
    """Its Job would fail when suspended; evicting may be possible."""
    affinity_json: str = ""
    """Of its template: a running pod's own may hold our pin."""


@dataclass(frozen=True, slots=True)
class Disk:
    """The volume behind a claim."""

    blocked_reason: str | None = None
    """Why another node could not read it."""
    node_affinity_json: str = ""
    """`spec.nodeAffinity.required` of its PersistentVolume; empty: every node reaches it."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Why an owner has no pods now."""

    state: Literal["suspended", "stopped", "finished", "failed"]
    reason: str


@dataclass(slots=True)
class _Kept(Generic[Answer]):
    answer: Answer
    version: int
    until_seconds: float
    asked_pass: int


class OwnerReading:
    """The cache. One for each policy, used by one thread at a time."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._templates: dict[tuple[str, str], _Kept[OwnerTemplate]] = {}
        """By namespace, too: any pod may name an owner's uid."""
        self._disks: dict[tuple[str, str], _Kept[Disk]] = {}
        self._pauses: dict[tuple[str, str], _Kept[Pause | None]] = {}
        self._now = 0.0
        self._pass = self._reads_left = 0

    def begin_pass(self, now_seconds: float) -> None:
        """Reset the number of reads for another pass, and drop what is asked for no more."""
        self._now, self._reads_left = now_seconds, READS_A_PASS
        self._pass += 1
        self._templates, self._disks = self._asked(self._templates), self._asked(self._disks)
        self._pauses = self._asked(self._pauses)

    def _asked(self, kept: dict[Key, _Kept[Answer]]) -> dict[Key, _Kept[Answer]]:
        return {key: each for key, each in kept.items() if each.asked_pass >= self._pass - _UNASKED_PASSES}

    def template(self, namespace: str, owner: OwnerRef, generation: int) -> OwnerTemplate:
        """Of a pod's direct owner; `generation` of its spec, 0 where it is unknown."""
        path = owner_path(namespace, owner)
        if owner.kind not in EVICTABLE:
            return OwnerTemplate(blocked_reason=not_recreated_reason_of(owner.kind, {}))
        if path is None:
            return OwnerTemplate(blocked_reason=f"a {owner.kind} of {owner.api_version} is of a kind that is not read")
        return self._of(
            self._templates,
            (namespace, owner.uid),
            generation,
            lambda: _template(owner, self._api.get(path)),
            lambda reason: OwnerTemplate(blocked_reason=f"its {owner.kind} {owner.name} {reason}"),
        )

    def disk(self, namespace: str, claim: str) -> Disk:
        """Behind a claim of this namespace."""
        return self._of(
            self._disks,
            (namespace, claim),
            0,
            lambda: self._read_disk(namespace, claim),
            lambda reason: Disk(blocked_reason=f"its claim {claim}, or the volume behind it, {reason}"),
        )

    def pause(self, namespace: str, workload: OwnerRef, slot: str, generation: int) -> Pause | None:
        """Why a workload has no pod in this slot, by its own object; None: it should have one, or nothing is known.

        `generation` of its spec, 0 where that is unknown.
        """
        path = owner_path(namespace, workload)
        if path is None:
            return None
        return self._of(
            self._pauses,
            (workload.uid, slot),
            generation,
            lambda: _pause(workload, slot, self._api.get(path)),
            lambda reason: None,
            kept_seconds=PAUSE_KEPT_SECONDS,
            lasts=lambda pause: pause is not None,
        )

    def _of(
        self,
        kept: dict[Key, _Kept[Answer]],
        key: Key,
        version: int,
        read: Callable[[], Answer],
        unread: Callable[[str], Answer],
        kept_seconds: float = KEPT_SECONDS,
        lasts: Callable[[Answer], bool] = lambda _: True,
    ) -> Answer:
        """`lasts`: whether an answer holds until the version changes, where there is one."""
        known = kept.get(key)
        if known is not None:
            known.asked_pass = self._pass
        if known is not None and known.version == version and self._now < known.until_seconds:
            return known.answer
        if self._reads_left <= (0 if known is None else FIRST_READS_A_PASS):
            return unread(NOT_READ_YET.removeprefix("it ")) if known is None else known.answer
        self._reads_left -= 1
        answer, was_read = self._try_to_read(read, unread)
        until = self._now + (kept_seconds if was_read else GRANT_SECONDS)
        has_version = was_read and version > 0 and lasts(answer)
        kept[key] = _Kept(answer, version, math.inf if has_version else until, self._pass)
        return answer

    def _try_to_read(self, read: Callable[[], Answer], unread: Callable[[str], Answer]) -> tuple[Answer, bool]:
        """The answer, and whether it was read."""
        try:
            return read(), True
        except ApiError as error:
            if error.is_unanswered:
                self._reads_left = 0
            return unread(explain(error, "read owner").detail), False
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            return unread(f"cannot be read: {type(error).__name__}: {error}"), False

    def _read_disk(self, namespace: str, claim: str) -> Disk:
        found = self._api.get(path_of("v1", "persistentvolumeclaims", namespace, quote(claim, safe="")))
        volume = found["spec"].get("volumeName")
        if not volume:
            return Disk(blocked_reason=f"its claim {claim} has no volume yet")
        return _disk(claim, self._api.get(path_of("v1", "persistentvolumes", name=quote(volume, safe=""))))


def _template(owner: OwnerRef, found: Json) -> OwnerTemplate:
    if found["metadata"]["uid"] != owner.uid:
        return OwnerTemplate(blocked_reason=f"its {owner.kind} {owner.name} has been replaced")
    spec = found["spec"]
    affinity, manager = spec["template"]["spec"].get("affinity"), foreign_manager(spec) if owner.kind == "Job" else None
    elsewhere = f"its Job is managed by {manager}, which need not bring its pod back"
    return OwnerTemplate(
        blocked_reason=None if manager is None else elsewhere,
        not_evictable_reason=not_recreated_reason_of(owner.kind, found),
        not_suspendable_reason=failed_when_ended_reason(spec) if owner.kind == "Job" else None,
        affinity_json=json.dumps(affinity, sort_keys=True) if affinity else "",
    )


def _pause(workload: OwnerRef, slot: str, found: Json) -> Pause | None:
    meta, spec, kind = found["metadata"], found["spec"], workload.kind
    if meta["uid"] != workload.uid or "deletionTimestamp" in meta:
        return None
    if kind == "Job" and is_finished(found):
        has_failed = ends_with_failure(found)
        return Pause("failed", "its Job has failed") if has_failed else Pause("finished", "its Job has ended")
    if kind == "Job" and (note := note_on(found)) is not None:
        return Pause("stopped", note.reason)
    if spec.get("suspend") or (spec.get("runPolicy") or {}).get("suspend"):
        return Pause("suspended", f"its {kind} is suspended, and not by Slopewise")
    reason = ended_reason(kind, found, f"{workload.name}-{slot}")
    if reason is None and kind != "StatefulSet" and spec.get("replicas") == 0:
        reason = f"its {kind} has replicas: 0"
    return None if reason is None else Pause("suspended", reason)


def _disk(claim: str, volume: Json) -> Disk:
    """A node-local volume is shared only where an administrator says so."""
    meta, spec = volume["metadata"], volume["spec"]
    of_node = next((kind for kind in ("hostPath", "local") if kind in spec), None)
    if of_node is not None and (meta.get("annotations") or {}).get(SHARED_STORAGE) != "true":
        return Disk(
            blocked_reason=f"its claim {claim} is a {of_node} volume of one node; where every node mounts the same, "
            f'set {SHARED_STORAGE}: "true" on PersistentVolume {meta["name"]}'
        )
    required = (spec.get("nodeAffinity") or {}).get("required")
    return Disk(node_affinity_json=json.dumps(required, sort_keys=True) if required else "")
