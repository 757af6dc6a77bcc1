"""The simulated world alone: what happens by itself, and what it does when it is asked to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.instances import Diverging, Straight, a_served_model, a_sim_job, a_sim_node, a_world, an_instance, pass_to

from slopewise.errors import ActuationError, SlopewiseError
from slopewise.model import CpuAllocation, CpuControl, JobState, Migrate, Place, Resize
from slopewise.simulator.engine import run_unmanaged
from slopewise.simulator.results.outcomes import run_outcome
from slopewise.simulator.world.accelerators import Accelerator
from slopewise.simulator.world.actuator import SimActuator
from slopewise.simulator.world.model import Instance, RunOutcome, SchedulerRule
from slopewise.simulator.world.observer import EPOCH_SECONDS, SimObserver
from slopewise.simulator.world.world import World

THREE_DEVICES = Accelerator(count=3, step_seconds=0.4, input_cpu_seconds=2.0)


def placed(instance: Instance, rule: SchedulerRule, seed: int) -> list[str]:
    """The node on which each job started, in the order of arrival."""
    outcome = run_unmanaged(replace(instance, default_scheduler=rule), seed)
    return [job.stays[0].node for job in outcome.jobs]


def finish(world: World) -> RunOutcome:
    pass_to(world, 1e5)
    world.close()
    return run_outcome(world, policy="none")


def a_resize(uid: str, to: int, control: CpuControl = "limits", now: int = 1000) -> Resize:
    return Resize(uid, "n1", control, now, to, "because")


class TestTime:
    def test_jobs_share_the_node_and_end_in_turn(self) -> None:
        outcome = finish(a_world(an_instance([a_sim_job("a", 100), a_sim_job("b", 50)])))
        assert [job.finished_seconds for job in outcome.jobs] == pytest.approx([150, 100])
        assert outcome.overlap_seconds == {1: pytest.approx(50), 2: pytest.approx(100)}
        assert outcome.cpu_utilisation_ratio == pytest.approx(1.0)

    def test_milestones_are_reported_at_their_exact_time(self) -> None:
        job = a_sim_job("a", 100, curve=Straight(), target_level=0.25, deliverable_level=0.5)
        (reported,) = finish(a_world(an_instance([job, a_sim_job("b", 100)]))).jobs[:1]
        assert (reported.at_90_seconds, reported.at_99_seconds) == pytest.approx((180, 198))
        assert (reported.deliverable_seconds, reported.target_seconds) == pytest.approx((100, 150))

    def test_a_target_that_the_curve_never_reaches_is_never_reported(self) -> None:
        (reported,) = finish(a_world(an_instance([a_sim_job("a", 100, curve=Diverging(0.5), target_level=-1.0)]))).jobs
        assert (reported.at_90_seconds, reported.target_seconds) == (None, None)
        assert reported.finished_seconds == pytest.approx(100)

    def test_a_run_of_a_fixed_duration_ends_then_whatever_still_runs(self) -> None:
        outcome = finish(a_world(an_instance([a_sim_job("a", 100), a_sim_job("late", 1, 60)], duration=50)))
        assert outcome.ended_seconds == 50
        assert [job.finished_seconds for job in outcome.jobs] == [None, None]
        assert outcome.jobs[0].served_cpu_seconds == pytest.approx(50)
        assert outcome.jobs[0].stays[-1].to_seconds == 50
        assert outcome.jobs[1].stays == ()

    def test_many_alike_jobs_that_end_together_do_end(self) -> None:
        outcome = finish(a_world(an_instance([a_sim_job(f"j{i}", 10 / 3) for i in range(7)])))
        assert [job.finished_seconds for job in outcome.jobs] == pytest.approx([70 / 3] * 7)

    @pytest.mark.parametrize(("work", "cores", "arrive"), [(1.0, 16.0, 1e7 / 3), (0.05, 16.0, 1e6 / 3)])
    def test_a_short_job_ends_however_late_it_comes(self, work: float, cores: float, arrive: float) -> None:
        """Seconds have a grain there: one grain of 16 cores is more work than counts as rounding."""
        jobs = [
            a_sim_job(f"j{i}", work * (1 + i / 7), arrive + i * work / 9, parallelism_cores=cores) for i in range(5)
        ]
        outcome = run_unmanaged(an_instance(jobs, [a_sim_node(cpu=cores, speed=1.3)]), 1)
        work_seconds = sum(job.work_cpu_seconds for job in jobs) / cores / 1.3
        assert outcome.ended_seconds == pytest.approx(arrive + work_seconds, abs=5 * work)
        assert all(job.finished_seconds is not None for job in outcome.jobs)


class TestNodes:
    def test_the_default_scheduler_takes_the_node_with_the_fewest_jobs(self) -> None:
        jobs = [a_sim_job(f"j{i}", 100, i) for i in range(4)]
        outcome = finish(a_world(an_instance(jobs, [a_sim_node("n1"), a_sim_node("n2")])))
        first, second, third, fourth = (job.stays[0].node for job in outcome.jobs)
        assert first != second
        assert third != fourth

    def test_the_default_scheduler_by_least_used_cpu_takes_the_idle_node_and_then_draws_lots(self) -> None:
        """n1 to n3 take a job each; all are used up then, and the fourth may join any of them."""
        jobs = [a_sim_job(f"j{i}", 100) for i in range(4)]
        instance = an_instance(jobs, [a_sim_node(f"n{i}") for i in range(3)])
        ran = [placed(instance, "least-used", seed) for seed in range(6)]
        assert all(set(nodes[:3]) == {"n0", "n1", "n2"} for nodes in ran)
        assert len({nodes.index(nodes[3]) for nodes in ran}) > 1

    def test_a_job_that_fits_nowhere_waits_until_it_does_and_holds_up_no_other(self) -> None:
        gib = 2.0**30
        jobs = [
            a_sim_job("big", 100, 0, memory_bytes=20 * gib),
            a_sim_job("waits", 10, 1, memory_bytes=10 * gib),
            a_sim_job("small", 10, 2, memory_bytes=2 * gib),
        ]
        outcome = finish(a_world(an_instance(jobs)))
        started = {job.name: job.stays[0].from_seconds for job in outcome.jobs}
        assert started == {"big": 0, "small": 2, "waits": pytest.approx(110)}
        assert outcome.jobs[1].arrived_seconds == 1

    def test_memory_that_was_given_back_is_all_there_again(self) -> None:
        """0.1 and 5.3 GiB are no whole bytes: taken and given back one by one, 4 millionths of a byte were lost."""
        gib = 2.0**30
        jobs = [a_sim_job(f"j{i}", 1.0 + i, memory_bytes=size * gib) for i, size in enumerate((0.1, 5.3, 5.3))]
        whole = a_sim_job("whole", 10.0, 1.0, memory_bytes=24 * gib)
        outcome = finish(a_world(an_instance([*jobs, whole])))
        assert outcome.jobs[-1].stays[0].from_seconds == pytest.approx(6.0)


class TestResizes:
    def test_one_is_read_back_at_once_and_takes_effect_a_moment_later(self) -> None:
        world = a_world(an_instance([a_sim_job("a", 100)]), "limits")
        pass_to(world, 10.0)
        assert SimActuator(world).carry_out(a_resize("a", 1001)).result == "infeasible", "above the node"
        assert SimActuator(world).carry_out(a_resize("a", 500)).result == "applied"
        assert world.by_uid["a"].allocation == CpuAllocation(500, 1000)
        pass_to(world, 20.2)
        world.bring_up_to_date(world.by_uid["a"])
        assert world.by_uid["a"].now.cpu_seconds == pytest.approx(10.2 + 5.0)
        assert world.by_uid["a"].now.work == pytest.approx(10.2 + 4.7)
        assert world.by_uid["a"].allocated.cpu_seconds == pytest.approx(10.2 + 5.0)
        SimActuator(world).restore("a", CpuAllocation(None, 1000))
        pass_to(world, 30.0)
        assert world.by_uid["a"].rate.cores == 1.0

    def test_a_raise_that_the_nodes_requests_have_no_room_for_is_deferred(self) -> None:
        node = a_sim_node(requests_max_millicores=2500)
        world = a_world(an_instance([a_sim_job("a"), a_sim_job("b")], [node]))
        actuator = SimActuator(world)
        assert actuator.carry_out(a_resize("a", 1501, "requests")).result == "deferred"
        assert actuator.carry_out(a_resize("a", 500, "requests")).result == "applied"
        assert actuator.carry_out(a_resize("b", 2000, "requests")).result == "applied"
        assert actuator.resizes_total == 2

    def test_a_job_that_is_gone_is_an_error_to_resize_and_none_to_restore(self) -> None:
        world = a_world(an_instance([a_sim_job("a", 1), a_sim_job("b")]))
        pass_to(world, 50.0)
        actuator = SimActuator(world)
        with pytest.raises(ActuationError, match="a is gone"):
            actuator.carry_out(a_resize("a", 500))
        actuator.restore("a", CpuAllocation(None, 1000))
        assert "a" not in world.present

    def test_one_that_was_under_way_when_its_job_moved_has_no_effect(self) -> None:
        world = a_world(an_instance([a_sim_job("a")], [a_sim_node("n1"), a_sim_node("n2")]), "limits")
        actuator, here = SimActuator(world), world.by_uid["a"].node_name
        actuator.carry_out(Resize("a", here, "limits", 1000, 100, "because"))
        actuator.carry_out(Migrate("a", here, "n2" if here == "n1" else "n1", "because"))
        pass_to(world, 10.0)
        assert world.by_uid["a"].rate.cores == 1.0
        assert world.by_uid["a"].allocation == CpuAllocation(None, 1000)


class TestMoves:
    def two_nodes(self, **more: Any) -> tuple[World, SimActuator, str, str]:
        world = a_world(an_instance([a_sim_job("a", 100, **more)], [a_sim_node("n1"), a_sim_node("n2")]))
        here = world.by_uid["a"].node_name
        return world, SimActuator(world), here, "n2" if here == "n1" else "n1"

    def test_a_migrated_job_is_on_its_target_at_once_and_works_again_after_its_pause(self) -> None:
        world, actuator, here, there = self.two_nodes(checkpoint_seconds=3.0, restart_seconds=4.0)
        pass_to(world, 40.0)
        assert actuator.carry_out(Migrate("a", here, there, "because")).result == "applied"
        pass_to(world, 46.0)
        seen = SimObserver(world, oracle=False).observe().snapshot.jobs[0]
        assert (seen.node, seen.state) == (there, JobState.STARTING)
        assert seen.process_started_at_seconds == EPOCH_SECONDS + 40.0
        assert world.by_uid["a"].rate.cores == 0.0
        (reported,) = finish(world).jobs
        assert reported.finished_seconds == pytest.approx(107.0)
        assert reported.served_cpu_seconds == pytest.approx(100.0)
        assert [(stay.node, stay.from_seconds, stay.to_seconds, stay.came) for stay in reported.stays] == [
            (here, 0.0, 40.0, "placed"),
            (there, 40.0, pytest.approx(107.0), "migrated"),
        ]

    def test_a_job_moved_again_while_it_is_paused_starts_its_pause_again(self) -> None:
        world, actuator, here, there = self.two_nodes()
        actuator.carry_out(Migrate("a", here, there, "because"))
        pass_to(world, 3.0)
        actuator.carry_out(Migrate("a", there, here, "rebalance: it is idle"))
        outcome = finish(world)
        assert outcome.jobs[0].finished_seconds == pytest.approx(108.0)
        assert outcome.jobs[0].stays[-1].came == "rebalanced", "a move that evens out loads"
        assert (outcome.load_imbalance_ratio, outcome.cpu_utilisation_ratio) == pytest.approx((2.0, 50 / 108))

    def test_a_move_without_memory_or_without_a_node_is_infeasible(self) -> None:
        full = 24 * 2.0**30
        jobs = [a_sim_job("a", memory_bytes=full), a_sim_job("b", memory_bytes=full)]
        world = a_world(an_instance(jobs, [a_sim_node("n1"), a_sim_node("n2")]))
        actuator = SimActuator(world)
        here, there = world.by_uid["a"].node_name, world.by_uid["b"].node_name
        assert actuator.carry_out(Migrate("a", here, there, "because")).result == "infeasible"
        assert actuator.carry_out(Migrate("a", here, "n9", "because")).result == "infeasible"
        with pytest.raises(ActuationError, match="c is gone"):
            actuator.carry_out(Place("c", here, "because"))
        assert actuator.migrations_total == 0

    def test_a_policy_may_place_what_waits(self) -> None:
        world = World(an_instance([a_sim_job("a")], [a_sim_node("n1"), a_sim_node("n2")]), "requests")
        world.pass_time(0.0)
        assert [arrival.uid for arrival in SimObserver(world, oracle=False).observe().snapshot.waiting] == ["a"]
        assert SimActuator(world).carry_out(Place("a", "n2", "because")).result == "applied"
        assert finish(world).jobs[0].stays[0].node == "n2"


class TestCrashes:
    def test_each_costs_a_restart_and_no_work(self) -> None:
        job = a_sim_job("a", 100, crashes_at_done_ratio=(0.75, 0.25, 0.25), restart_seconds=6.0)
        (reported,) = finish(a_world(an_instance([job]))).jobs
        assert reported.finished_seconds == pytest.approx(118.0)
        assert len(reported.stays) == 1

    def test_one_begins_another_life_which_is_seen_for_the_length_of_a_window(self) -> None:
        job = a_sim_job("a", 100, crashes_at_done_ratio=(0.25,), restart_seconds=6.0)
        world = a_world(an_instance([job]))
        observer = SimObserver(world, oracle=False)
        seen = {}
        for seconds in (24.0, 26.0, 44.0, 46.0):
            pass_to(world, seconds)
            seen[seconds] = observer.observe().snapshot.jobs[0]
        assert [job.restarted for job in seen.values()] == [False, True, True, False]
        assert seen[26.0].state is JobState.STARTING
        assert seen[46.0].process_started_at_seconds == EPOCH_SECONDS + 25.0


class TestServedModels:
    def test_response_time_is_of_the_second_half_of_the_run(self) -> None:
        """Alone until 60 s, then beside a training: of the second half, 10 s at a core and 50 s at half a core."""
        jobs = [a_served_model("served", 0.5), a_sim_job("training", 1000, 60)]
        outcome = finish(a_world(an_instance(jobs, duration=100)))
        assert outcome.jobs[0].response_seconds == pytest.approx(50.0 / ((10.0 + 20.0) / 0.5))
        assert outcome.jobs[0].finished_seconds is None
        assert outcome.jobs[1].response_seconds is None


class TestRefusals:
    @pytest.mark.parametrize(
        ("instance", "message"),
        [
            (
                an_instance([a_sim_job("big", memory_bytes=25 * 2.0**30)]),
                "job big asks for 25 GiB and the largest node has 24 GiB",
            ),
            (
                an_instance([a_sim_job("a", accelerator=THREE_DEVICES)], [a_sim_node(accelerators=2)]),
                "asks for 3 accelerators",
            ),
            (an_instance([a_served_model("served", 1.0)]), "job served serves for ever"),
            (Instance("empty", 1, (), ()), "no nodes"),
        ],
    )
    def test_what_can_never_end_or_begin_is_named(self, instance: Instance, message: str) -> None:
        with pytest.raises(SlopewiseError, match=message):
            a_world(instance)
