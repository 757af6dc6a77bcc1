"""Which waiting job is started: order, places, jobs before it, restarts, memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from support.limiting import FakeLimiter
from support.worlds import START

from slopewise.adapters.local.job_queue import REPORT_SECONDS, JobQueue, Queued, again, turn
from slopewise.adapters.local.job_record import CUT_OFF, JobRecord
from slopewise.config.jobs_file import JobSpec, Queueing
from slopewise.errors import ActuationError
from slopewise.model import JobState, Usage

GIB = 2**30


def a_job(name: str, state: str = "waiting", *, due: bool = True, used: int = 0, **queueing: object) -> Queued:
    needs = queueing.get("memory_bytes") or 0
    assert isinstance(needs, int)
    return Queued(name, state, due, Queueing(**queueing), needs, used)  # type: ignore[arg-type]


class TestPlaces:
    def test_no_more_run_than_there_are_places_and_the_first_comes_first(self) -> None:
        without_bound = turn([a_job("a"), a_job("b"), a_job("c", due=False)], None, GIB)
        assert (without_bound.start, without_bound.waits) == (("a", "b"), {"c": "starts later"})
        decided = turn([a_job("a", "running"), a_job("b"), a_job("c")], 2, GIB)
        assert decided.start == ("b",)
        assert decided.waits == {"c": "waits for a place: 2 of 2 run"}

    def test_one_that_moves_or_stops_has_its_place_and_one_that_has_ended_has_none(self) -> None:
        listed = [a_job("a", "moving"), a_job("b", "stopping"), a_job("c", "finished"), a_job("d"), a_job("e")]
        assert turn(listed, 3, GIB).start == ("d",)

    def test_a_study_has_places_of_its_own_and_holds_up_no_other_job(self) -> None:
        study = [a_job(f"s-{number}", study="s", max_running=2) for number in range(1, 4)]
        decided = turn([a_job("s-0", "running", study="s"), *study, a_job("b")], 5, GIB)
        assert decided.start == ("s-1", "b")
        assert decided.waits == dict.fromkeys(("s-2", "s-3"), "waits for a place in s: 2 of 2 run")


class TestAfter:
    def test_a_job_waits_for_the_end_of_another_and_holds_up_none(self) -> None:
        decided = turn([a_job("a", "running"), a_job("b", after=("a",)), a_job("c")], 2, GIB)
        assert decided.start == ("c",)
        assert decided.waits == {"b": "waits for the end of a"}
        study = [a_job("a-1", "finished", study="a"), a_job("a-2", "running", study="a")]
        assert turn([*study, a_job("b", after=("a",))], None, GIB).waits == {"b": "waits for the end of a-2"}

    @pytest.mark.parametrize("ended", ["finished", "stopped at target", "ended"])
    def test_it_is_started_once_that_has_succeeded(self, ended: str) -> None:
        assert turn([a_job("a", ended), a_job("b", after=("a",))], 1, GIB).start == ("b",)

    @pytest.mark.parametrize(
        ("ended", "why"),
        [
            ("failed", "has failed"),
            ("cancelled", "was cancelled"),
            (CUT_OFF, "was cut off when the machine was restarted"),
        ],
    )
    def test_it_is_never_started_after_one_that_has_not(self, ended: str, why: str) -> None:
        decided = turn([a_job("a", ended), a_job("b", after=("a",))], 1, GIB)
        assert (decided.start, decided.never) == ((), {"b": f"not started: a, after which it comes, {why}"})


class TestMemory:
    def test_one_for_which_too_little_is_left_holds_up_those_behind_it(self) -> None:
        listed = [a_job("a", "running"), a_job("big", memory_bytes=4 * GIB), a_job("small", memory_bytes=GIB)]
        decided = turn(listed, 5, 2 * GIB)
        assert decided.start == ()
        assert decided.waits["big"].startswith("waits for memory: needs 4096Mi, 2048Mi left")
        assert decided.waits["small"] == "waits behind big, which waits for memory"

    def test_what_running_jobs_will_still_take_is_not_left(self) -> None:
        young = a_job("young", "running", memory_bytes=3 * GIB, used=GIB)
        assert turn([young, a_job("b", memory_bytes=3 * GIB)], 5, 4 * GIB).start == ()
        grown = replace(young, used_bytes=3 * GIB)
        assert turn([grown, a_job("b", memory_bytes=3 * GIB)], 5, 4 * GIB).start == ("b",)
        together = [a_job(name, memory_bytes=3 * GIB) for name in ("a", "b")]
        assert turn(together, 5, 4 * GIB).start == ("a",)

    def test_a_guess_keeps_no_job_from_an_empty_machine_and_a_stated_need_does(self) -> None:
        guessed = Queued("a", "waiting", due=True, queueing=Queueing(), expected_bytes=GIB)
        assert turn([guessed], 5, 0.5 * GIB).start == ("a",)
        assert turn([a_job("a", memory_bytes=GIB)], 5, 0.5 * GIB).start == ()


def a_record(name: str, *, failed: bool = False, **queueing: object) -> JobRecord:
    record = JobRecord(JobSpec(name, ["true"], 0.0, queueing=Queueing(**queueing)), 20_001)  # type: ignore[arg-type]
    if failed:
        record.arrived_at_seconds = record.started_at_seconds = START
        record.finished_at_seconds, record.exit_status, record.cpu_seconds = START + 5, 3, 2.0
    return record


class TestAgain:
    def test_a_failed_job_is_started_again_after_a_pause_that_doubles(self) -> None:
        first = again(a_record("a", failed=True, restarts=2, submission=7), 100.0)
        assert first is not None
        assert (first.state, first.port, first.earlier_cpu_seconds) == ("waiting", 20_001, 2.0)
        assert first.spec.arrive_seconds == 110.0
        assert first.spec.queueing == Queueing(restarts=2, attempt=1, submission=7)
        second = again(a_record("a", failed=True, restarts=2, attempt=1), 200.0)
        assert second is not None
        assert second.spec.arrive_seconds == 220.0

    def test_one_that_could_not_be_started_or_has_not_failed_is_not_nor_more_often_than_its_owner_says(self) -> None:
        assert again(a_record("a", failed=True, restarts=2, attempt=2), 0.0) is None
        assert again(a_record("a", failed=True), 0.0) is None
        never = a_record("a", failed=True, restarts=2)
        never.started_at_seconds = None
        assert again(never, 0.0) is None
        done = a_record("a", failed=True, restarts=2)
        done.exit_status = 0
        assert again(done, 0.0) is None


class TestTheQueueOfASession:
    def test_it_expects_of_a_job_what_one_of_its_class_has_used(self) -> None:
        def usage(name: str) -> Usage:
            if name == "gone":
                raise ActuationError("it has just ended")
            return Usage(START, memory_bytes=2**60)

        running, gone, alike, other = (a_record(name) for name in ("running", "gone", "alike", "other"))
        for record in (running, gone):
            record.arrived_at_seconds = record.started_at_seconds = START
        for record in (running, alike):
            record.spec = replace(record.spec, workload_class="resnet")
        queue = JobQueue(usage, max_running=5)
        decided = queue.turn({each.spec.name: each for each in (running, gone, alike, other)}, START, START)
        assert decided.waits["alike"].startswith(f"waits for memory: needs {2**60 // 2**20}Mi")
        assert queue.waits == decided.waits


class TestAfterAJobWhoseExitStatusIsNotKnown:
    """One that a killed controller had started, or that was attached."""

    def turn_after(
        self, seconds: float, reported: JobState | None = None, last_output_lines: str = ""
    ) -> tuple[tuple[str, ...], Mapping[str, str], Mapping[str, str]]:
        """Whose turn it is, so long after its end."""
        ended = a_record("a")
        ended.arrived_at_seconds = ended.started_at_seconds = START
        ended.finished_at_seconds, ended.status_unknown = START + 5, True
        ended.last_output_lines = last_output_lines
        queue = JobQueue(FakeLimiter().usage, max_running=1, reported=lambda _: reported)
        records = {"a": ended, "b": a_record("b", after=("a",))}
        decided = queue.turn(records, START + 5 + seconds, START)
        return decided.start, decided.waits, decided.never

    @pytest.mark.parametrize("reported", [None, JobState.TRAINING])
    def test_a_report_is_waited_for_and_without_one_the_next_is_started(self, reported: JobState | None) -> None:
        assert self.turn_after(REPORT_SECONDS - 1, reported) == ((), {"b": "waits for the end of a"}, {})
        assert self.turn_after(REPORT_SECONDS, reported) == (("b",), {}, {})
        assert self.turn_after(0.1, JobState.FINISHED) == (("b",), {}, {}), "what it has reported counts at once"
        assert self.turn_after(0.1, JobState.FAILED)[2] == {"b": "not started: a, after which it comes, has failed"}

    def test_one_that_a_restart_of_the_machine_has_cut_off_has_not_finished(self) -> None:
        never = {"b": f"not started: a, after which it comes, {CUT_OFF}"}
        assert self.turn_after(REPORT_SECONDS, last_output_lines=CUT_OFF) == ((), {}, never)
