"""Class records: what is kept of the jobs of a class, for how many, and what the next one is expected to need."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from support.worlds import START, a_job, a_snapshot

from slopewise.estimators.workload_classes import CLASSES_KEPT, ENDED_KEPT, JOBS_KEPT, expected, measure
from slopewise.model import Absence, ClassFigures, Job, JobMemory, JobState, MemoryState, Pace, Points, PolicyMemory
from slopewise.model.memory import MEMORY_JSON


def of_class(name: str, uid: str = "a", *, memory: float | None = None) -> Job:
    job = a_job(uid)
    assert job.usage is not None
    usage = msgspec.structs.replace(job.usage, memory_bytes=memory)
    return job.altered(workload_class=name, steps_planned=100.0, usage=usage)


def timed(*paces: tuple[float, float], at: float = START) -> JobMemory:
    """Seconds a step, and the cores meanwhile."""
    return JobMemory(paces=tuple(Pace(at, seconds, cores) for seconds, cores in paces))


def measured(jobs: list[Job], known: dict[str, JobMemory], before: MemoryState | None = None) -> MemoryState:
    classes = {} if before is None else before.classes
    return measure(a_snapshot(jobs), MemoryState(known, classes=classes), MemoryState())


def test_a_job_shows_how_its_class_depends_on_cpu() -> None:
    state = measured([of_class("vae", memory=7.0)], {"a": timed((2.0, 0.5), (1.2, 1.0))})
    (figures,) = state.classes["vae"]
    assert figures.line == pytest.approx((0.4, 0.8, 0.5), rel=1e-3)
    assert (figures.steps_planned, figures.memory_bytes) == (100.0, 7.0)
    assert expected("vae", state.classes) == pytest.approx((0.8, 100.0), rel=1e-3)


def test_what_is_not_known_is_not_kept() -> None:
    jobs = [of_class("", "nameless"), of_class("vae", "new"), of_class("gru", "no-cpu")]
    known = {"nameless": timed((1.0, 1.0)), "no-cpu": JobMemory(paces=(Pace(START, 1.0, None),))}
    assert measured(jobs, known).classes == {}
    assert expected("vae", {}) is None
    assert expected("", {"": (ClassFigures("a", START, 0.0, 1.0, 1.0),)}) is None


def test_a_record_outlives_its_jobs_and_has_their_newest_figures_and_highest_memory() -> None:
    first = measured([of_class("vae", memory=9.0)], {"a": timed((1.0, 1.0))})
    later = measured([of_class("vae", memory=5.0)], {"a": timed((2.0, 1.0), at=START + 20)}, first)
    gone = measured([], {}, later)
    (figures,) = gone.classes["vae"]
    assert (figures.cpu_seconds, figures.memory_bytes) == (2.0, 9.0)


def test_without_a_new_pace_the_record_is_as_if_it_were_made_now() -> None:
    known = {"a": timed((2.0, 0.5), (1.2, 1.0))}
    job = of_class("vae", memory=9.0).altered(steps_planned=200.0)
    later = measured([job], known, measured([of_class("vae", memory=5.0)], known))
    assert later.classes == measured([job], known).classes
    assert later.classes["vae"][0].steps_planned == 200.0


def test_one_odd_job_does_not_speak_for_its_class() -> None:
    jobs = [of_class("vae", uid) for uid in "abc"]
    known = {"a": timed((1.0, 1.0)), "b": timed((1.1, 1.0)), "c": timed((50.0, 1.0))}
    assert expected("vae", measured(jobs, known).classes) == (1.1, 100.0)


def test_the_newest_jobs_of_the_classes_seen_last_are_kept_in_little_space() -> None:
    state = MemoryState()
    for number in range(3 * CLASSES_KEPT):
        jobs = [of_class(f"class-{number:04}", f"0b5c9a4e-8f0e-4f0e-9d52-{number:08}{n}:0") for n in range(6)]
        known = {job.uid: timed((0.123456, 0.987654), at=START + n) for n, job in enumerate(jobs)}
        state = measured(jobs, known, state)
    assert len(state.classes) == CLASSES_KEPT
    assert f"class-{3 * CLASSES_KEPT - 1:04}" in state.classes
    assert [each.at_seconds for each in state.classes[f"class-{3 * CLASSES_KEPT - 1:04}"]] == [
        START + n for n in range(6 - JOBS_KEPT, 6)
    ]
    stored = MEMORY_JSON.encode(state.classes)
    assert len(stored) < 32 * 1024
    assert msgspec.json.decode(stored, type=dict[str, tuple[ClassFigures, ...]]) == state.classes


def ended(uid: str, work: float, at: float = START, name: str = "vae", **more: object) -> JobMemory:
    points = Points("cpu", "loss", b"", at, work, cpu_seconds=work, counted_at_seconds=at, workload_class=name)
    return JobMemory(points=points, **more)  # type: ignore[arg-type]


def over(known: dict[str, JobMemory], before: MemoryState | None = None, at: float = START) -> MemoryState:
    """A pass after these jobs have ended and left."""
    absent = tuple(Absence(uid, "finished", "") for uid in known)
    snapshot = replace(a_snapshot([]), absent=absent, taken_at_seconds=at)
    return measure(snapshot, before or MemoryState(), MemoryState(known))


class TestEnded:
    def test_jobs_leave_their_work_also_what_was_used_after_the_last_count_and_nothing_of_their_speed(self) -> None:
        (figures,) = over({"a": ended("a", 150.0)}).classes["vae"]
        assert (figures.work, figures.line) == (150.0, None)
        later = over({"a": ended("a", 150.0, decided=PolicyMemory(wanted_cores=0.5))}, at=START + 10)
        assert later.classes["vae"][0].work == 155.0
        much_later = over({"a": ended("a", 150.0, decided=PolicyMemory(wanted_cores=0.5))}, at=START + 4000)
        assert much_later.classes["vae"][0].work == 150.0
        assert expected("vae", much_later.classes) is None

    @pytest.mark.parametrize("state", ["moving", "waiting", "suspended", "stopped", "failed"])
    def test_only_what_has_finished_has_ended(self, state: Any) -> None:
        snapshot = replace(a_snapshot([]), absent=(Absence("a", state, ""),))
        assert measure(snapshot, MemoryState(), MemoryState({"a": ended("a", 150.0)})).classes == {}

    def test_a_job_that_reports_its_end_and_stays_is_recorded_once(self) -> None:
        job = of_class("vae").altered(state=JobState.FINISHED)
        known = {"a": ended("a", 150.0)}
        first = measure(a_snapshot([job]), MemoryState(known), MemoryState())
        again = measure(a_snapshot([job]), MemoryState(known, classes=first.classes), MemoryState())
        assert [each.work for each in again.classes["vae"]] == [150.0]

    def test_a_job_that_ends_beside_newer_ones_leaves_what_it_was_timed_at(self) -> None:
        jobs = [of_class("vae", uid) for uid in "abcde"]
        known = {job.uid: timed((1.0, 1.0), at=START + n) for n, job in enumerate(jobs)}
        jobs[0], known["a"] = jobs[0].altered(state=JobState.FINISHED), ended("a", 150.0, paces=known["a"].paces)
        state = measured(jobs, known)
        assert [(each.line is not None, each.work) for each in state.classes["vae"] if each.job_uid == "a"] == [
            (True, 150.0)
        ]

    def test_ranks_of_one_training_count_once(self) -> None:
        state = over({f"team:{rank}": ended("", 150.0) for rank in range(3)} | {"other:0": ended("", 99.0)})
        assert sorted(each.work or 0 for each in state.classes["vae"]) == [99.0, 150.0]

    def test_what_was_timed_stays_beside_what_the_end_has_shown(self) -> None:
        timed_before = measured([of_class("vae")], {"a": timed((1.0, 1.0))})
        (figures,) = over({"a": ended("a", 150.0, at=START + 5)}, timed_before).classes["vae"]
        assert (figures.line, figures.work) == ((0.0, 1.0, 1.0), 150.0)

    def test_trials_that_ended_and_stay_do_not_push_out_the_class_of_a_job_that_runs(self) -> None:
        """A sweep of 100 trials has as many classes; the pods of a finished Job stay as long as that."""
        trials = [of_class(f"trial-{n}", f"t{n}").altered(state=JobState.FINISHED) for n in range(100)]
        known = {f"t{n}": ended("", 10.0, START + n, f"trial-{n}", paces=timed((1.0, 1.0)).paces) for n in range(100)}
        runs = {"a": timed((1.0, 1.0), at=START + 200)}
        first = measured([of_class("vae"), *trials], known | runs)
        assert set(first.classes) == {"vae", *(f"trial-{n}" for n in range(101 - CLASSES_KEPT, 100))}
        again = measured([of_class("vae"), *trials], known | runs, first)
        assert list(again.classes.items()) == list(first.classes.items()), "and they do not take turns"

    def test_only_the_newest_are_kept(self) -> None:
        state = MemoryState()
        for number in range(2 * ENDED_KEPT):
            state = over({f"job-{number}": ended("", 100.0 + number, at=START + number)}, state)
        assert [each.work for each in state.classes["vae"]] == [100.0 + n for n in range(ENDED_KEPT, 2 * ENDED_KEPT)]
        older = {f"job-{number}": ended("", 100.0 + number, at=START + number) for number in range(2 * ENDED_KEPT)}
        assert over(older, state).classes == state.classes
