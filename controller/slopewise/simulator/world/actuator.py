"""The Actuator of the simulated world, with the refusals of a real node.

A resize is written at once, as an API shows it, and takes effect a moment later. A job that is gone is an
`ActuationError`, as it is on a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping

from slopewise.errors import ActuationError
from slopewise.model import (
    CpuAllocation,
    Decision,
    MemoryAllocation,
    Migrate,
    Move,
    Outcome,
    Place,
    Resize,
    ResizeMemory,
    Restored,
    Stop,
)
from slopewise.simulator.world.running import RunningJob
from slopewise.simulator.world.world import World

REBALANCE = "rebalance"
"""How the reason of a migration begins that evens out loads (SpeCon's Algorithm 5)."""


class SimActuator:
    """Writes limits and requests, places and migrates jobs of a `World`, and counts what it did."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.resizes_total = 0
        self.migrations_total = 0

    def carry_out(self, decision: Decision) -> Outcome[Decision]:
        """Applied; deferred when a node's requests have no room for a raise; infeasible above the node."""
        match decision:
            case Resize():
                return self._resize(decision)
            case ResizeMemory():
                return Outcome(decision, "infeasible", "a simulated job uses the memory that it requests")
            case Place() | Migrate():
                return self._move(decision)
            case Stop():
                self._world.stop(_there(self._world.present, decision.job_uid))
                return Outcome(decision, "applied", decision.reason)

    def restore(self, job_uid: str, original: CpuAllocation, memory: MemoryAllocation | None = None) -> Restored:
        """Give a job back what it had; one that is gone needs nothing."""
        running = self._world.present.get(job_uid)
        if running is None:
            return Restored("gone", f"{job_uid} is gone")
        self._world.write(running, original)
        return Restored("applied")

    def _resize(self, resize: Resize) -> Outcome[Resize]:
        running = _there(self._world.present, resize.job_uid)
        if running.node is None:
            raise ActuationError(f"{resize.job_uid} is gone")
        if resize.control == "limits":
            return self._set_limit(resize, running, running.node)
        return self._set_request(resize, running, running.node)

    def _move(self, move: Move) -> Outcome[Move]:
        number = self._world.node_number(move.node)
        if number is None:
            return Outcome(move, "infeasible", f"there is no node {move.node}")
        running = _there(self._world.waiting if isinstance(move, Place) else self._world.present, move.job_uid)
        if not self._world.fits(running, number):
            return Outcome(move, "infeasible", f"{move.node} has not the memory")
        if isinstance(move, Place):
            self._world.place(running, number)
        else:
            self._world.migrate(running, number, "rebalanced" if move.reason.startswith(REBALANCE) else "migrated")
            self.migrations_total += 1
        return Outcome(move, "applied")

    def _set_limit(self, resize: Resize, running: RunningJob, number: int) -> Outcome[Resize]:
        whole_node = round(self._world.nodes[number].cpu_cores * 1000)
        if resize.to_millicores > whole_node:
            return Outcome(resize, "infeasible", f"{resize.node} has {whole_node}m")
        return self._applied(
            resize, running, CpuAllocation(resize.to_millicores, running.allocation.request_millicores)
        )

    def _set_request(self, resize: Resize, running: RunningJob, number: int) -> Outcome[Resize]:
        bound = self._world.nodes[number].requests_max_millicores
        more = resize.to_millicores - running.allocation.request_millicores
        if bound is not None and more > 0 and self._world.requests_millicores(number) + more > bound:
            return Outcome(resize, "deferred", f"requests on {resize.node} would be more than {bound}m")
        allocation = CpuAllocation(running.allocation.limit_millicores, resize.to_millicores)
        return self._applied(resize, running, allocation)

    def _applied(self, resize: Resize, running: RunningJob, allocation: CpuAllocation) -> Outcome[Resize]:
        self._world.write(running, allocation)
        self.resizes_total += 1
        return Outcome(resize, "applied")


def _there(jobs: Mapping[str, RunningJob], uid: str) -> RunningJob:
    """One of these jobs; ActuationError when it is none of them any more."""
    if (running := jobs.get(uid)) is None:
        raise ActuationError(f"{uid} is gone")
    return running
