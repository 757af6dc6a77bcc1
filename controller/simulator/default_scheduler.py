"""What places a simulated job that nobody else placed: the cluster's own scheduler, as `fair` knows it.

`engine.py` calls it after every pass, and after every event of a run without a controller.
"""

from __future__ import annotations

from collections.abc import Sequence

from controller.simulator.randomness import Stream, generator
from controller.simulator.running import RunningJob
from controller.simulator.world import World


class DefaultScheduler:
    """Places waiting jobs of a `World` where the fewest run; ties fall by a seed."""

    def __init__(self, world: World, tie_break_seed: int) -> None:
        self._world = world
        self._seed = tie_break_seed

    def place_waiting(self) -> None:
        """Each waiting job, in the order of arrival, on the node with the fewest jobs whose memory fits.

        A job that fits nowhere now goes on waiting, and holds up none behind it.
        """
        world = self._world
        for running in list(world.waiting.values()):
            fitting = [number for number in range(len(world.nodes)) if world.fits(running, number)]
            if fitting:
                fewest = min(world.jobs_on(number) for number in fitting)
                world.place(running, self._one_of([n for n in fitting if world.jobs_on(n) == fewest], running))
        world.settle()

    def _one_of(self, tied: Sequence[int], running: RunningJob) -> int:
        """The job's favourite of these nodes, in an order drawn for this job alone, whatever was placed before it."""
        if len(tied) == 1:
            return tied[0]
        order = generator(self._seed, running.index, Stream.TIES).permutation(len(self._world.nodes))
        return min(tied, key=lambda number: int(order[number]))
