"""A simulated job that is stopped at its target leaves its CPU to the others; what it had not reached it never does."""

from __future__ import annotations

from statistics import fmean

from support.instances import a_policy_run, a_sim_job, a_sim_node, an_instance

from slopewise.model import ClusterSnapshot, Decisions, JobMemory, MemoryState, TargetHits
from slopewise.simulator.engine import Controller, drive, pass_settings
from slopewise.simulator.results.outcomes import run_outcome
from slopewise.simulator.world.default_scheduler import DefaultScheduler
from slopewise.simulator.world.model import JobOutcome
from slopewise.simulator.world.world import World

SEEDS = (1, 2)
TARGET = 0.3


class Counts:
    """Changes no CPU, and counts a target as reached with the first evaluation that reaches it."""

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        counted = {
            job.uid: known.altered(objectives=known.objectives.altered(targets=TargetHits(0, 2)))
            if job.evaluation is not None and job.evaluation.reaches(TARGET)
            else known
            for job in snapshot.jobs
            if (known := memory.jobs.get(job.uid, JobMemory())) is not None
        }
        state = MemoryState({**memory.jobs, **counted}, memory.nodes)
        return Decisions("counts", (), {job.uid: "counts" for job in snapshot.jobs}, state)


def jobs(seed: int, *, stops: bool) -> dict[str, JobOutcome]:
    """Three jobs on one core, of which one asks for a stop at its target."""
    asking = a_sim_job("asks", 200.0, noise=0.01, target_level=TARGET, stops_at_target=stops)
    others = [a_sim_job(f"other-{n}", 200.0, noise=0.01) for n in range(2)]
    world = World(an_instance([asking, *others], [a_sim_node("n1")], seed=seed), "limits", trace=True)
    controller = Controller(world, Counts(), pass_settings(a_policy_run("fair", control="limits")))
    drive(world, DefaultScheduler(world, seed), controller)
    return {job.name: job for job in run_outcome(world, policy="counts").jobs}


def test_the_others_end_sooner_over_all_seeds_and_the_stopped_job_is_at_its_target() -> None:
    gains = []
    for seed in SEEDS:
        stopped, kept = jobs(seed, stops=True), jobs(seed, stops=False)
        assert (stopped["asks"].stopped, kept["asks"].stopped) == (True, False)
        assert stopped["asks"].target_seconds is not None
        ended = stopped["asks"].finished_seconds
        assert ended is not None
        assert stopped["asks"].target_seconds <= ended < (kept["asks"].finished_seconds or 0.0)
        assert (stopped["asks"].at_99_seconds, kept["asks"].at_99_seconds is None) == (None, False)
        assert stopped["asks"].served_cpu_seconds < kept["asks"].served_cpu_seconds
        gains += [
            (kept[name].finished_seconds or 0.0) / (stopped[name].finished_seconds or 1.0)
            for name in ("other-0", "other-1")
        ]
    assert min(gains) > 1.0
    assert fmean(gains) > 1.2
