"""Pace: what a step or a response took at which CPU, and what it would take at another."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.worlds import START, a_job, a_snapshot

from slopewise.estimators.pace import KEPT, calibrated, cores_for, fit, measure
from slopewise.model import Answering, Job, JobMemory, JobState, MemoryState, Pace, Responses, Usage

INTERVAL = 20.0


def training(steps: float | None, cpu_seconds: float | None, at: float, **more: object) -> Job:
    usage = Usage(at, cpu_seconds_total=cpu_seconds)
    return a_job("job", at=at).altered(steps_total=steps, usage=usage, **more)


def serving(count: float, busy_seconds: float, cpu_seconds: float, at: float, **more: float) -> Job:
    return training(None, cpu_seconds, at).altered(responses=Responses(count, busy_seconds, **more))


def paces(*jobs: Job) -> tuple[Pace, ...]:
    """The paces that are remembered after these looks at the one job, each at the time of its sample."""
    return remembered(*jobs).paces


def remembered(*jobs: Job) -> JobMemory:
    """All that is remembered of it."""
    state = MemoryState()
    for job in jobs:
        at = job.usage.sampled_at_seconds if job.usage else START
        state = measure(a_snapshot([job], at=at), state, INTERVAL)
    return state.jobs["job"]


def counted(job: Job, at: float, cpu_seconds: float | None) -> Job:
    """With a count of its CPU that is from another time than the look."""
    evaluation = None if job.responses else job.evaluation  # a server has none that shows the time of its scrape
    return job.altered(usage=Usage(START + at, cpu_seconds_total=cpu_seconds), evaluation=evaluation)


TRAINING, BUSY_SERVER = training(100, 0, START), serving(0, 0, 0, START)


class TestMeasuring:
    @pytest.mark.parametrize(
        ("first", "second", "expected"),
        [
            (training(100, 50, START), training(140, 58, START + 20), Pace(START + 20, 0.5, 0.4)),
            # Half a core all the time; the kubelet's counts are 19 s old at the first look and 4 s at the second.
            (counted(TRAINING, -19, 50), counted(training(140, 0, START + 20), 16, 67.5), Pace(START + 20, 0.5, 0.5)),
            (counted(TRAINING, 0, 50), counted(training(140, 0, START + 20), 0, 50), Pace(START + 20, 0.5, None)),
            (counted(BUSY_SERVER, -19, 50), counted(serving(100, 20, 0, 0), 14, 66.5), Pace(START + 20, 0.2, 0.5)),
            # Always busy, 8 s each at a quarter of a core: two of them within 20 s.
            (serving(5, 40, 10, START), serving(7, 56, 15, START + 20), Pace(START + 20, 8.0, 0.25)),
            # 9 responses of 0.1 s at a whole core: 0.9 s busy, and 0.1 s allowed for one that is under way.
            (BUSY_SERVER, serving(9, 0.9, 0.9, START + 20), Pace(START + 20, 0.1, 0.9, 0.05)),
            (BUSY_SERVER, serving(40, 80, 60, START + 20), Pace(START + 20, 2.0, 3.0)),
            # Always busy with a quarter of a core: one of 8 s succeeds and one of 8 s fails.
            (
                BUSY_SERVER,
                serving(1, 8, 5, START + 20, failed_total=1, failed_seconds_total=8),
                Pace(START + 20, 8.0, 0.25),
            ),
            (training(0, None, START), training(20, None, START + 20), Pace(START + 20, 1.0, None)),
        ],
        ids=[
            "steps", "CPU over the time between its counts", "no count since", "CPU counted long ago", "a response",
            "waits for requests", "several streams", "responses that fail", "no CPU",
        ],
    )  # fmt: skip
    def test_of_an_interval_is_what_was_done_in_it_with_its_cpu(self, first: Job, second: Job, expected: Pace) -> None:
        state = measure(a_snapshot([first], at=START), MemoryState(), INTERVAL)
        (found,) = measure(a_snapshot([second], at=START + 20), state, INTERVAL).jobs["job"].paces
        assert found.seconds == pytest.approx(expected.seconds)
        assert found.cores == pytest.approx(expected.cores)
        if expected.busy_ratio < 1:
            assert found.busy_ratio == pytest.approx(expected.busy_ratio)

    @pytest.mark.parametrize(
        "second",
        [
            training(140, 58, START + 10),
            training(90, 60, START + 20),
            training(140, 60, START + 20, restarted=True),
            training(140, 60, START + 20, process_started_at_seconds=START + 5),
            training(float("nan"), 60, START + 20),
            training(float("inf"), 60, START + 20),
            serving(140, 60, 20, START + 20),
        ],
        ids=["too short", "counter went back", "restarted", "another life", "nan", "inf", "counts something else"],
    )
    def test_an_interval_that_is_short_mixes_two_lives_or_is_no_number_is_thrown_away(self, second: Job) -> None:
        assert paces(training(100, 50, START, process_started_at_seconds=START - 100), second) == ()
        state = MemoryState()
        assert measure(a_snapshot([a_job("job")]), state, INTERVAL) is state, "it counts nothing"

    def test_an_interval_without_a_finished_step_goes_on(self) -> None:
        """Steps of 30 s at one core: nothing after 20 s, one in 40 s, one in the 20 s after."""
        seen = paces(*(training(steps, at, START + at) for steps, at in ((0, 0), (0, 20), (1, 40), (2, 60))))
        assert seen == (Pace(START + 40, 40.0, 1.0), Pace(START + 60, 20.0, 1.0))

    def test_an_interval_without_a_response_says_nothing_and_is_not_added_to_the_next(self) -> None:
        seen = paces(serving(0, 0, 0, START), serving(0, 0, 0, START + 20), serving(2, 20, 20, START + 40))
        assert seen == (Pace(START + 40, 10.0, 1.0),)

    def test_responses_that_failed_do_not_make_it_faster(self) -> None:
        """9 responses of 0.4 s succeed, 91 fail at once."""
        known = remembered(
            serving(0, 0.0, 0.0, START), serving(9, 3.6, 3.6, START + 20, failed_total=91, failed_seconds_total=0.1)
        )
        assert known.paces[-1].seconds == pytest.approx(0.4)
        assert known.timing.answering == Answering(failed_ratio=0.91)

    def test_paces_from_before_a_restart_stay(self) -> None:
        jobs = [training(steps, steps, START + steps) for steps in (0, 20)]
        again = training(0, 0, START + 40, restarted=True)
        assert paces(*jobs, again, training(5, 5, START + 60)) == (
            Pace(START + 20, 1.0, 1.0),
            Pace(START + 60, 4.0, 0.25),
        )

    def test_a_count_of_0_before_the_checkpoint_is_read_is_no_count(self) -> None:
        """Its steps are 0, 12,345 once it has resumed, and then five more in 20 s."""
        life = {"process_started_at_seconds": START - 1}
        starting = training(0, 0, START, state=JobState.STARTING, **life)
        resumed = (training(12_345, 20, START + 20, **life), training(12_350, 40, START + 40, **life))
        assert paces(starting, *resumed) == (Pace(START + 40, 4.0, 1.0),)

    def test_only_the_last_figures_are_kept(self) -> None:
        seen = paces(*(training(20 * look, 20 * look, START + 20 * look) for look in range(KEPT + 5)))
        assert [each.at_seconds for each in seen] == [START + 20 * look for look in range(5, KEPT + 5)]


def answers(count: float, at: float, **more: float) -> Job:
    """A server that has answered so many requests in 2 s each, `at` seconds after START."""
    return serving(count, 2 * count, at, START + at, **more)


ANSWERED = (answers(0, 0), answers(10, 20))


class TestUnanswered:
    """A server that hangs, one that only fails, and one that no client uses."""

    @pytest.mark.parametrize("in_flight", [None, 3])
    def test_the_last_figures_end_after_three_intervals_without_a_response(self, in_flight: float | None) -> None:
        hanging = [answers(10, at, in_flight=in_flight) for at in (40, 60, 80)]  # type: ignore[arg-type]
        assert len(paces(*ANSWERED, *hanging[:2])) == 1
        known = remembered(*ANSWERED, *hanging)
        since = None if in_flight is None else START + 40
        assert (known.paces, known.timing.answering) == ((), Answering(0.0, START + 20, since))

    @pytest.mark.parametrize(
        ("later", "since"),
        [
            ([answers(15, 40, in_flight=3)], 40),  # a busy server
            ([answers(15, 40, in_flight=3), answers(20, 60, in_flight=3)], 60),
            ([answers(10, at, in_flight=3) for at in (40, 60, 80)], 40),
            ([answers(10, at, in_flight=3, failed_total=at > 40) for at in (40, 60, 80)], 40),  # refused
            ([answers(10, 40, in_flight=3), answers(10, 60, in_flight=0), answers(10, 80, in_flight=3)], 80),
            ([answers(10, 40, in_flight=3), answers(10, 60, in_flight=0)], None),
            ([answers(10, 40, in_flight=3), answers(10, 60)], None),
        ],
    )
    def test_none_succeeds_since_requests_are_in_flight(self, later: Sequence[Job], since: float | None) -> None:
        known = remembered(*ANSWERED, *later)
        assert known.timing.answering is not None
        assert known.timing.answering.in_flight_since_seconds == (None if since is None else START + since)

    def test_a_server_that_hangs_and_is_restarted_and_hangs_again_has_answered_none_since_then(self) -> None:
        hangs = [answers(10, at, in_flight=3) for at in (40, 60)]
        again = [
            answers(0, at, in_flight=2).altered(process_started_at_seconds=START + 65, restarted=at == 70)
            for at in (70, 90)
        ]
        known = remembered(*ANSWERED, *hangs, *again)
        assert known.timing.answering == Answering(0.0, START + 20, START + 40)

    def test_a_server_whose_responses_all_fail_is_not_timed_by_those(self) -> None:
        failing = [answers(10, at, failed_total=at, failed_seconds_total=0.1, in_flight=0) for at in (40, 60, 80)]
        known = remembered(*ANSWERED, *failing)
        assert (known.paces, known.timing.answering) == ((), Answering(1.0, START + 20))

    def test_a_server_without_requests_keeps_its_figures(self) -> None:
        idle = [answers(10, at, in_flight=0) for at in (40, 60, 80, 100)]
        known = remembered(*ANSWERED, *idle)
        assert (len(known.paces), known.timing.answering) == (1, Answering())

    def test_slow_responses_have_three_of_their_own_time(self) -> None:
        """30 s each: none within 80 s says little, none within 90 s says that they hang."""
        slow = (serving(0, 0, 0, START), serving(1, 30, 30, START + 30))
        hanging = [serving(1, 30, 30 + at, START + 30 + at, in_flight=1) for at in (20, 40, 60, 80, 90)]
        assert len(paces(*slow, *hanging[:4])) == 1
        assert paces(*slow, *hanging) == ()

    def test_a_server_that_answers_again_is_timed_again(self) -> None:
        known = remembered(*ANSWERED, *(answers(10, at, in_flight=3) for at in (40, 60, 80)), answers(20, 100))
        assert known.paces == (Pace(START + 100, 2.0, 1.0),)
        assert known.timing.answering == Answering()

    def test_a_server_that_keeps_restarting_does_not_keep_the_figures_of_before(self) -> None:
        restarts = [
            answers(0, at).altered(restarted=True, process_started_at_seconds=START + at - 1)
            for at in range(25, 95, 10)
        ]
        known = remembered(*ANSWERED, *restarts)
        assert (known.paces, known.timing.answering) == ((), Answering(0.0, START + 25))

    def test_a_training_that_validates_for_minutes_keeps_its_figures(self) -> None:
        looks_at = [training(steps, at, START + at) for steps, at in ((0, 0), (10, 20), (10, 60), (10, 200))]
        assert remembered(*looks_at).paces == (Pace(START + 20, 2.0, 1.0),)

    @given(
        counts=st.lists(
            st.tuples(*(st.floats(0, 1e9, allow_nan=False) for _ in range(4)), st.none() | st.floats(0, 1e6)),
            min_size=2,
            max_size=8,
        )
    )
    def test_no_count_makes_a_pace_of_zero_or_infinity(self, counts: list[tuple[float, ...]]) -> None:
        jobs = [
            training(None, at * 20, START + at * 20).altered(responses=Responses(*each))
            for at, each in enumerate(counts)
        ]
        known = remembered(*jobs)
        assert all(0 < pace.seconds < float("inf") for pace in known.paces)
        assert known.timing.answering is None or 0 <= known.timing.answering.failed_ratio <= 1


def figures(*seen: tuple[float | None, float]) -> tuple[Pace, ...]:
    """(cores, seconds each), oldest first."""
    return tuple(Pace(START + 20 * number, seconds, cores) for number, (cores, seconds) in enumerate(seen))


class TestFit:
    @pytest.mark.parametrize(
        ("seen", "line"),
        [
            (((0.5, 2.0), (1.0, 1.2)), (0.4, 0.8)),
            (((0.5, 2.0),), (0.0, 1.0)),  # until two levels are seen only CPU counts
            (((0.50, 2.0), (0.52, 2.1)), (0.0, 1.02 / (1 / 2.0 + 1 / 2.1))),
            (((0.5, 4.0), (1.0, 1.0)), (0.0, 1.5 / 1.25)),  # slower than in proportion, as under a hard quota
        ],
    )
    def test_a_line_has_fixed_time(self, seen: tuple[tuple[float, float], ...], line: tuple[float, float]) -> None:
        assert fit(seen) == pytest.approx(line)

    def test_no_part_of_it_is_negative_where_it_is_slower_with_more_cpu(self) -> None:
        a, b = fit([(0.5, 1.0), (1.0, 3.0)])
        assert (a > 0, b) == (True, 0.0)

    def test_a_figure_counts_as_much_as_was_done_in_it(self) -> None:
        """2 steps in 20 s at 0.02 cores are a step off, 100 at one core are not: 0.1 CPU-seconds a step or so."""
        a, b = fit([(1.0, 0.1), (1.0, 0.1), (0.02, 10.0)])
        assert a + b == pytest.approx(0.1, rel=0.02)

    @pytest.mark.parametrize("seen", [(), figures((None, 1.0)), figures((0.0, 1.0))])
    def test_without_a_cpu_level_there_is_no_line(self, seen: tuple[Pace, ...]) -> None:
        assert calibrated(seen) is None

    @given(a=st.floats(0, 10), b=st.floats(0.01, 10), levels=st.lists(st.floats(0.05, 8), min_size=2, max_size=KEPT))
    def test_finds_the_line_that_exact_figures_lie_on(self, a: float, b: float, levels: list[float]) -> None:
        levels[0], levels[1] = 0.25, 1.0
        found = fit([(cores, a + b / cores) for cores in levels])
        assert found == pytest.approx((a, b), rel=1e-4, abs=1e-4)


class TestCalibrated:
    def test_the_newest_figures_say_where_the_line_is_now(self) -> None:
        slower = figures(*[(1.0, 1.0)] * 9, *[(1.0, 1.2)] * 3)
        assert calibrated(slower) == pytest.approx((0.0, 1.2))

    def test_the_fit_says_how_it_depends_on_cpu(self) -> None:
        """A line of 0.4 + 0.8/c until now; all of it takes half as long again where that is what is measured."""
        before, now = ((0.5, 2.0), (1.0, 1.2)) * 4, ((0.5, 3.0),) * 3
        a, b = calibrated(figures(*before, *now)) or (0.0, 0.0)
        assert a + b / 0.5 == pytest.approx(3.0)


@pytest.mark.parametrize(("seconds", "cores"), [(1.2, pytest.approx(1.0)), (0.4, None), (0.3, None)])
def test_cores_for_a_time_solve_the_line_if_cpu_can_do_it(seconds: float, cores: float | None) -> None:
    assert cores_for(seconds, (0.4, 0.8)) == cores
