"""Class records: what is kept of the jobs of a class, for how many, and what the next one is expected to need."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from support.worlds import START, a_job, a_snapshot

from slopewise.estimators.workload_classes import CLASSES_KEPT, JOBS_KEPT, expected, measure
from slopewise.model import ClassFigures, Job, JobMemory, MemoryState, Pace
from slopewise.model.memory import MEMORY_JSON


def of_class(name: str, uid: str = "a", *, planned: float | None = 100.0, memory: float | None = None) -> Job:
    job = a_job(uid)
    assert job.usage is not None
    usage = msgspec.structs.replace(job.usage, memory_bytes=memory)
    return replace(job, workload_class=name, steps_planned=planned, usage=usage)


def timed(*paces: tuple[float, float], at: float = START) -> JobMemory:
    """Seconds a step, and the cores meanwhile."""
    return JobMemory(paces=tuple(Pace(at, seconds, cores) for seconds, cores in paces))


def measured(jobs: list[Job], known: dict[str, JobMemory], before: MemoryState | None = None) -> MemoryState:
    classes = {} if before is None else before.classes
    return measure(a_snapshot(jobs), MemoryState(known, classes=classes))


def test_a_job_shows_how_its_class_depends_on_cpu() -> None:
    state = measured([of_class("vae", memory=7.0)], {"a": timed((2.0, 0.5), (1.2, 1.0))})
    found = expected("vae", state.classes)
    assert found is not None
    assert found.line == pytest.approx((0.4, 0.8), rel=1e-3)
    assert (found.steps_planned, found.memory_bytes, found.least_cores, found.jobs) == (100.0, 7.0, 0.5, 1)
    assert found.cores_for(1.2) == pytest.approx(1.0, rel=1e-3)
    assert found.cores_for(0.4) is None


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


def test_one_odd_job_does_not_speak_for_its_class() -> None:
    jobs = [of_class("vae", uid) for uid in "abc"]
    known = {"a": timed((1.0, 1.0)), "b": timed((1.1, 1.0)), "c": timed((50.0, 1.0))}
    found = expected("vae", measured(jobs, known).classes)
    assert found is not None
    assert found.line == (0.0, 1.1)


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
