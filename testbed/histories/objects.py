"""Reads the objects of a history: a container's CPU and memory, its stored original, its policy, freezes, owners."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from slopewise.adapters.kube.cache.records import MANAGED_LABEL
from slopewise.adapters.kube.cache.wire import cpu_millicores, memory_bytes
from slopewise.adapters.kube.moves.suspend.annotation import move_on
from testbed.histories.events import Json, World, Write, shown

CHANGING = ("Auto", "Canary")
"""The modes in which pods are changed."""


class Cpu(NamedTuple):
    """Limit and request of a container, in millicores."""

    limit: int | None
    request: int

    def __str__(self) -> str:
        return f"limit {shown(self.limit)}, request {self.request}m"

    def is_restored_to(self, original: Cpu) -> bool:
        """A limit that was added cannot be removed; Kubernetes refuses that."""
        return self.request == original.request and original.limit in (None, self.limit)

    def is_nearer_to(self, original: Cpu, had: Cpu) -> bool:
        """Or as near as what it had: without room a request comes back in part."""
        limits = self.limit == had.limit if original.limit is None else self.limit == original.limit
        return limits and abs(self.request - original.request) <= abs(had.request - original.request)


class Memory(NamedTuple):
    """Limit and request of a container, in bytes; None: it has none."""

    limit: int | None
    request: int | None

    def __str__(self) -> str:
        return f"memory limit {self.limit}, request {self.request}"

    def is_nearer_to(self, original: Memory, had: Memory) -> bool:
        """Or as near as what it had, in both."""
        distances = (
            (abs((new or 0) - (to or 0)), abs((old or 0) - (to or 0)))
            for new, to, old in zip(self, original, had, strict=True)
        )
        return all(now <= before for now, before in distances)


class Stored(NamedTuple):
    """What a JobGrowth has of a pod."""

    original: Cpu | None
    memory: Memory | None
    """Its original; None: it was never changed."""
    container: str
    policy: str
    written: Write


def memory_of(pod: Json, container: str = "") -> Memory:
    """Of a pod's container, or its first one."""
    resources = _named(pod["spec"]["containers"], container).get("resources") or {}
    return _memory(*((resources.get(side) or {}).get("memory") for side in ("limits", "requests")))


def _memory(*quantities: str | None) -> Memory:
    return Memory(*(None if each is None else memory_bytes(each) for each in quantities))


def named_nodes(pod: Json) -> set[str]:
    """The nodes that its affinity requires or prefers by their names."""
    affinity = ((pod.get("spec") or {}).get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or []
    wished = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    fields = (
        field for term in (*terms, *(each["preference"] for each in wished)) for field in term.get("matchFields") or ()
    )
    return {node for field in fields for node in field["values"]}


def cpu_of(pod: Json, container: str = "", *, reported: bool = False) -> Cpu:
    """Of a pod's container, or its first one. `reported`: in effect, where its kubelet says so."""
    spec = _named(pod["spec"]["containers"], container)
    if reported:
        statuses = _named((pod.get("status") or {}).get("containerStatuses") or [{}], container)
        spec = statuses if "resources" in statuses else spec
    return _cpu(spec.get("resources") or {})


def _named(containers: list[Json], name: str) -> Json:
    return next((each for each in containers if each.get("name") == name), containers[0])


def _cpu(resources: Json) -> Cpu:
    limit = (resources.get("limits") or {}).get("cpu")
    request = (resources.get("requests") or {}).get("cpu", limit)
    return Cpu(None if limit is None else cpu_millicores(limit), 0 if request is None else cpu_millicores(request))


def stored_in(growth: Json, written: Write) -> dict[str, Stored]:
    """What a JobGrowth has of its pods, by their uids."""
    status = growth.get("status") or {}
    found = {}
    for pod in status.get("pods") or ():
        original = pod.get("original")
        cpu = original and _cpu(
            {"limits": {"cpu": original.get("cpuLimit")}, "requests": {"cpu": original["cpuRequest"]}}
        )
        memory = original and _memory(original.get("memoryLimit"), original.get("memoryRequest"))
        memory = None if memory == Memory(None, None) else memory
        found[pod.get("uid", "")] = Stored(cpu, memory, pod.get("container", ""), status.get("policy", ""), written)
    return found


def stored(world: World, pod_uid: str) -> Stored | None:
    """What is stored of a pod now."""
    growths = (stored_in(growth, written) for growth, written in world.of("jobgrowths"))
    return next((found[pod_uid] for found in growths if pod_uid in found), None)


def is_live(pod: Json) -> bool:
    """It has not ended."""
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def pods_of(world: World, owner: Json) -> Iterator[Json]:
    """The live pods that an object controls."""
    uid = owner["metadata"]["uid"]
    for pod, _ in world.of("pods", owner["metadata"].get("namespace", "")):
        if is_live(pod) and any(each["uid"] == uid for each in pod["metadata"].get("ownerReferences") or ()):
            yield pod


def suspends(before: Json, after: Json) -> bool:
    """Whether a write to a Job begins a move, or a stop at the target."""
    if not after.get("spec", {}).get("suspend") or (before.get("spec") or {}).get("suspend"):
        return False
    move = move_on(after)
    return move is None or move.step != "unpinning"


def is_managed(world: World, pod: Json, policy: str) -> bool:
    """Its owner opts in, and the policy is there and in a mode that changes pods."""
    found = world.get("trainingpolicies", "", policy)
    label = (pod["metadata"].get("labels") or {}).get(MANAGED_LABEL)
    mode = (found.get("spec") or {}).get("mode")
    return label == "true" and mode in CHANGING and "deletionTimestamp" not in found["metadata"]


def freezes_of(world: World, pod: Json, policy: str, at_seconds: float) -> Iterator[tuple[Json, Write]]:
    """The freezes in force at a moment that cover a pod."""
    names = {"namespace": pod["metadata"].get("namespace"), "node": pod["spec"].get("nodeName"), "policy": policy}
    for freeze, written in world.of("freezes"):
        spec, until = freeze.get("spec") or {}, (freeze.get("spec") or {}).get("until")
        over = until is not None and datetime.fromisoformat(until).timestamp() <= at_seconds
        scope = spec.get("scope", "all")
        if not over and (scope not in names or names[scope] == spec.get("name")):
            yield freeze, written
