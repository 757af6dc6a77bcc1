"""What is found of one job: since when its loss was flat, what it held meanwhile, what it never used."""

from __future__ import annotations

import math
import random
import re
from dataclasses import replace

import pytest
from support.past_jobs import GIB, START, Curve, constant, fast, past, points, straight

from slopewise.adapters.prometheus.history import Points, Resources, Steps
from slopewise.advise.findings import finding


def flat_hours(loss: Curve) -> float | None:
    return finding(past(loss=loss)).flat_hours


def test_a_job_is_flat_once_3_percent_of_its_fall_after_a_tenth_is_left() -> None:
    """An accuracy improves as it rises, and noise is no improvement."""
    left = 0.03 * (fast(0.1) - 0.3)  # of the curve 0.3 + 2 e^(-20 x)
    flat = 10 * (1 - math.log(2 / left) / 20)
    noise = random.Random(1)
    accuracy = finding(past(loss=lambda part: 1 - fast(part) / 2.3, objective="max"))
    assert flat_hours(fast) == pytest.approx(flat, abs=0.1)
    assert accuracy.flat_hours == pytest.approx(flat, abs=0.2)
    assert accuracy.loss is not None
    assert accuracy.loss.level == pytest.approx(1 - 0.3 / 2.3, abs=0.001)
    assert flat_hours(lambda part: fast(part) + noise.gauss(0, 0.01)) == pytest.approx(flat, abs=0.9)
    assert flat_hours(lambda part: 2.0 if part < 0.5 else 0.5) == pytest.approx(5.0, abs=0.2), "since its late drop"
    assert flat_hours(straight) == 0.0
    once = finding(replace(past(), loss=past().loss[:1]))
    assert (once.reports_loss, once.flat_hours) == (True, None)


@pytest.mark.parametrize("spike", [1e6, -1e6, 3.0])
def test_a_spike_moves_nothing(spike: float) -> None:
    found = flat_hours(lambda part: spike if abs(part - 0.6) < 0.0005 else fast(part))
    assert found == pytest.approx(flat_hours(fast), abs=0.01)


def noisy_constant(part: float) -> float:
    return 1.5 + 0.1 * math.sin(1e4 * part)


@pytest.mark.parametrize("loss", [constant, noisy_constant, lambda part: 1 + part])
def test_a_loss_that_does_not_fall_is_named(loss: Curve) -> None:
    found = finding(past(loss=loss))
    assert (found.loss_state, found.flat_hours, found.cpu_held_flat_core_hours) == ("stalled", None, None)
    assert found.messages[0] == "its loss did not improve in 10h00m"


def test_a_loss_that_rises_again_is_named_and_not_counted() -> None:
    found = finding(past(loss=lambda part: 2 - 4 * part if part < 0.4 else 0.4 + (part - 0.4)))
    assert (found.loss_state, found.flat_hours) == ("rises", 0.0)
    assert found.messages[0].startswith("its loss rises (gained -0.")


def test_what_cannot_be_known_is_said_with_its_interval_and_not_counted() -> None:
    noise = random.Random(1)
    found = finding(past(loss=lambda part: fast(part) + noise.gauss(0, 0.2)))
    assert (found.loss_state, found.flat_hours) == ("unclear", None)
    assert re.match(
        r"not known whether it is flat at 0\.\d+ \(gained -0\.\d+ to 0\.\d+ in its last half\)", found.messages[0]
    )


def test_the_word_converged_is_for_a_plan_that_is_done() -> None:
    done = finding(past(steps=Steps(1000.0, 1000.0)))
    within = finding(past(steps=Steps(600.0, 1000.0)))
    assert done.messages[0].startswith("converged, flat at 0.3 for the last 7h")
    assert (within.flat_hours, within.messages[0].split(" (")[0]) == (0.0, "flat so far, within its plan")


def test_a_flat_loss_on_held_out_data_says_nothing_while_the_training_loss_falls() -> None:
    falling = points(36_000, 60, straight)
    found = finding(past(training_loss=falling))
    assert (found.loss_state, found.flat_hours, found.is_unknown) == ("fits", None, True)
    assert found.messages[0].startswith("flat on held-out data at 0.3 (gained ")
    assert found.messages[0].endswith("while its training loss falls: compare its metric")
    assert finding(past(training_loss=points(36_000, 60, fast))).loss_state == "flat"
    accuracy = past(loss=lambda part: 1 - fast(part) / 2.3, objective="max", training_loss=falling)
    assert finding(accuracy).loss_state == "flat"
    within = past(steps=Steps(600.0, 1000.0), training_loss=falling)
    assert finding(within).loss_state == "fits"


def test_what_it_held_after_that_is_its_requests_and_gpus() -> None:
    found = finding(past(gpus=4.0))
    tail = found.flat_hours
    assert tail is not None
    assert found.cpu_held_flat_core_hours == pytest.approx(2 * tail)
    assert found.memory_held_flat_gib_hours == pytest.approx(4 * tail)
    assert found.gpu_hours == 40.0
    assert found.gpu_flat_hours == pytest.approx(4 * tail)
    assert found.cpu_used_core_hours == pytest.approx(10, rel=0.01)
    assert re.fullmatch(
        r"flat at 0\.3 for the last 7h\d\dm of 10h00m \(gained [-\d.e]+ to [-\d.e]+ in its last half\): "
        r"stop it at a target, or early, with a patience of 2h\d\dm",
        found.messages[0],
    )


def test_without_a_request_it_held_what_it_used() -> None:
    found = finding(past(request=None, cores=1.5, requests=Resources()))
    assert found.cpu_held_core_hours == pytest.approx(15)
    assert found.cpu_held_flat_core_hours == pytest.approx(1.5 * (found.flat_hours or 0))
    assert found.memory_held_flat_gib_hours == pytest.approx(found.flat_hours or 0)
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
    assert waits.useful_cores is None
    assert finding(past(gpus=1.0, wait_ratio=1.0)).useful_cores is None
    with_gpus = finding(past(gpus=1.0, wait_ratio=0.4))
    used = (with_gpus.cpu_used_core_hours or 0.0) / with_gpus.hours
    assert with_gpus.useful_cores == pytest.approx(used / 0.6)
    assert f"{used / 0.6:.2g} cores would keep its GPUs busy" in "; ".join(with_gpus.messages)
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
