"""FlowCon 2.0: FlowCon on every node, and arriving jobs on the node with the fewest claims per core.

Source: reconstruction from the abstract of FlowCon 2.0; the text of its algorithm is not at hand. Each node runs
FlowCon (`flowcon`) unchanged. An arriving job goes to `argmin_w (sum of claims on w) / cores of w`, where a job of the
new or the watching list claims 1 and one of the completing list 1/(beta·n_w), which is the least that FlowCon leaves
it. Ties go to the lowest measured CPU fraction; memory must fit. No running job is moved.

Worked example, beta = 2: two new jobs on two cores claim 2/2 = 1.0 per core; one completing job on one core claims
(1/2)/1 = 0.5, so the arriving job goes there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from slopewise.model import Arrival, ClusterSnapshot, Decisions, MemoryState, Node, Place
from slopewise.policies import Setting, flowcon
from slopewise.policies.shared.placement import place_each

PURPOSE = "the same on several nodes, where arriving jobs are placed too"
ACTIONS = ("resize", "place")
SOFT_LIMITS = True


class Parameters(flowcon.Parameters):
    """FlowCon's own; `beta` also says how little a completing job claims of its node."""


class Policy:
    """FlowCon's limits on each node, and a place for each arriving job."""

    def __init__(self, parameters: Parameters, setting: Setting) -> None:
        self._beta = parameters.beta
        self._limits = flowcon.Policy(parameters, setting)

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """FlowCon's decisions; the lists that they yield say what each node's jobs claim."""
        decisions = self._limits.decide(snapshot, memory)
        return replace(decisions, policy="flowcon2", moves=self._places(snapshot, decisions.memory))

    def _places(self, snapshot: ClusterSnapshot, memory: MemoryState) -> tuple[Place, ...]:
        if not snapshot.waiting:
            return ()
        claims = {
            name: _Claims(len(jobs), sum(memory.jobs[job.uid].decided.job_class == flowcon.COMPLETING for job in jobs))
            for name, jobs in snapshot.jobs_by_node().items()
        }

        def per_core(arrival: Arrival, node: Node) -> float:
            return claims[node.name].total(self._beta) / node.cpu_cores

        def placed(arrival: Arrival, node: Node) -> str:
            found = claims[node.name]
            claims[node.name] = replace(found, jobs=found.jobs + 1)
            total = found.total(self._beta)
            return f"fewest claims per core: {total:.3g} by {found.jobs} jobs on {node.cpu_cores:.3g} cores"

        return place_each(snapshot, memory, per_core, placed)


@dataclass(frozen=True, slots=True)
class _Claims:
    """How many jobs a node has, arrivals placed in this pass among them, and how many of them are completing."""

    jobs: int
    completing: int

    def total(self, beta: float) -> float:
        """What they claim together, in whole nodes."""
        if self.jobs == 0:
            return 0.0
        return self.jobs - self.completing + self.completing / (beta * self.jobs)
