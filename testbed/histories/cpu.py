"""Rules of CPU: cgroups, bounds, originals, leases, and what passes report. Each is a small model of its own.

A rule gets each event with the world as it was before it, and yields what contradicts it.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import TypeGuard

from slopewise.adapters.kube.cache.records import FINALIZER
from slopewise.adapters.kube.cache.wire import cpu_millicores
from testbed.histories.events import Contradiction, Decided, Event, Json, Key, Sample, World, Write, shown
from testbed.histories.objects import Cpu, cpu_of, is_live, is_managed, stored, stored_in

Found = Iterator[Contradiction]

KUBELET_SECONDS = 10.0
"""From an accepted resize to the cgroup: a kubelet syncs a pod within a second, and a loaded one within ten."""
READ_BACK_MILLICORES = 10
"""A kubelet rounds quotas up to 1 ms of a period of 100 ms."""
READ_SECONDS = 1.0
"""Between a list of the freezes and the write that follows it; between a reading of the lease and a write."""
RESTORE_SECONDS = 60.0
"""A policy that is deleted waits so long for its pods; then they are orphans, which the leader retries."""
PASS_SECONDS = 30.0
"""From what a pass has observed to the last of its writes, of which each may wait for an answer."""


def is_resize(event: Event) -> TypeGuard[Write]:
    """A resize by Slopewise that was accepted."""
    return isinstance(event, Write) and event.ours and event.accepted and event.kind == "pods/resize"


class CgroupsFollow:
    """A pod's cgroup has the CPU of the last accepted write, or its original; not while its resize waits."""

    def __init__(self) -> None:
        self._had: dict[str, deque[tuple[Cpu, Write]]] = defaultdict(lambda: deque(maxlen=50))

    def check(self, event: Event, world: World) -> Found:
        """The cgroup may lag behind by `KUBELET_SECONDS`."""
        if isinstance(event, Write):
            self._remember(event)
        elif isinstance(event, Sample) and (had := self._had.get(event.pod_uid)):
            before = [cpu for cpu, write in had if write.until_seconds < event.at_seconds - KUBELET_SECONDS]
            allowed = [*before[-1:], *(cpu for cpu, _ in list(had)[len(before) :])]
            follows = any(_is_read_back(event.limit_millicores, cpu.limit) for cpu in allowed)
            if not follows and not _waits(world, event):
                yield Contradiction("cpu", f"the cgroup should have {had[-1][0]}", (had[-1][1], event))

    def _remember(self, write: Write) -> None:
        if not write.accepted or write.key[0] != "pods" or "spec" not in write.after:
            return
        pod = write.after
        if len(pod["spec"]["containers"]) > 1:  # a sample is of the whole pod
            return
        had, cpu = self._had[pod["metadata"]["uid"]], cpu_of(pod)
        if not had or had[-1][0] != cpu:
            had.append((cpu, write))


def _is_read_back(limit: int | None, wanted: int | None) -> bool:
    if limit is None or wanted is None:
        return limit == wanted
    return abs(limit - wanted) <= max(READ_BACK_MILLICORES, wanted * 0.02)


def _waits(world: World, sample: Sample) -> bool:
    pod = next((pod for pod, _ in world.of("pods") if pod["metadata"]["uid"] == sample.pod_uid), {})
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] in ("PodResizePending", "PodResizeInProgress") for each in conditions)


class WithinBounds:
    """A raise ends below the ceiling of its policy, the quotas of its namespace and the CPU of its node.

    A limit is lowered to the floor of its policy at least. With `control: requests` the floor is a weight, which
    depends on the other jobs of the node.
    """

    def check(self, event: Event, world: World) -> Found:
        """A restore is bounded by nothing: an original may be above the ceiling, or below the floor."""
        if not is_resize(event):
            return
        known = stored(world, event.after["metadata"]["uid"])
        container = known.container if known else ""
        had, has = cpu_of(world.get(*event.key) or event.after, container), cpu_of(event.after, container)
        raised = has.request > had.request or (has.limit or 0) > (had.limit or 0)
        if known and known.original and has.is_nearer_to(known.original, had):
            return
        if has.limit is not None and has.limit < (had.limit or math.inf):
            yield from self._floor(event, world, has.limit, known.policy if known else "")
        if not raised:
            return
        for what, most, written in self._bounds(event, world, known.policy if known else ""):
            if max(has.limit or 0, has.request) > most:
                yield Contradiction("bounds", f"{has} is above {what}, {most}m", (written, event))
        yield from self._quotas(event, world)

    def _floor(self, write: Write, world: World, limit: int, policy: str) -> Found:
        for found, written in world.of("trainingpolicies"):
            resources = found["spec"].get("resources") or {}
            least = (resources.get("cpu") or {}).get("min")
            floors = found["metadata"]["name"] == policy and resources.get("control") == "limits" and least is not None
            if floors and limit < cpu_millicores(least):
                yield Contradiction("bounds", f"{limit}m is below the floor of {policy}, {least}", (written, write))

    def _bounds(self, write: Write, world: World, policy: str) -> Iterator[tuple[str, int, Write]]:
        for found, written in world.of("trainingpolicies"):
            most = ((found["spec"].get("resources") or {}).get("cpu") or {}).get("max")
            if found["metadata"]["name"] == policy and most is not None:
                yield f"the ceiling of {policy}", cpu_millicores(most), written
        for found, written in world.of("nodes"):
            most = ((found.get("status") or {}).get("allocatable") or {}).get("cpu")
            if found["metadata"]["name"] == write.after["spec"].get("nodeName") and most is not None:
                yield "its node", cpu_millicores(most), written

    def _quotas(self, write: Write, world: World) -> Found:
        others = [pod for pod, _ in world.of("pods", write.namespace) if pod["metadata"]["name"] != write.name]
        total = [
            cpu_of(pod, each["name"])
            for pod in (*filter(is_live, others), write.after)
            for each in pod["spec"]["containers"]
        ]
        sums = {"limits.cpu": sum(cpu.limit or 0 for cpu in total), "requests.cpu": sum(cpu.request for cpu in total)}
        for quota, written in world.of("resourcequotas", write.namespace):
            for name, has in sums.items():
                most = (quota["spec"].get("hard") or {}).get(name)
                if most is not None and has > cpu_millicores(most):
                    yield Contradiction("bounds", f"{name} of the namespace is {has}m of {most}", (written, write))


class ManagedAlone:
    """A pod's CPU is changed while its owner opts in and a policy's mode changes pods; otherwise it is restored."""

    def __init__(self) -> None:
        self._policies: set[str] = set()
        """All that there were: a policy of a file is no object, and has no mode here."""
        self._managed_until: dict[str, tuple[float, Write]] = {}
        """Of each pod that is managed, by its uid: the last moment, and the write that ended it."""

    def check(self, event: Event, world: World) -> Found:
        """A pass carries out what it has decided, for `PASS_SECONDS` at most."""
        if not isinstance(event, Write) or not event.accepted:
            return
        if event.key[0] == "trainingpolicies":
            self._policies.add(event.name)
        for pod, _ in world.of("pods"):
            if self._is_managed(world, pod):
                self._managed_until[pod["metadata"]["uid"]] = event.until_seconds, event
        if is_resize(event) and not self._is_managed(world, event.after):
            yield from self._changes(event, world)

    def _is_managed(self, world: World, pod: Json) -> bool:
        return any(is_managed(world, pod, name) for name in self._policies)

    def _changes(self, write: Write, world: World) -> Found:
        uid, before = write.after["metadata"]["uid"], world.get(*write.key)
        known = stored(world, uid)
        if known is None or known.original is None or known.policy not in self._policies:
            return
        had, has = cpu_of(before or write.after, known.container), cpu_of(write.after, known.container)
        until, ended = self._managed_until.get(uid, (-math.inf, write))
        if write.at_seconds > until + PASS_SECONDS and not has.is_nearer_to(known.original, had):
            yield Contradiction("managed", f"{had} becomes {has} of a pod that is not managed", (ended, write))


class OriginalsKept:
    """An original is stored before the first change, is what the pod had, and stays until the pod has it again."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Cpu, Write]] = {}
        """What we wrote last, by the pod's uid."""

    def check(self, event: Event, world: World) -> Found:
        """Of resizes, and of statuses of JobGrowths."""
        if is_resize(event):
            yield from self._before_change(event, world)
        elif isinstance(event, Write) and event.accepted and event.key[0] == "jobgrowths" and event.ours:
            yield from self._kept(event, world)

    def _before_change(self, write: Write, world: World) -> Found:
        uid = write.after["metadata"]["uid"]
        known, before = stored(world, uid), world.get(*write.key)
        container = known.container if known else ""
        if known is None or known.original is None:
            yield Contradiction("original", "its original is not stored when it is changed", (write,))
        elif before and uid not in self._last and known.original != cpu_of(before, container):
            had = cpu_of(before, container)
            yield Contradiction("original", f"{known.original} is stored; it had {had}", (known.written, write))
        self._last[uid] = cpu_of(write.after, container), write

    def _kept(self, write: Write, world: World) -> Found:
        now = stored_in(write.after, write)
        live = {pod["metadata"]["uid"]: pod for pod, _ in world.of("pods") if is_live(pod)}
        for uid, known in stored_in(world.get(*write.key), write).items():
            if known.original is None or uid not in live or uid not in self._last:
                continue
            (wrote, resize), has = self._last[uid], cpu_of(live[uid], known.container)
            new = now[uid].original if uid in now else None
            if new is None and not has.is_restored_to(known.original):
                yield Contradiction("original", f"{known.original} is forgotten; it has {has}", (resize, write))
            elif new not in (None, known.original) and new == wrote:
                yield Contradiction("original", f"{new}, our own value, replaces {known.original}", (resize, write))


class RestoredBeforeLetGo:
    """A policy that is deleted is let go once its pods have their originals in effect, or after a minute."""

    def __init__(self) -> None:
        self._deleted_at: dict[str, float] = {}

    def check(self, event: Event, world: World) -> Found:
        """Of the write that removes our finalizer from a policy that is being deleted."""
        if not isinstance(event, Write) or event.key[0] != "trainingpolicies" or not event.accepted:
            return
        before = world.get(*event.key)
        if "deletionTimestamp" in (event.after.get("metadata") or {}):
            self._deleted_at.setdefault(event.name, event.at_seconds)
        deleted_at = self._deleted_at.get(event.name, event.at_seconds)
        if (
            _holds(before)
            and event.ours
            and not _holds(event.after)
            and event.at_seconds < deleted_at + RESTORE_SECONDS
        ):
            yield from self._unrestored(event, world)

    def _unrestored(self, event: Write, world: World) -> Found:
        for pod, written in world.of("pods"):
            known = stored(world, pod["metadata"]["uid"])
            if known is None or known.policy != event.name or known.original is None or not is_live(pod):
                continue
            if not (has := cpu_of(pod, known.container, reported=True)).is_restored_to(known.original):
                yield Contradiction("restore", f"{event.name} is let go; a pod of it has {has}", (written, event))


def _holds(policy: Json) -> bool:
    return FINALIZER in ((policy.get("metadata") or {}).get("finalizers") or ())


class OneWriter:
    """Only the replica that has the lease writes; what was under way when another took it may still arrive."""

    def __init__(self) -> None:
        self._lease_of: dict[str, Key] = {}
        """Of each replica: the lease that it has asked for."""
        self._holds: dict[Key, Write] = {}
        """The write with which its holder took a lease, or gave it back."""

    def check(self, event: Event, world: World) -> Found:
        """Events for people change nothing, and freezes of alerts are any replica's to store."""
        if not isinstance(event, Write):
            return
        if event.kind == "leases":
            self._note(event)
        elif event.writer in self._lease_of and event.accepted and event.key[0] not in ("events", "freezes"):
            holds = self._holds.get(self._lease_of[event.writer])
            leads = holds is None or (holds.writer == event.writer and holds.after["spec"].get("holderIdentity"))
            if not leads and holds is not None and holds.until_seconds + READ_SECONDS < event.at_seconds:
                yield Contradiction("writer", f"{event.writer} does not lead", (holds, event))

    def _note(self, write: Write) -> None:
        if "delete" in write.verb:
            self._holds.pop(write.key, None)
            return
        self._lease_of[write.writer] = write.key
        if write.accepted and "spec" in write.after:
            holds = self._holds.get(write.key)
            renews = holds is not None and _holder(holds) == _holder(write)
            self._holds[write.key] = holds if holds is not None and renews else write


def _holder(lease: Write) -> tuple[str, str]:
    return lease.writer, lease.after["spec"].get("holderIdentity", "")


class ReportsAreTrue:
    """What a pass reports as applied was accepted by the API server in that pass, or was so before it."""

    def __init__(self) -> None:
        self._resized: dict[str, list[tuple[Cpu, Write]]] = defaultdict(list)

    def check(self, event: Event, world: World) -> Found:
        """A pass takes its snapshot before it writes, and is recorded after: `at_seconds` is of the record's end."""
        if is_resize(event):
            self._resized[event.after["metadata"]["uid"]].append((cpu_of(event.after), event))
        elif isinstance(event, Decided) and event.result == "applied":
            uid = _pod_uid(world, event.job_uid)
            wrote = self._resized[uid] if uid else []
            before = sum(write.until_seconds < event.since_seconds - READ_SECONDS for _, write in wrote)
            wrote = wrote[max(before - 1, 0) :]
            if uid and not any(_is_as_decided(event, cpu) for cpu, _ in wrote):
                has = f"the last write gave it {wrote[-1][0]}" if wrote else "no write did it"
                yield Contradiction("report", f"{shown(event.after_millicores)} is applied: {has}", (event,))


def _is_as_decided(decided: Decided, cpu: Cpu) -> bool:
    """A pod whose memory is Guaranteed gets 1m less or more, so that its class stays."""
    return any(amount is not None and abs(amount - decided.after_millicores) <= 1 for amount in cpu)


def _pod_uid(world: World, job_uid: str) -> str:
    workload, _, slot = job_uid.rpartition(":")
    for growth, _ in world.of("jobgrowths"):
        if growth["spec"]["workload"]["uid"] == workload:
            pods = (growth.get("status") or {}).get("pods") or ()
            return next((pod.get("uid", "") for pod in pods if pod["slot"] == slot), "")
    return ""
