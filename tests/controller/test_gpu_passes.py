"""Whole passes over jobs with GPUs: from what they report, over what they can use, to resizes and what those did."""

from __future__ import annotations

from random import Random

import pytest
from support.gpu_world import INTERVAL, GpuWorld, Training

POLICIES = ("fair", "marginal")


def four(**more: Training) -> GpuWorld:
    """24 cores, 6 for each: two jobs could use 13.5 and 9 cores, two no more than 2 and 1."""
    trainings = {
        "wide": Training(0.2, 2.7, 6000),
        "input": Training(0.3, 2.7, 6000),
        "bert": Training(0.5, 1.0, 6000),
        "gnmt": Training(0.4, 0.4, 6000),
    }
    return GpuWorld(trainings | more, 24.0)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_gpu_bound_jobs_cannot_use_goes_to_those_whose_gpus_wait_and_no_job_is_slower(policy: str) -> None:
    world = four()
    world.passes(12, policy)
    assert {uid: round(world.speed_ratio(uid), 2) for uid in world.trainings} == {
        "wide": 1.9,
        "input": 1.5,
        "bert": 1.0,
        "gnmt": 1.0,
    }
    assert world.reason("bert").startswith("GPU-bound: its GPU waits ")
    assert "(GPU 67% → 100%)" in world.reason("input")
    assert "(GPU" not in world.reason("bert")
    assert sum(each.limit for each in world.trainings.values()) <= 24_000


@pytest.mark.parametrize("policy", POLICIES)
def test_raise_gives_idle_cpu_only_and_takes_back_only_what_it_gave(policy: str) -> None:
    world = four()
    world.passes(12, policy, "Raise")
    assert {each.limit for each in world.trainings.values()} == {6000}, "nothing is idle"
    world.cores = 30.0
    world.passes(6, policy, "Raise")
    assert (world.trainings["input"].limit, world.trainings["wide"].limit) == (9000, 9000)
    world.cores = 24.0
    world.passes(6, policy, "Raise")
    assert {each.limit for each in world.trainings.values()} == {6000}


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_given_to_one_is_no_part_of_the_limit_of_a_job_of_which_nothing_is_known(policy: str) -> None:
    """It may use its 12 of 24 cores, which are more than an even share."""
    unknown = Training(0.2, 2.4, 12_000, reports_waits=False)
    bound = {uid: Training(0.5, 1.0, 4000) for uid in ("bert", "gnmt")}
    world = GpuWorld({"input": Training(0.2, 2.7, 4000), "unknown": unknown} | bound, 24.0)
    world.passes(8, policy)
    assert (world.trainings["input"].limit, unknown.limit) == (7200, 12_000)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_loader_that_leaves_its_cpu_is_not_raised_and_its_reason_says_what_lacks(policy: str) -> None:
    world = four(input=Training(0.3, 2.7, 6000, loader_cores=3.0))
    world.passes(12, policy)
    assert world.trainings["input"].limit <= 6000
    assert world.speed_ratio("input") == pytest.approx(1.0)
    assert "not for CPU: it uses 3 cores whatever it has, and lacks loader workers" in world.reason("input")


def test_a_raise_that_brought_too_little_is_taken_back_and_not_tried_again_for_an_hour() -> None:
    """With 6 cores all are used, and a seventh would find no worker: only the raise shows that."""
    world = four(input=Training(0.3, 2.7, 6000, loader_cores=6.2))
    world.passes(12)
    assert max(each.to_millicores for each in world.actuator.done if each.job_uid == "input") == 9000
    back = [each for each in world.actuator.done if each.is_rollback]
    assert [(each.job_uid, each.to_millicores) for each in back] == [("input", 6000)]
    assert "lacks loader workers and not CPU" in back[0].reason
    raises = len(world.actuator.done)
    world.passes(100)
    again = [each for each in world.actuator.done[raises:] if each.job_uid == "input" and each.to_millicores > 6600]
    assert again == []
    assert "not for CPU" in world.reason("input")


def test_a_job_that_becomes_slower_after_it_lent_cpu_has_it_back_and_lends_it_no_more() -> None:
    """Its batches take three times the CPU soon after it was lowered."""
    world = four()
    world.passes(4)
    assert world.trainings["bert"].limit < 6000
    world.trainings["bert"].cpu_seconds = 2.9
    world.passes(4)
    assert world.trainings["bert"].limit == 6000
    assert any("more than before" in each.reason for each in world.actuator.done)
    world.passes(60)
    assert world.speed_ratio("bert") == pytest.approx(1.0)


@pytest.mark.parametrize("useful_cores", [0.2, 1.0, 4.0])
def test_a_job_whose_batches_take_one_tenth_more_cpu_or_less_each_time_is_as_fast_as_with_its_own(
    useful_cores: float,
) -> None:
    """Its useful cores are measured with that noise; what it keeps and what it waits for cover it."""
    world, noise = four(), Random(7)
    bert = world.trainings["bert"]
    for _ in range(90):
        bert.cpu_seconds = bert.gpu_seconds * useful_cores * noise.uniform(0.9, 1.1)
        world.passes(1)
    assert bert.limit < 6000
    assert bert.steps / (90 * INTERVAL / bert.gpu_seconds) >= 0.98


def test_a_job_that_was_raised_and_then_lent_too_much_has_the_cpu_back_that_it_came_with_and_no_more() -> None:
    """Its devices take five times as long, so it lends, and soon after that its batches take twice the CPU."""
    world = four(wide=Training(0.1, 2.7, 6000))
    world.passes(6)
    job = world.trainings["input"]
    assert job.limit == 9000
    job.gpu_seconds = 1.5
    world.passes(3)
    assert job.limit < 2500
    job.cpu_seconds = 5.4
    world.passes(4)
    back = [each.to_millicores for each in world.actuator.done if each.is_rollback and each.job_uid == "input"]
    assert back == [6000]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_that_lies_about_waiting_takes_nothing_that_a_neighbour_lacks(policy: str) -> None:
    world = four(input=Training(0.5, 1.0, 6000, lies=0.9))
    world.passes(30, policy)
    assert {uid for uid in world.trainings if world.speed_ratio(uid) < 0.999} == set()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_without_a_gpu_keeps_its_cpu_under_fair_and_no_job_with_one_is_slower(policy: str) -> None:
    world = four(plain=Training(0.0001, 1.0, 6000, accelerators=0.0, level=1.0))
    world.cores = 30.0
    world.passes(12, policy)
    if policy == "fair":
        assert world.trainings["plain"].limit == 6000
        assert world.reason("plain") == "fair sharing: unchanged"
    assert {uid for uid in ("wide", "input", "bert", "gnmt") if world.speed_ratio(uid) < 0.999} == set()


def test_without_waits_a_job_that_is_short_of_cpu_is_raised_by_steps_while_its_gpu_is_used_more() -> None:
    """9 cores would be enough; from 80 % of use on, which 7.2 cores give, nothing speaks for more."""
    world = GpuWorld({"input": Training(0.3, 2.7, 3000, reports_waits=False)}, 24.0)
    world.passes(50, accelerators="Raise")
    assert [each.to_millicores for each in world.actuator.done] == [3750, 4688, 5860, 7325]
    assert "its GPU is used 81% of the time" in world.reason("input")


def test_without_waits_a_step_that_brought_nothing_is_taken_back() -> None:
    world = GpuWorld({"input": Training(0.3, 2.7, 3000, loader_cores=4.0, reports_waits=False)}, 24.0)
    world.passes(50, accelerators="Raise")
    assert [each.to_millicores for each in world.actuator.done] == [3750, 4688, 3750]
    assert "its GPU is used 44% of the time instead of 52%" in world.actuator.done[-1].reason
    assert "more than 3.75 cores would not change that" in world.reason("input")


def test_an_idle_gpu_alone_says_nothing() -> None:
    world = GpuWorld({"small": Training(0.3, 0.3, 3000, reports_waits=False)}, 24.0)
    world.trainings["small"].gpu_seconds = 0.05
    world.trainings["small"].loader_cores = 1.0
    world.passes(12, accelerators="Share")
    assert world.actuator.done == []


def test_under_marginal_jobs_with_a_loss_go_by_its_order_and_all_keep_their_speed() -> None:
    """Both could use 9 cores, and 4.8 are lent: the first in the order has 3 of them, the other one the rest."""
    trainings = {
        "one": Training(0.3, 2.7, 6000, level=1.0),
        "other": Training(0.3, 2.7, 6000, level=1.0),
        "bert": Training(0.5, 0.5, 6000),
    }
    world = GpuWorld(trainings, 18.0)
    world.passes(3, "marginal")
    assert sorted(each.limit for each in world.trainings.values()) == [1200, 7800, 9000]
    first = next(uid for uid, each in world.trainings.items() if each.limit == 9000)
    assert world.reason(first).startswith("first: ")
    assert "; its GPU waits 33% of the time for CPU, and would not with 9 cores" in world.reason(first)
    assert world.speed_ratio("bert") == pytest.approx(1.0)


def test_a_diverged_job_keeps_what_makes_it_as_fast_and_comes_last_for_the_rest() -> None:
    """The other one has all of its 13.5 cores, 3.6 are the least of two, and 6.9 of 24 are left."""
    world = four(input=Training(0.3, 2.7, 6000, level=1.0))
    world.passes(4, "marginal")
    world.trainings["input"].level = float("nan")
    world.passes(6, "marginal")
    assert (world.trainings["wide"].limit, world.trainings["input"].limit) == (13_500, 6900)


def test_a_job_that_makes_no_steps_gets_its_original_cpu_back() -> None:
    world = four()
    world.passes(6)
    assert world.trainings["bert"].limit == 2400
    world.trainings["bert"].gpu_seconds = 1e9
    world.passes(14)
    assert world.trainings["bert"].limit == 6000
    assert "no step for" in world.reason("bert")


def test_seconds_that_gpus_won_are_counted_against_the_original_cpu() -> None:
    """5 passes after the raise, 20 s each, at 3.33 steps a second that would have taken 0.45 s and take 0.3 s."""
    world = GpuWorld({"input": Training(0.3, 2.7, 6000)}, 24.0)
    world.passes(5, accelerators="Raise")
    assert world.trainings["input"].limit == 9000
    before = world.memory.state.jobs["input"].gpu.seconds_won
    world.passes(5, accelerators="Raise")
    won = world.memory.state.jobs["input"].gpu.seconds_won - before
    assert won == pytest.approx(100 / 0.3 * 0.15, rel=0.05)
