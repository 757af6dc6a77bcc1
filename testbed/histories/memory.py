"""The rule of memory: its original is stored before it is changed, bounds what it becomes, and is not forgotten."""

from __future__ import annotations

from collections import defaultdict

from testbed.histories.cpu import PASS_SECONDS, Found, is_resize
from testbed.histories.events import Contradiction, Event, World, Write
from testbed.histories.objects import Memory, Stored, is_live, memory_of, stored, stored_in

QOS_BYTES = 1
"""A pod that would become Guaranteed gets a request of one byte less."""


class MemoryKept:
    """Requests are lowered and limits are raised, as the policy says, and both go back to the original."""

    def __init__(self) -> None:
        self._modes: dict[str, list[tuple[float, str]]] = defaultdict(list)
        """`spec.resources.memory` of each policy, and since when."""

    def check(self, event: Event, world: World) -> Found:
        """Of resizes, and of statuses of JobGrowths."""
        if not isinstance(event, Write) or not event.accepted:
            return
        if event.key[0] == "trainingpolicies" and "spec" in event.after:
            mode = (event.after["spec"].get("resources") or {}).get("memory") or "Ignore"
            self._modes[event.name].append((event.until_seconds, mode))
        elif event.key[0] == "jobgrowths" and event.ours:
            yield from self._kept(event, world)
        elif is_resize(event):
            yield from self._resized(event, world)

    def _resized(self, write: Write, world: World) -> Found:
        known = stored(world, write.after["metadata"]["uid"])
        container = known.container if known else ""
        had, has = (memory_of(pod, container) for pod in (world.get(*write.key) or write.after, write.after))
        if had == has:
            return
        if known is None or known.memory is None:
            yield Contradiction("original", f"{had} is not stored when it is changed", (write,))
        elif (has.limit or 0) < (known.memory.limit or 0):
            yield Contradiction("memory", f"{has} is below its original, {known.memory}", (known.written, write))
        elif (has.request or 0) > (known.memory.request or 0):
            yield Contradiction("memory", f"{has} is above its original, {known.memory}", (known.written, write))
        elif not has.is_nearer_to(known.memory, had):
            yield from self._decided(write, known, had, has)

    def _decided(self, write: Write, known: Stored, had: Memory, has: Memory) -> Found:
        """A pass carries out what it has decided, for `PASS_SECONDS` at most."""
        modes = self._modes.get(known.policy, [])
        before = [mode for since, mode in modes if since < write.at_seconds - PASS_SECONDS]
        allowed = {*before[-1:], *(mode for _, mode in modes[len(before) :])}
        needed = {"Limits"} if has.limit != had.limit else {"Requests", "Limits"}
        if modes and not allowed & needed:
            yield Contradiction("memory", f"{had} becomes {has} under {', '.join(sorted(allowed))}", (write,))

    def _kept(self, write: Write, world: World) -> Found:
        """A limit that was raised may stay: the kubelet, or what the job uses, may not let it go down."""
        now = stored_in(write.after, write)
        for uid, known in stored_in(world.get(*write.key), write).items():
            pod = next((pod for pod, _ in world.of("pods") if pod["metadata"]["uid"] == uid and is_live(pod)), None)
            if pod is None or known.memory is None or (uid in now and now[uid].memory is not None):
                continue
            has = memory_of(pod, known.container)
            if (known.memory.request or 0) - (has.request or 0) > QOS_BYTES:
                yield Contradiction("original", f"{known.memory} is forgotten; it has {has}", (known.written, write))
