"""Steps of a simulated training with an accelerator: how long they take and wait, and the CPU of its loader."""

from __future__ import annotations

import math

import pytest
from support.instances import a_sim_job, a_sim_node, an_instance, pass_to

from slopewise.model import CpuAllocation, Job
from slopewise.simulator.world.accelerators import Accelerator
from slopewise.simulator.world.model import Instance, Physics, SimJob
from slopewise.simulator.world.observer import SimObserver
from slopewise.simulator.world.running import RunningJob
from slopewise.simulator.world.sharing import Demand, Rate, rates
from slopewise.simulator.world.world import World

IDEAL = Physics(contention_ratio=0.0)
EXAMPLE = Accelerator(count=1, step_seconds=0.4, input_cpu_seconds=2.7)
"""The specification's worked example."""

STAIRS = Accelerator(
    count=1, step_seconds=0.25, input_cpu_seconds=1.0, step_speeds=((1.0, 1.0), (3.0, 2.0), (6.0, 4.0), (9.0, 4.0))
)


def given(accelerator: Accelerator, limit: int | None = None, speed: float = 1.0) -> Rate:
    """With this limit, alone on a node."""
    demand = Demand(accelerator.most_cores(), CpuAllocation(limit, 1000), accelerator=accelerator)
    (rate,) = rates([demand], a_sim_node(cpu=24.0, speed=speed), "limits", IDEAL)
    return rate


class TestSteps:
    def test_take_as_long_as_the_slower_of_device_and_input(self) -> None:
        steps = EXAMPLE.steps_per_second(3.0)
        assert 1 / steps == pytest.approx(0.9)
        assert EXAMPLE.wait_ratio(steps) == pytest.approx(0.5 / 0.9)
        assert EXAMPLE.most_cores() == pytest.approx(6.75)
        assert 1 / EXAMPLE.steps_per_second(20.0) == pytest.approx(0.4)
        assert EXAMPLE.wait_ratio(EXAMPLE.steps_per_second(20.0)) == 0.0

    def test_are_no_faster_than_the_loaders_workers_allow(self) -> None:
        few = Accelerator(count=1, step_seconds=0.4, input_cpu_seconds=2.7, max_loader_cores=2.0)
        assert given(few) == Rate(2.0, pytest.approx(2.0))  # type: ignore[arg-type]
        assert given(few).starved_ratio == pytest.approx(1 - 0.4 * 2 / 2.7)
        assert not given(few).short

    @pytest.mark.parametrize(
        ("cores", "speed"), [(0.5, 0.5), (1.0, 1.0), (2.0, 1.5), (4.5, 3.0), (6.0, 4.0), (12.0, 4.0)]
    )
    def test_follow_a_measured_table_straight_between_its_points(self, cores: float, speed: float) -> None:
        assert STAIRS.steps_per_second(cores) == pytest.approx(speed)

    def test_of_a_table_use_no_cores_that_bring_nothing(self) -> None:
        assert STAIRS.most_cores() == 6.0
        assert STAIRS.model_copy(update={"step_seconds": 0.5}).most_cores() == pytest.approx(3.0)
        never = STAIRS.model_copy(update={"step_seconds": 0.1})
        assert never.most_cores() == 6.0
        assert never.wait_ratio(never.steps_per_second(9.0)) == pytest.approx(0.6)


class TestRates:
    def test_of_slower_cores_the_loader_uses_more_and_the_device_is_as_fast(self) -> None:
        rate = given(EXAMPLE, speed=0.5)
        assert (rate.cores, rate.speed) == pytest.approx((13.5, 6.75))

    def test_a_neighbour_gets_what_a_gpu_bound_job_leaves(self) -> None:
        text = Accelerator(count=1, step_seconds=0.5, input_cpu_seconds=0.4)
        demands = [Demand(each.most_cores(), CpuAllocation(None, 4000), accelerator=each) for each in (text, EXAMPLE)]
        alone, beside = rates(demands, a_sim_node(cpu=6.0), "requests", IDEAL)
        assert (alone.cores, beside.cores) == pytest.approx((0.8, 5.2))
        assert (alone.short, beside.short) == (False, True)


def a_gpu_job(name: str, count: int = 1, arrive: float = 0.0, *, limited: bool = False, reports: bool = True) -> SimJob:
    """400 s of steps on its device; with 3 cores they take 900 s."""
    return a_sim_job(
        name,
        2700.0,
        arrive,
        accelerator=Accelerator(count=count, step_seconds=0.4, input_cpu_seconds=2.7),
        parallelism_cores=6.75,
        steps_planned=1000,
        reports=reports,
        allocation=CpuAllocation(3000 if limited else None, 3000),
    )


def two_nodes(*jobs: SimJob) -> Instance:
    return an_instance(jobs, [a_sim_node(name, cpu=24.0, accelerators=2) for name in ("n1", "n2")], duration=1e5)


def after(instance: Instance, seconds: float) -> World:
    """The world with what the default scheduler does until then."""
    world = World(instance, "limits")
    pass_to(world, seconds)
    return world


def on(world: World, name: str) -> str:
    running: RunningJob = world.by_uid[name]
    return running.node_name


class TestPlacement:
    def test_a_job_waits_for_as_many_free_accelerators_as_it_wants_and_holds_up_none_behind_it(self) -> None:
        jobs = [a_gpu_job("a"), a_gpu_job("b", count=2, arrive=1), a_gpu_job("c", count=2, arrive=2)]
        world = after(two_nodes(*jobs), 9)
        assert {on(world, "a"), on(world, "b")} == {"n1", "n2"}
        assert list(world.waiting) == ["c"]
        (arrival,) = SimObserver(world, oracle=False).observe().snapshot.waiting
        assert arrival.accelerators == 2
        assert sorted(arrival.refused_nodes.values()) == [
            "0 accelerators free, 2 wanted",
            "1 accelerators free, 2 wanted",
        ]
        behind = after(two_nodes(*jobs, a_gpu_job("d", arrive=3)), 9)
        assert (list(behind.waiting), bool(on(behind, "d"))) == (["c"], True)

    def test_and_starts_when_they_are_free(self) -> None:
        jobs = [a_gpu_job("a", count=2), a_gpu_job("b", count=2), a_gpu_job("c", count=2, arrive=2)]
        assert after(two_nodes(*jobs), 399).waiting
        assert not after(two_nodes(*jobs), 401).waiting

    def test_a_job_without_any_needs_none(self) -> None:
        world = after(two_nodes(*(a_gpu_job(name, count=2) for name in "ab"), a_sim_job("c", 1e6)), 9)
        assert not world.waiting


def seen(job: SimJob) -> Job:
    (found,) = SimObserver(after(two_nodes(job), 60.0), oracle=False).observe().snapshot.jobs
    return found


class TestSeen:
    def test_are_its_devices_and_the_waiting_of_its_steps(self) -> None:
        job = seen(a_gpu_job("a", limited=True))
        assert (job.accelerators, job.useful_parallelism_cores) == (1, None)
        assert job.wait_ratio == pytest.approx(5 / 9)
        assert job.gpu_use == pytest.approx(4 / 9)
        assert job.container_health is not None
        assert job.usage is not None
        assert job.usage.cpu_seconds_total is not None
        elapsed = job.usage.cpu_seconds_total / 3
        assert job.waited_seconds_total == pytest.approx(elapsed * 5 / 9)
        assert job.container_health.cpu_waiting_seconds_total == pytest.approx(elapsed)
        assert job.steps_total is not None
        assert job.steps_total == math.floor(job.usage.cpu_seconds_total / 2.7)

    def test_is_its_devices_use_alone_without_an_exporter(self) -> None:
        job = seen(a_gpu_job("a", limited=True, reports=False))
        assert (job.wait_ratio, job.waited_seconds_total) == (None, None)
        assert job.gpu_use == pytest.approx(4 / 9)

    def test_is_nothing_of_a_job_without_a_device(self) -> None:
        job = seen(a_sim_job("a", 1e4, parallelism_cores=2.0))
        assert (job.accelerators, job.wait_ratio, job.waited_seconds_total, job.gpu_use) == (0, None, None, None)
        assert job.useful_parallelism_cores == 2.0
