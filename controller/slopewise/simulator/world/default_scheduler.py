"""Places simulated jobs that the policy did not place, as the cluster's default scheduler does.

`engine.py` calls it after every pass, and after every event of a run without a controller. It goes by one of these
rules:

- `fewest-jobs`: what Kubernetes' scheduler does with pods and nodes that are alike, because it adds up requests.
- `least-used`: the scheduler that SpeCon is compared with, "purely based on the current resource usage" (thesis 6.2.3).
  A node with one busy job is as full as one with five, so that jobs crowd by chance where others leave soon.
- `fifo`: the queue of a batch system. A job starts once some node leaves it all the cores that it can use, and nothing
  starts before the job that has waited longest. Of such nodes it gets the fullest.
"""

from __future__ import annotations

from collections.abc import Sequence

from slopewise.simulator.world.model import SchedulerRule
from slopewise.simulator.world.randomness import Stream, generator
from slopewise.simulator.world.running import RunningJob
from slopewise.simulator.world.world import World

_USED_DIGITS = 9
"""Used CPU is compared to a billionth of a node: three thirds of a core add up to less than one core."""


class DefaultScheduler:
    """Places waiting jobs of a `World` on the node of least load by its rule; ties fall by a seed."""

    def __init__(self, world: World, tie_break_seed: int, rule: SchedulerRule = "fewest-jobs") -> None:
        self._world = world
        self._seed = tie_break_seed
        self._queues = rule == "fifo"
        self._load = {"fewest-jobs": world.jobs_on, "least-used": self._used_ratio, "fifo": self._free_cores}[rule]

    def place_waiting(self) -> None:
        """Each waiting job, in the order of arrival, on the node of least load whose memory fits.

        A job that fits nowhere now goes on waiting, and holds up none behind it unless by the rule `fifo`.
        """
        world = self._world
        for running in list(world.waiting.values()):
            fitting = [number for number in range(len(world.nodes)) if self._fits(running, number)]
            if not fitting and self._queues:
                break
            if fitting:
                loads = {number: self._load(number) for number in fitting}
                least = min(loads.values())
                world.place(running, self._one_of([n for n in fitting if loads[n] == least], running))
        world.settle()

    def _fits(self, running: RunningJob, number: int) -> bool:
        """Its memory fits; by the rule `fifo` all the cores that it can use are free as well."""
        if not self._queues:
            return self._world.fits(running, number)
        wanted = min(running.job.parallelism_cores, self._world.nodes[number].cpu_cores)
        return self._world.fits(running, number) and wanted <= self._free_cores(number)

    def _free_cores(self, number: int) -> float:
        """The cores of a node that none of its jobs can use."""
        return round(self._world.nodes[number].cpu_cores - self._world.useful_cores(number), _USED_DIGITS)

    def _used_ratio(self, number: int) -> float:
        """The part of a node's CPU that is used at this moment, by jobs that were placed a moment ago as well."""
        self._world.settle()
        return round(self._world.cpu_used_ratio(number), _USED_DIGITS)

    def _one_of(self, tied: Sequence[int], running: RunningJob) -> int:
        """The job's favourite of these nodes, in an order drawn for this job alone, whatever was placed before it."""
        if len(tied) == 1:
            return tied[0]
        order = generator(self._seed, running.index, Stream.TIES).permutation(len(self._world.nodes))
        return min(tied, key=lambda number: int(order[number]))
