"""The CPU that a job with accelerators can turn into steps, and what limits it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from support.worlds import START, a_job, a_snapshot

from slopewise.estimators import pace
from slopewise.estimators.gpu_need import UNKNOWN, explained, gpu_need, least_cores, measure
from slopewise.estimators.growth import IDLE_CORES
from slopewise.model import (
    AcceleratorControl,
    ContainerHealth,
    CpuAllocation,
    GpuMemory,
    Job,
    JobMemory,
    LearnedCores,
    MemoryState,
    Pace,
    PaceAnchor,
)
from slopewise.simulator.world.model import Physics
from slopewise.simulator.world.sharing import quota_speed

LIMIT = CpuAllocation(3000, 3000)


def a_gpu_job(**more: object) -> Job:
    return a_job("a").altered(accelerators=1.0, allocation=LIMIT, **more)


def an_interval(number: int, seconds: float, waited: float | None, cores: float, short: float | None = None) -> Pace:
    """Steps of so many seconds, of which they waited so many, on so many cores."""
    ratio = None if waited is None else waited / seconds
    return Pace(START + 20.0 * number, seconds, cores, 1.0, ratio, short)


def after(*intervals: Pace, **more: object) -> JobMemory:
    return JobMemory(paces=intervals, **more)  # type: ignore[arg-type]


INPUT_BOUND = [an_interval(number, 0.9, 0.5, 3.0) for number in range(3)]


def test_the_worked_example() -> None:
    """Steps of 0.9 s that wait for 0.5 s on 3 cores: the device takes 0.4 s, and 6.75 cores keep it busy."""
    need = gpu_need(a_gpu_job(), after(*INPUT_BOUND))
    assert need.limiting == "cpu"
    assert (need.gpu_seconds, need.cpu_seconds, need.useful_cores) == pytest.approx((0.4, 2.7, 6.75))
    assert need.wait_ratio == pytest.approx(0.5 / 0.9)
    assert need.at_seconds == START + 40
    assert need.seconds_at(3.0) == pytest.approx(0.9)
    assert need.seconds_at(6.75) == pytest.approx(0.4)
    assert need.seconds_at(20.0) == pytest.approx(0.4)


def test_intervals_before_and_after_a_raise_say_the_same() -> None:
    """The device takes 0.4 s and the batch 2.7 CPU-seconds, whatever CPU the job has."""
    before = INPUT_BOUND[0]
    mixed, later = an_interval(1, 0.65, 0.25, 2.7 / 0.65), an_interval(2, 0.45, 0.05, 6.0)
    need = gpu_need(a_gpu_job(), after(before, mixed, later))
    assert need.useful_cores == pytest.approx(6.75)


@pytest.mark.parametrize(("original", "gain"), [(2.0, " (GPU 30% → 44%)"), (3.0, ""), (6.0, ""), (None, "")])
def test_what_its_gpu_is_used_more_than_with_its_original_cpu_is_said(original: float | None, gain: str) -> None:
    """A step takes 1.35 s on two cores and 0.9 s on the three that it has, and its GPU 0.4 s of both."""
    text = explained(gpu_need(a_gpu_job(), after(*INPUT_BOUND)), original)
    assert text == f"its GPU waits 56% of the time for CPU, and would not with 6.75 cores{gain}"


def test_what_it_can_use_is_said_with_its_range_where_intervals_differ() -> None:
    waited = [an_interval(number, 0.9, seconds, 3.0) for number, seconds in enumerate((0.5, 0.54, 0.45))]
    need = gpu_need(a_gpu_job(), after(*waited))
    assert need.useful_range == pytest.approx((6.0, 7.5))
    assert explained(need).endswith("and would not with 6.75 cores (6 to 7.5 in its last 3 intervals)")
    leaves = [an_interval(number, 0.9, seconds, 1.0) for number, seconds in enumerate((0.5, 0.54, 0.45))]
    assert gpu_need(a_gpu_job(), after(*leaves)).useful_range is None, "what it uses is no estimate"


def test_an_interval_of_an_evaluation_changes_nothing() -> None:
    need = gpu_need(a_gpu_job(), after(INPUT_BOUND[0], an_interval(1, 9.0, 0.5, 1.0), INPUT_BOUND[2]))
    assert need.useful_cores == pytest.approx(6.75)


def test_a_job_that_hardly_waits_is_bound_by_its_device_and_needs_what_it_uses() -> None:
    need = gpu_need(a_gpu_job(), after(*(an_interval(number, 0.5, 0.01, 1.0) for number in range(3))))
    assert need.limiting == "gpu"
    assert need.useful_cores == pytest.approx(1.0, rel=0.03)


@pytest.mark.parametrize(
    ("cores", "short", "limiting"),
    [(1.0, None, "workers"), (1.0, 0.02, "workers"), (1.0, 0.9, "cpu"), (2.9, 0.02, "cpu")],
)
def test_a_job_that_waits_and_leaves_cpu_lacks_workers(cores: float, short: float | None, limiting: str) -> None:
    """With one core of three in use, unless its quota throttles it: bursts need more than their mean."""
    need = gpu_need(a_gpu_job(), after(*(an_interval(number, 0.9, 0.5, cores, short) for number in range(3))))
    assert need.limiting == limiting
    if limiting == "workers":
        assert need.useful_cores == pytest.approx(cores)


def test_what_a_change_has_shown_bounds_its_use_for_an_hour() -> None:
    learned = LearnedCores(START, most=3.5)
    need = gpu_need(a_gpu_job(), after(*INPUT_BOUND, gpu=GpuMemory(learned)))
    assert (need.limiting, need.useful_cores) == ("workers", 3.5)
    nothing = gpu_need(a_gpu_job(), after(*INPUT_BOUND, gpu=GpuMemory(LearnedCores(START, most=0.0))))
    assert nothing.useful_cores == IDLE_CORES
    later = [an_interval(number + 180, 0.9, 0.5, 3.0) for number in range(3)]
    assert gpu_need(a_gpu_job(), after(*later, gpu=GpuMemory(learned))).useful_cores == pytest.approx(6.75)


@pytest.mark.parametrize(
    ("control", "least", "kept"),
    [("Raise", None, 12.0), ("Ignore", None, 12.0), ("Share", None, 8.1), ("Share", 10.0, 10.0), ("Share", 15.0, 12.0)],
)
def test_what_keeps_a_job_as_fast_as_it_came(control: AcceleratorControl, least: float | None, kept: float) -> None:
    """1.2 times its 6.75 useful cores of 12, and what a cut has shown."""
    known = after(*INPUT_BOUND, gpu=GpuMemory(None if least is None else LearnedCores(START, least=least)))
    assert least_cores(gpu_need(a_gpu_job(), known), known, 12.0, control) == pytest.approx(kept)
    assert least_cores(UNKNOWN, known, 12.0, control) == 12.0


@pytest.mark.parametrize("useful", [0.05, 0.1, 0.25, 0.4, 0.5, 0.75, 1.0, 2.0])
def test_what_a_job_keeps_covers_what_a_hard_quota_costs(useful: float) -> None:
    """Of a quota of 0.25 cores 0.205 are work, as measured: the least is a quota."""
    known = after(*(an_interval(number, 0.5, 0.0, useful) for number in range(3)))
    least = least_cores(gpu_need(a_gpu_job(), known), known, 3.0, "Share")
    assert quota_speed(least, Physics()) >= useful


def test_an_interval_that_began_before_the_last_resize_does_not_say_that_cpu_is_left() -> None:
    intervals = [an_interval(number, 0.9, 0.5, 1.0) for number in range(3)]
    resized = after(*intervals, last_resized_at_seconds=START + 10)
    assert gpu_need(a_gpu_job(), resized).limiting == "cpu"


@pytest.mark.parametrize("short", [None, 0.02, 0.5])
def test_without_a_limit_only_pressure_says_whether_it_would_use_more(short: float | None) -> None:
    job = a_gpu_job(actual=CpuAllocation(None, 3000))
    need = gpu_need(job, after(*(an_interval(number, 0.9, 0.5, 3.0, short) for number in range(3))))
    assert need.limiting == ("workers" if short == 0.02 else "cpu")


@pytest.mark.parametrize(
    "intervals",
    [
        INPUT_BOUND[:1],
        [INPUT_BOUND[0], an_interval(1, 9.0, 0.5, 1.0)],
        [INPUT_BOUND[0], an_interval(1, 0.9, None, 3.0)],
        [INPUT_BOUND[0], an_interval(1, 0.9, 0.9, 3.0)],
        [INPUT_BOUND[0], an_interval(1, 0.9, 0.5, 0.0)],
    ],
)
def test_nothing_is_known_of_too_few_intervals(intervals: Sequence[Pace]) -> None:
    """One; two that differ; a second one without waits, that only waited, or without CPU."""
    assert gpu_need(a_gpu_job(), after(*intervals)) == UNKNOWN


def measured(job: Job, waited: Sequence[float | None], health: Sequence[ContainerHealth]) -> JobMemory:
    """The memory after passes every 20 s in which it makes two steps a second on three cores."""
    memory = MemoryState()
    for number, (seconds, of_container) in enumerate(zip(waited, health, strict=True)):
        at = START + 20.0 * number
        seen = a_job("a", at=at, cpu_seconds=60.0 * number).altered(accelerators=job.accelerators)
        seen = seen.altered(
            steps_total=40.0 * number, waited_seconds_total=seconds, container_health=of_container, gpu_use=0.3
        )
        memory = pace.measure(a_snapshot([seen], at=at), memory, 20.0)
    return memory.jobs["a"]


THROTTLED = [ContainerHealth(0, None, 200.0 * number, 150.0 * number, 4.0 * number) for number in range(3)]


def test_a_pace_has_the_waiting_and_the_shortage_of_its_own_interval() -> None:
    """5 s of 20 waited, then 15 s; three of four periods throttled, and 4 s of pressure."""
    paces = measured(a_gpu_job(), [0.0, 5.0, 20.0], THROTTLED).paces
    assert [each.wait_ratio for each in paces] == [0.25, 0.75]
    assert [each.short_ratio for each in paces] == [0.75, 0.75]
    assert [each.gpu_use for each in paces] == [0.3, 0.3]


def test_pressure_counts_where_nothing_is_throttled_and_a_reset_is_unknown() -> None:
    health = [replace_of(each, None, None) for each in THROTTLED]
    paces = measured(a_gpu_job(), [50.0, 5.0, 6.0], health).paces
    assert [each.wait_ratio for each in paces] == [None, 0.05]
    assert [each.short_ratio for each in paces] == [0.2, 0.2]


@pytest.mark.parametrize(("throttled", "short"), [(150.0, 0.75), (10.0, None), (None, None)])
def test_without_pressure_many_throttled_periods_say_it(throttled: float | None, short: float | None) -> None:
    health = [
        ContainerHealth(0, None, 200.0 * number, None if throttled is None else throttled * number)
        for number in range(3)
    ]
    assert [each.short_ratio for each in measured(a_gpu_job(), [0.0, 5.0, 6.0], health).paces] == [short, short]


def test_without_pressure_what_it_leaves_of_its_request_alone_is_its_own() -> None:
    """It uses 2 of 3 cores, and has requested one: neighbours may have the third."""
    intervals = [an_interval(number, 0.9, 0.5, 2.0) for number in range(3)]
    assert gpu_need(a_gpu_job(), after(*intervals)).limiting == "workers"
    assert gpu_need(a_gpu_job(actual=CpuAllocation(3000, 1000)), after(*intervals)).limiting == "cpu"


def replace_of(health: ContainerHealth, periods: float | None, throttled: float | None) -> ContainerHealth:
    return ContainerHealth(0, None, periods, throttled, health.cpu_waiting_seconds_total)


def test_a_job_without_accelerators_keeps_none_of_it() -> None:
    known = measured(a_job("a"), [0.0, 5.0, 20.0], THROTTLED)
    assert [(each.wait_ratio, each.short_ratio, each.gpu_use) for each in known.paces] == [(None, None, None)] * 2
    assert known.timing.anchor is not None
    assert known.timing.anchor.health is None


def test_no_seconds_are_won_while_a_job_is_away() -> None:
    """After 1000 s without a process, 20 s of steps of 0.3 s that would have taken 0.9 s: 40 s."""
    paces = tuple(Pace(START + at, 0.3, 9.0, 1.0, 0.0) for at in (20, 40, 1060))
    known = JobMemory(original=CpuAllocation(3000, 1000), paces=paces)
    before = known.altered(
        timing=known.timing.altered(anchor=PaceAnchor(START + 1040, 1.0, None, 1.0)), paces=paces[:2]
    )
    snapshot = a_snapshot([a_job("a", limit=9000).altered(accelerators=1.0)])
    measured = measure(snapshot, MemoryState({"a": known}), MemoryState({"a": before}))
    assert measured.jobs["a"].gpu.seconds_won == pytest.approx(40)
