"""What is found of one job: when its loss had converged, what it held after that, what it never used."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from support.past_jobs import GIB, START, Curve, constant, fast, past, points, straight

from slopewise.adapters.prometheus.history import Points, Resources
from slopewise.advise.findings import falling_loss, finding


def hours_after_convergence(loss: Curve) -> float | None:
    return finding(past(loss=loss)).converged_hours


def test_a_job_has_converged_once_99_percent_of_its_improvement_is_behind_it() -> None:
    at_99 = math.log(100) / 20  # of the curve 2 e^(-20 x)
    assert hours_after_convergence(fast) == pytest.approx(10 * (1 - at_99), abs=0.1)


def test_noise_is_no_improvement() -> None:
    noise = random.Random(1)
    noisy = hours_after_convergence(lambda part: fast(part) + noise.gauss(0, 0.02))
    assert noisy == pytest.approx(hours_after_convergence(fast), abs=0.8)


@pytest.mark.parametrize("spike", [1e6, -1e6, 3.0])
def test_a_spike_moves_nothing(spike: float) -> None:
    found = hours_after_convergence(lambda part: spike if abs(part - 0.6) < 0.0005 else fast(part))
    assert found == pytest.approx(hours_after_convergence(fast), abs=0.01)


def test_a_job_that_improves_to_its_end_has_held_nothing_after_it() -> None:
    assert hours_after_convergence(straight) == 0.0


def test_a_plateau_before_a_late_drop_is_not_converged() -> None:
    assert hours_after_convergence(lambda part: 2.0 if part < 0.5 else 0.5) == pytest.approx(5.0, abs=0.2)


def noisy_constant(part: float) -> float:
    return 1.5 + 0.1 * math.sin(1e4 * part)


@pytest.mark.parametrize("loss", [constant, noisy_constant, lambda part: 1 + part])
def test_a_loss_that_does_not_fall_is_named(loss: Curve) -> None:
    found = finding(past(loss=loss))
    assert (found.improves, found.converged_hours, found.cpu_held_converged_core_hours) == (False, None, None)
    assert found.messages[0] == "its loss did not improve in 10h00m"


def test_a_loss_that_rises_again_has_converged_where_it_first_was_as_good_as_at_the_end() -> None:
    found = hours_after_convergence(lambda part: 2 - 4 * part if part < 0.4 else 0.4 + (part - 0.4))
    assert found == pytest.approx(10 * (1 - (2 - 0.975) / 4), abs=0.3)


def test_a_loss_that_came_once_says_nothing() -> None:
    job = past()
    once = finding(replace(job, loss=job.loss[:1]))
    assert (once.reports_loss, once.converged_hours) == (True, None)


def test_an_accuracy_improves_as_it_rises() -> None:
    job = past(loss=lambda part: 1 - fast(part) / 2.3, objective="max")
    assert finding(job).converged_hours == pytest.approx(7.7, abs=0.1)
    assert falling_loss(job)[0, 1] > falling_loss(job)[-1, 1]


def test_what_it_held_after_that_is_its_requests_and_gpus() -> None:
    found = finding(past(gpus=4.0))
    tail = found.converged_hours
    assert tail is not None
    assert found.cpu_held_converged_core_hours == pytest.approx(2 * tail)
    assert found.memory_held_converged_gib_hours == pytest.approx(4 * tail)
    assert found.gpu_hours == 40.0
    assert found.gpu_converged_hours == pytest.approx(4 * tail)
    assert found.cpu_used_core_hours == pytest.approx(10, rel=0.01)
    assert found.messages[0] == "converged 7h40m of 10h00m before its end"


def test_without_a_request_it_held_what_it_used() -> None:
    found = finding(past(request=None, cores=1.5, requests=Resources()))
    assert found.cpu_held_core_hours == pytest.approx(15)
    assert found.cpu_held_converged_core_hours == pytest.approx(1.5 * (found.converged_hours or 0))
    assert found.memory_held_converged_gib_hours == pytest.approx(found.converged_hours or 0)
    assert found.cpu_never_used_cores is None


def test_only_a_request_of_which_half_was_never_used_is_reported() -> None:
    assert finding(past(cores=0.9)).cpu_never_used_cores == pytest.approx(1.1)
    assert finding(past(cores=1.1)).cpu_never_used_cores == 0.0
    assert finding(past()).memory_never_used_gib == pytest.approx(3.0)


def test_throttling_counts_while_the_job_improves() -> None:
    late = points(36_000, 60, lambda part: 0.9 if part > 0.5 else 0.0)
    assert not finding(past(throttled_ratio=late)).throttled_while_improving
    assert finding(past(throttled_ratio=late, loss=straight)).throttled_while_improving
    assert not finding(past(throttled_ratio=late, loss=None)).throttled_while_improving


def test_gpus_that_idle_beside_a_full_cpu_wait_for_their_input() -> None:
    low = points(36_000, 60, lambda _: 0.2)
    busy = points(36_000, 60, lambda _: 0.8)
    full = Resources(1.05, GIB)
    assert finding(past(gpus=1.0, gpu_use_ratio=low, limits=full)).input_bound
    assert not finding(past(gpus=1.0, gpu_use_ratio=busy, limits=full)).input_bound
    assert not finding(past(gpus=1.0, gpu_use_ratio=low, limits=Resources(4.0, GIB))).input_bound


def test_a_job_whose_steps_wait_for_their_batches_is_input_bound() -> None:
    waits = finding(past(wait_ratio=0.4))
    assert waits.input_bound
    assert "waited for its batches in 40% of its steps' time: input-bound" in waits.messages
    assert not finding(past(wait_ratio=0.1)).input_bound
    assert not finding(past()).input_bound


def threads(count: float) -> Points:
    return points(36_000, 60, lambda _: count)


def test_many_threads_that_were_throttled_may_have_spun_and_how_much_is_not_claimed() -> None:
    """Throttled for the last half of ten hours at 1 core of a limit of 1."""
    late = points(36_000, 60, lambda part: 0.9 if part > 0.5 else 0.0)
    one = Resources(1.0, GIB)
    found = finding(past(threads=threads(64), throttled_ratio=late, limits=one))
    assert found.spinning_most_core_hours == pytest.approx(5, rel=0.01)
    assert (
        "throttled with 64 threads: 0 to 5 core-hours may have been spent spinning; "
        "set OMP_WAIT_POLICY=passive or SLOPEWISE_THREADS=follow"
    ) in found.messages
    few, free = threads(8), points(36_000, 60, lambda _: 0.1)
    assert finding(past(threads=few, throttled_ratio=late, limits=one)).spinning_most_core_hours is None
    assert finding(past(threads=threads(64), throttled_ratio=free, limits=one)).spinning_most_core_hours is None
    assert (
        finding(past(threads=threads(64), throttled_ratio=late, limits=Resources(32.0))).spinning_most_core_hours
        is None
    )
    assert finding(past(throttled_ratio=late, limits=one)).spinning_most_core_hours is None


def test_a_gap_in_its_samples_is_reported() -> None:
    job = past()
    kept = (job.loss[:, 0] < START + 7200) | (job.loss[:, 0] > START + 14_400)
    found = finding(replace(job, loss=job.loss[kept], cpu_cores=job.cpu_cores[kept]))
    assert found.gap_ratio == pytest.approx(0.2, abs=0.01)
    assert found.messages[-1] == "no samples for 20% of its time: its figures are estimates"
    assert finding(job).gap_ratio == 0.0
