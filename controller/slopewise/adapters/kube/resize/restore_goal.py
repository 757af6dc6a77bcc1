"""What a restore writes to a pod, and what of it can be written without room on its node. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from slopewise.adapters.kube.cache.records import ManagedPod, Resources
from slopewise.adapters.kube.resize import target


@dataclass(frozen=True, slots=True)
class RestoreGoal:
    """What a restore writes; `note` names what of the original cannot be restored."""

    resources: Resources
    note: str = ""

    def lowers_limit(self, managed: ManagedPod) -> bool:
        """Whether a memory limit would go down."""
        has, to = managed.container.memory.limit_bytes, self.resources.memory.limit_bytes
        return has is not None and to is not None and to < has

    def with_limit_of(self, managed: ManagedPod, why: str) -> RestoreGoal:
        """The same without a change of the memory limit, and a note with the reason."""
        memory = self.resources.memory.altered("limit", managed.container.memory.limit_bytes)
        note = f"its raised memory limit stays: {why}"
        return RestoreGoal(Resources(self.resources.cpu, memory), "; ".join(filter(None, (self.note, note))))

    def without_room(self, managed: ManagedPod) -> Resources:
        """The part that needs no room on the node."""
        cpu = target.without_room(managed, self.resources.cpu)
        return Resources(cpu, target.memory_without_room(managed, self.resources.memory))
