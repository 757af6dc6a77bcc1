"""What must be asked about pods that may be moved: their owners' templates and their volumes, once each.

Before it: `mobilities.py`, in a pass, and `absences.py`, which asks whether an owner wants pods at all. After it:
`mobility.py`. A watch of all Jobs with their templates would cost
every cluster tens of megabytes; these are read one by one, for migratable pods only, at most `READS_A_PASS` in a pass,
and kept until the owner's generation changes or they are old. What may not be read is a reason why a pod stays, with
the right that is missing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar
from urllib.parse import quote

from controller.adapters.kube.api_error import ApiError
from controller.adapters.kube.coming_back import (
    EVICTABLE,
    foreign_manager,
    why_failed_when_ended,
    why_not_back,
    why_over,
)
from controller.adapters.kube.contracts import Api, Json
from controller.adapters.kube.evicting import COMPONENT
from controller.adapters.kube.job_steps import ends_with_failure, is_finished
from controller.adapters.kube.owners import owner_path
from controller.adapters.kube.paths import path_of
from controller.adapters.kube.records import GROUP, OwnerRef

READS_A_PASS = 100
"""Some 3 ms each: what 1,000 migratable jobs need is there after ten passes, and no pass takes a second for it."""

FIRST_READS_A_PASS = 50
"""Of these, so many are kept for what was never read. At one pass in 20 s, 1,500 reads fall into 300 s: of 5,000 claims
the first ones would be read again and again, and the last ones never."""

KEPT_SECONDS = 300.0
"""How long what has no generation to tell of a change is believed: a claim, a StatefulSet's template."""

ASK_AGAIN_SECONDS = 60.0
"""After a refusal: whoever grants a right, or makes a claim, waits for a pass or two."""

PAUSE_KEPT_SECONDS = 60.0
"""How long it is believed that an owner wants pods: it may end without another spec. A suspension or an end lasts."""

NOT_READ_YET = "it has not been looked at yet; its turn comes in one of the next passes"

SHARED_STORAGE = f"{GROUP}/shared-storage"
"""Annotation of a PersistentVolume, `"true"`: an administrator says that every node mounts the same there."""

_MOST_KEPT = 20_000

Answer = TypeVar("Answer")
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class OwnerTemplate:
    """What a pod's direct owner says of how its pods may be moved."""

    stays_because: str | None = None
    """Neither way is open."""
    not_evicted_because: str | None = None
    """Its pod would not come back, or not the way we need; suspending may still be open."""
    not_suspended_because: str | None = None
    """Its Job would not outlive being suspended; evicting may still be open."""
    affinity_json: str = ""
    """Of its template: a running pod's own may hold a pin of ours."""


@dataclass(frozen=True, slots=True)
class Disk:
    """What is behind a claim."""

    stays_because: str | None = None
    """Why another node could not read it."""
    node_affinity_json: str = ""
    """`spec.nodeAffinity.required` of its PersistentVolume; empty: every node reaches it."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Why an owner makes no pods just now."""

    state: Literal["suspended", "finished", "failed"]
    reason: str


@dataclass(frozen=True, slots=True)
class _Kept(Generic[Answer]):
    answer: Answer
    version: int
    until_seconds: float


class OwnerReading:
    """Reads and keeps. One for each policy, used by one thread at a time."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._templates: dict[str, _Kept[OwnerTemplate]] = {}
        self._disks: dict[tuple[str, str], _Kept[Disk]] = {}
        self._pauses: dict[tuple[str, str], _Kept[Pause | None]] = {}
        self._now = 0.0
        self._reads_left = 0

    def begin_pass(self, now_seconds: float) -> None:
        """Another pass, in which so much may be read."""
        self._now, self._reads_left = now_seconds, READS_A_PASS

    def template(self, namespace: str, owner: OwnerRef, generation: int) -> OwnerTemplate:
        """Of a pod's direct owner; `generation` of its spec, 0 where that is not known."""
        path = owner_path(namespace, owner)
        if owner.kind not in EVICTABLE:
            return OwnerTemplate(stays_because=why_not_back(owner.kind, {}))
        if path is None:
            return OwnerTemplate(stays_because=f"a {owner.kind} of {owner.api_version} is of a kind that is not read")
        return self._of(
            self._templates,
            owner.uid,
            generation,
            lambda: _template(owner, self._api.get(path)),
            lambda why: OwnerTemplate(stays_because=f"its {owner.kind} {owner.name} {why}"),
        )

    def disk(self, namespace: str, claim: str) -> Disk:
        """Behind a claim of this namespace."""
        return self._of(
            self._disks,
            (namespace, claim),
            0,
            lambda: self._read_disk(namespace, claim),
            lambda why: Disk(stays_because=f"its claim {claim}, or the volume behind it, {why}"),
        )

    def pause(self, namespace: str, workload: OwnerRef, slot: str, generation: int) -> Pause | None:
        """Why a workload has no pod in this slot, by its own object; None: it wants one, or nothing is known of it.

        `generation` of its spec, 0 where that is not known.
        """
        path = owner_path(namespace, workload)
        if path is None:
            return None
        return self._of(
            self._pauses,
            (workload.uid, slot),
            generation,
            lambda: _pause(workload, slot, self._api.get(path)),
            lambda why: None,
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
        """`lasts`: whether an answer holds until the version is another, where there is one."""
        known = kept.get(key)
        if known is not None and known.version == version and self._now < known.until_seconds:
            return known.answer
        if self._reads_left <= (0 if known is None else FIRST_READS_A_PASS):
            return unread(NOT_READ_YET.removeprefix("it ")) if known is None else known.answer
        self._reads_left -= 1
        answer, was_read = self._ask(read, unread)
        if len(kept) >= _MOST_KEPT:
            kept.clear()
        until = self._now + (kept_seconds if was_read else ASK_AGAIN_SECONDS)
        has_version = was_read and version > 0 and lasts(answer)
        kept[key] = _Kept(answer, version, math.inf if has_version else until)
        return answer

    def _ask(self, read: Callable[[], Answer], unread: Callable[[str], Answer]) -> tuple[Answer, bool]:
        """The answer, and whether it was read."""
        try:
            return read(), True
        except ApiError as error:
            if error.status == 0:
                self._reads_left = 0  # nobody answers: the pass must not wait for each of them
            return unread(_why(error)), False
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            return unread(f"cannot be read: {type(error).__name__}: {error}"), False

    def _read_disk(self, namespace: str, claim: str) -> Disk:
        found = self._api.get(path_of("v1", "persistentvolumeclaims", namespace, quote(claim, safe="")))
        volume = found["spec"].get("volumeName")
        if not volume:
            return Disk(stays_because=f"its claim {claim} has no volume yet")
        return _disk(claim, self._api.get(path_of("v1", "persistentvolumes", name=quote(volume, safe=""))))


def _template(owner: OwnerRef, found: Json) -> OwnerTemplate:
    if found["metadata"]["uid"] != owner.uid:
        return OwnerTemplate(stays_because=f"its {owner.kind} {owner.name} has been replaced")
    spec = found["spec"]
    affinity = spec["template"]["spec"].get("affinity")
    return OwnerTemplate(
        stays_because=_managed_elsewhere(spec) if owner.kind == "Job" else None,
        not_evicted_because=why_not_back(owner.kind, found),
        not_suspended_because=why_failed_when_ended(spec) if owner.kind == "Job" else None,
        affinity_json=json.dumps(affinity, sort_keys=True) if affinity else "",
    )


def _pause(workload: OwnerRef, slot: str, found: Json) -> Pause | None:
    meta, spec, kind = found["metadata"], found["spec"], workload.kind
    if meta["uid"] != workload.uid or "deletionTimestamp" in meta:
        return None
    if kind == "Job" and is_finished(found):
        has_failed = ends_with_failure(found)
        return Pause("failed", "its Job has failed") if has_failed else Pause("finished", "its Job has ended")
    if spec.get("suspend") or (spec.get("runPolicy") or {}).get("suspend"):
        return Pause("suspended", f"its {kind} is suspended, and not by Slopewise")
    why = why_over(kind, found, f"{workload.name}-{slot}")
    if why is None and kind != "StatefulSet" and spec.get("replicas") == 0:
        why = f"its {kind} has replicas: 0"
    return None if why is None else Pause("suspended", why)


def _managed_elsewhere(job_spec: Json) -> str | None:
    manager = foreign_manager(job_spec)
    return f"its Job is managed by {manager}, which need not bring its pod back" if manager else None


def _disk(claim: str, volume: Json) -> Disk:
    """A disk of one node is only as good as another node's of the same path, which only an administrator can know."""
    meta, spec = volume["metadata"], volume["spec"]
    of_node = next((kind for kind in ("hostPath", "local") if kind in spec), None)
    if of_node is not None and (meta.get("annotations") or {}).get(SHARED_STORAGE) != "true":
        return Disk(
            stays_because=f"its claim {claim} is a {of_node} volume of one node; where every node mounts the same, "
            f'set {SHARED_STORAGE}: "true" on PersistentVolume {meta["name"]}'
        )
    required = (spec.get("nodeAffinity") or {}).get("required")
    return Disk(node_affinity_json=json.dumps(required, sort_keys=True) if required else "")


def _why(error: ApiError) -> str:
    if error.status == 403:
        return f"may not be read; {COMPONENT}"
    return "is not there" if error.status == 404 else f"could not be read: {error}"
