"""What the service of a session takes, refuses, stores and forgets; the session itself is a small fake."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace as altered
from support.worlds import START, FakeClock

from slopewise.adapters.local.attached import ENDED, AttachedProcess
from slopewise.adapters.local.cleanup import current_boot_id
from slopewise.adapters.local.crashed_runs import NOTHING_EARLIER
from slopewise.adapters.local.job_record import JobRecord
from slopewise.adapters.local.limiters.identity import ProcessIdentity, identify
from slopewise.adapters.local.queue_file import QueueFile, StoredEnd, StoredJob, StoredProcess
from slopewise.adapters.local.session_requests import Answer, Attach, Cancel, Request, SetMode, Submit
from slopewise.config.jobs_file import JobSpec
from slopewise.config.training_policy import TrainingPolicy, TrainingPolicySpec
from slopewise.errors import SlopewiseError, UsageError
from slopewise.local.passes import FollowedPasses
from slopewise.local.result import result_of
from slopewise.local.service import MAX_ENDED, Service
from slopewise.local.session import Session
from slopewise.local.tally import JobTally, RunTally


@dataclass
class FakeSession:
    """Takes jobs and starts none."""

    clock: FakeClock = field(default_factory=FakeClock)
    plan: Any = field(
        default_factory=lambda: SimpleNamespace(earlier=replace(NOTHING_EARLIER, started_at_seconds=START))
    )
    records: dict[str, JobRecord] = field(default_factory=dict)
    fresh: list[str] = field(default_factory=list)
    refuses: str = ""
    tally: RunTally = field(default_factory=RunTally)
    document: TrainingPolicy = field(default_factory=lambda: TrainingPolicy(spec=TrainingPolicySpec()))
    workshop: Any = field(default_factory=lambda: SimpleNamespace(controlled=lambda policy: policy))

    def use(self, policy: TrainingPolicy, store: Callable[[], None]) -> None:
        store()
        self.document = policy

    @property
    def supervisor(self) -> FakeSession:
        return self

    def add(self, specs: Sequence[JobSpec], *, fresh: bool = True) -> None:
        if self.refuses:
            raise UsageError(self.refuses)
        self.records |= {spec.name: JobRecord(spec, spec.port or 20_001) for spec in specs}
        self.fresh += [spec.name for spec in specs if fresh]

    def attach(self, spec: JobSpec, identity: ProcessIdentity, *, fresh: bool = True) -> None:
        if self.refuses:
            raise UsageError(self.refuses)
        process = AttachedProcess(spec.name, identity, lambda: [identity.pid])
        self.records[spec.name] = JobRecord(spec, spec.port or 0, process, START, "local", START)

    def recall(self, records: dict[str, JobRecord]) -> None:
        self.records = {**records, **self.records}

    def forget(self, names: Collection[str]) -> None:
        self.records = {name: record for name, record in self.records.items() if name not in names}

    def cancel(self, name: str) -> None:
        end(self.records[name], stopped_at_target="cancelled")


class Disk(QueueFile):
    """A queue on a disk that may be full."""

    full = False

    def save(self, jobs: Iterable[StoredJob]) -> None:
        if self.full:
            raise SlopewiseError("the disk is full; make room.")
        super().save(jobs)


def end(record: JobRecord, **how: Any) -> None:
    record.arrived_at_seconds = record.started_at_seconds = START
    record.finished_at_seconds = START + 5
    for name, value in how.items():
        setattr(record, name, value)


@dataclass
class World:
    session: FakeSession
    service: Service
    file: Disk

    def ask(self, request: Request) -> Answer:
        return msgspec.json.decode(self.service.answer(msgspec.json.encode(request)), type=Answer)

    def submit(self, *entries: dict[str, Any], renames: bool = False) -> Answer:
        environment = {"GREETING": "hello", "SLOPEWISE_RUN_ID": "of another run"}
        return self.ask(Submit(list(entries), "jobs.yaml", "/home/me", environment, renames))

    def again(self) -> World:
        """The next session, with the same queue."""
        return a_world(self.file)


def a_world(file: Disk) -> World:
    session = FakeSession()
    service = Service(cast(Session, session), FollowedPasses(TrainingPolicySpec), "slopewise up")
    service.take_over(file)
    return World(session, service, file)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return a_world(Disk(tmp_path / "queue.json"))


def entry(name: str = "a", **keys: Any) -> dict[str, Any]:
    return {"name": name, "command": ["true"], **keys}


class TestSubmit:
    def test_a_job_is_stored_with_its_folder_and_environment_but_no_variable_of_ours(self, world: World) -> None:
        assert world.submit(entry(env={"B": "1"}), entry("b", after="a")).names == ["a", "b"]
        spec = world.session.records["a"].spec
        assert spec.environment == {"GREETING": "hello", "B": "1"}
        assert spec.working_directory == Path("/home/me")
        assert [(job.number, job.started) for job in world.file.load().values()] == [(1, False), (2, False)]
        assert world.session.records["b"].spec.queueing.submission == 2

    def test_a_sweep_is_stored_as_its_trials_with_their_arguments_and_places(self, world: World) -> None:
        names = ["s-1-lr1", "s-2-lr2"]
        assert world.submit(entry("s", sweep={"grid": {"lr": [1, 2]}, "maxRunning": 1}, favour="best")).names == names
        records = world.again().session.records
        assert list(records) == names
        spec = records["s-2-lr2"].spec
        assert (spec.arguments, spec.queueing.study, spec.queueing.max_running) == ({"lr": "2"}, "s", 1)
        assert spec.objectives.favours_best

    def test_a_name_is_used_once_at_a_time_and_numbered_where_it_was_not_chosen(self, world: World) -> None:
        world.submit(entry())
        taken = world.submit(entry())
        assert (taken.exit_code, taken.error) == (
            2, "jobs.yaml: a is waiting already; cancel it, or give another name.",
        )  # fmt: skip
        assert world.submit(entry(), renames=True).names == ["a-2"]
        end(world.session.records["a"], exit_status=0)
        assert world.submit(entry()).names == ["a"]
        assert world.file.load()["a"].number == 3

    def test_what_cannot_be_taken_is_one_sentence_and_stores_nothing(self, world: World) -> None:
        world.submit(entry(port=9464))
        assert "b: port 9464 is that of another job" in world.submit(entry("b", port=9464)).error
        assert "b: memory: 1073741824Mi is more than the" in world.submit(entry("b", memory="1048576Gi")).error
        assert "there is no job or study 'none'" in world.submit(entry("b", after="none")).error
        world.session.refuses = "b: its command is not an executable file."
        assert world.submit(entry("b")).error == world.session.refuses
        assert list(world.file.load()) == ["a"]

    def test_none_comes_after_one_that_waits_for_it(self, world: World) -> None:
        world.submit(entry("a"), entry("b", after="a"))
        assert "jobs.yaml: b, c come after one another" in world.submit(entry("c", study="a", after="b")).error
        end(world.session.records["a"], exit_status=0)
        assert "jobs.yaml: a, b come after one another" in world.submit(entry("a", after="b")).error
        end(world.session.records["b"], exit_status=0)
        assert world.submit(entry("a", after="b")).names == ["a"]

    def test_where_the_queue_cannot_be_written_nothing_is_taken(self, world: World) -> None:
        world.file.full = True
        assert world.submit(entry()).error == "the disk is full; make room."
        assert world.session.records == {}

    def test_what_fails_in_no_foreseen_way_is_told_and_leaves_nothing_to_be_started_later(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(*_: object, **__: object) -> None:
            raise OSError("no such device")

        monkeypatch.setattr(world.session, "add", fails)
        assert "The request failed (OSError)" in world.submit(entry()).error
        assert world.file.load() == {}
        assert world.again().session.records == {}

    def test_a_run_of_a_jobs_file_takes_none(self) -> None:
        service = Service(cast(Session, FakeSession()), FollowedPasses(TrainingPolicySpec), "slopewise run --local")
        answer = World(FakeSession(), service, cast(Disk, None)).submit(entry())
        assert "`slopewise run --local` has jobs of its own and takes no others" in answer.error

    def test_what_is_no_request_is_an_error_and_a_bug_ends_nothing(self, world: World) -> None:
        assert b"The request cannot be read" in world.service.answer(b"{")
        assert b"The request cannot be read" in world.service.answer(b'{"type": "Nonsense"}')
        broken = world.ask(Submit([{"command": "x"}], "w", "/", {}, renames=True))
        assert broken.error == "The request failed (KeyError); the session's log has more."


class TestMode:
    def test_it_holds_from_the_next_session_on_too(self, world: World) -> None:
        world.service._set_mode("auto")
        assert (world.session.document.spec.mode, world.again().session.document.spec.mode) == ("Auto", "Auto")

    def test_where_it_cannot_be_stored_it_stays_as_it_was_in_one_sentence(self, world: World, tmp_path: Path) -> None:
        (tmp_path / "mode.new").mkdir()
        answer = world.ask(SetMode("Auto"))
        assert (answer.exit_code, answer.error.partition(";")[0]) == (
            1, f"{tmp_path / 'mode'}: cannot be written (Is a directory)",
        )  # fmt: skip
        assert (world.session.document.spec.mode, world.file.mode_after(None)) == (TrainingPolicySpec().mode, None)


class TestCancel:
    def test_by_name_by_study_or_all_and_only_what_is_left(self, world: World) -> None:
        world.submit(entry("a"), entry("b", study="s"), entry("c", study="s"), entry("d"))
        assert world.ask(Cancel(["a"])).names == ["a"]
        assert world.ask(Cancel(["a"])).names == []
        assert world.ask(Cancel(study="s")).names == ["b", "c"]
        assert world.ask(Cancel(everything=True)).names == ["d"]
        typo = world.ask(Cancel(study="ss"))
        assert (typo.exit_code, typo.error) == (2, "there is no study 'ss'; did you mean 's'?")
        assert world.ask(Cancel(study="s")).names == []
        wrong = world.ask(Cancel(["aa"]))
        assert (wrong.exit_code, wrong.error) == (2, "there is no job 'aa'; did you mean 'a'?")


class TestAttach:
    @pytest.fixture(autouse=True)
    def any_process(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whether one may be attached is another test's (`test_attached.py`)."""
        monkeypatch.setattr("slopewise.local.service.attachable", identify)

    def test_it_is_stored_with_its_start_time_and_attached_again_by_the_next_session(self, world: World) -> None:
        pid = os.getpid()
        assert world.ask(Attach(pid, entry(port=9464))).names == ["a"]
        world.service.tick()
        stored = world.file.load()["a"]
        assert (stored.process, stored.started, stored.log) == (
            StoredProcess(*identify(pid), current_boot_id()), True, "",
        )  # fmt: skip
        again = world.again().session.records["a"]
        assert (again.state, again.port, again.process.pid if again.process else None) == ("running", 9464, pid)

    @pytest.mark.parametrize("other", [{"started_ticks": 1}, {"boot_id": "another"}])
    def test_it_has_ended_for_the_next_session_if_its_pid_is_reused(self, world: World, other: dict[str, Any]) -> None:
        world.ask(Attach(os.getpid(), entry()))
        stored = world.file.load()["a"]
        assert stored.process is not None
        world.file.save([altered(stored, process=altered(stored.process, **other))])
        record = world.again().session.records["a"]
        assert (record.state, record.process, record.last_output_lines) == ("ended", None, ENDED)

    def test_one_that_cannot_be_attached_again_says_why_and_is_asked_about_once(self, world: World) -> None:
        world.ask(Attach(os.getpid(), entry()))
        session = FakeSession(refuses="a running process is attached through cgroups.")
        Service(cast(Session, session), FollowedPasses(TrainingPolicySpec), "slopewise up").take_over(world.file)
        assert session.records["a"].last_output_lines == session.refuses
        assert world.again().session.records["a"].process is None

    def test_one_that_is_a_job_or_whose_name_is_taken_is_refused_and_not_stored(self, world: World) -> None:
        world.ask(Attach(os.getpid(), entry()))
        again = world.ask(Attach(os.getpid(), entry("b")))
        assert (again.exit_code, again.error) == (2, f"process {os.getpid()} is one of the job a already.")
        taken = world.ask(Attach(os.getppid(), entry()))
        assert taken.error == "attach: a is running already; cancel it, or give another name."
        world.session.refuses = "its cgroup cannot be left."
        assert world.ask(Attach(os.getppid(), entry(), renames=True)).error == world.session.refuses
        assert list(world.file.load()) == ["a"]


class TestStored:
    def test_what_becomes_of_a_job_is_stored_and_secrets_only_until_its_end(self, world: World) -> None:
        world.submit(entry())
        world.session.records["a"].started_at_seconds = START
        world.service.tick()
        stored = world.file.load()["a"]
        assert (stored.started, stored.end, stored.environment) == (True, None, {"GREETING": "hello"})
        end(world.session.records["a"], exit_status=3, last_output_lines="no data")
        world.service.tick()
        stored = world.file.load()["a"]
        assert (stored.end is not None, stored.environment) == (True, {})
        record = world.again().session.records["a"]
        assert (record.state, record.exit_status, record.last_output_lines) == ("failed", 3, "no data")

    def test_what_a_trial_has_reported_by_its_end_is_known_to_the_next_session(self, world: World) -> None:
        world.submit(entry("s", sweep={"list": [{"lr": 1}]}))
        end(world.session.records["s-1-lr1"], exit_status=0)
        world.service.tick()
        world.session.tally.jobs["s-1-lr1"] = JobTally("max", 0.25, 0.5, False, rungs={0: 0.25})  # by the next pass
        world.service.tick()
        known = world.again().session.tally.of("s-1-lr1")
        assert (known.objective, known.first_level, known.last_level, known.finite) == ("max", 0.25, 0.5, False)
        assert known.rungs == {0: 0.25}

    @pytest.mark.parametrize("ended", [False, True], ids=["while it runs", "in the last reading"])
    def test_the_study_that_a_job_names_itself_is_known_to_the_next_session(self, world: World, ended: bool) -> None:
        world.submit(entry())
        record = world.session.records["a"]
        if ended:
            end(record, exit_status=0)
            world.service.tick()
        record.spec = replace(record.spec, queueing=replace(record.spec.queueing, study="own"))
        world.service.tick()
        assert world.again().session.records["a"].spec.queueing.study == "own"

    def test_a_full_disk_is_tried_again_and_ends_nothing(self, world: World) -> None:
        world.submit(entry())
        world.session.records["a"].started_at_seconds = START
        world.file.full = True
        world.service.tick()
        assert not world.file.load()["a"].started
        world.file.full = False
        assert world.service._save_at > 0
        world.service._save_at = 0.1  # it is time
        world.service.tick()
        assert world.file.load()["a"].started

    def test_the_oldest_of_many_that_have_ended_are_forgotten_and_none_that_has_not(self, world: World) -> None:
        names = [f"e{number}" for number in range(MAX_ENDED + 2)]
        world.submit(*map(entry, names), entry("waits"))
        for name in names:
            end(world.session.records[name], exit_status=0)
        world.service.tick()
        assert list(world.file.load()) == list(world.session.records) == [*names[2:], "waits"]

    def test_the_best_trial_of_a_study_is_remembered_as_long_as_one_of_the_others_is(self, world: World) -> None:
        names = [f"e{number}" for number in range(MAX_ENDED + 3)]
        world.submit(*(entry(name, study="s") for name in names))
        for name in names:
            end(world.session.records[name], exit_status=0)
            world.session.tally.jobs[name] = JobTally("min", 9.0, 0.1 if name == "e1" else 0.5)
        world.service.tick()
        assert list(world.session.records) == list(world.file.load()) == ["e1", *names[3:]]
        world.submit(*map(entry, others := [f"o{number}" for number in range(MAX_ENDED)]))
        for name in others:
            end(world.session.records[name], exit_status=0)
            world.session.records[name].finished_at_seconds = START + 600
        world.service.tick()
        assert list(world.session.records) == others

    def test_a_long_job_is_not_forgotten_at_its_end_because_others_came_later(self, world: World) -> None:
        names = [f"e{number}" for number in range(MAX_ENDED)]
        world.submit(entry("long"), *map(entry, names))
        for name in (*names, "long"):
            end(world.session.records[name], exit_status=0)
        world.session.records["long"].finished_at_seconds = START + 600
        world.service.tick()
        assert list(world.session.records) == ["long", *names[1:]]


class TestTheNextSession:
    def test_a_mode_of_which_the_disk_has_kept_nothing_is_none(self, world: World) -> None:
        world.file._mode.write_text("")
        world.submit(entry())
        assert list(world.again().session.records) == ["a"]

    def test_one_that_was_not_started_waits_again(self, world: World) -> None:
        world.submit(entry(arriveSeconds=30))
        next_one = world.again()
        record = next_one.session.records["a"]
        assert (record.state, record.spec.arrive_seconds, next_one.session.fresh) == ("waiting", 30.0, [])

    def test_one_cut_off_by_a_restart_of_the_machine_is_started_again_if_its_owner_says_so(self, world: World) -> None:
        world.submit(entry("once"), entry("again", restart={"onFailure": 1}))
        for record in world.session.records.values():
            record.started_at_seconds = START
        world.service.tick()
        after = world.again()
        once, again = (after.session.records[name] for name in ("once", "again"))
        assert once.state == "ended"
        assert result_of(once, JobTally(), START).note == "was cut off when the machine was restarted"
        assert (again.state, again.spec.queueing.attempt) == ("waiting", 1)
        stored = after.file.load()["again"]
        assert (stored.attempt, stored.started) == (1, False)

    def test_an_entry_that_this_version_cannot_use_has_failed_with_the_reason(self, world: World) -> None:
        job = StoredJob(1, "a", entry(newKey=1), "/", {}, START)
        world.file.save([job, StoredJob(2, "b", entry("b", newKey=1), "/", {}, START, end=StoredEnd(START))])
        records = world.again().session.records
        assert records["a"].state == "failed"
        assert "a: job 1: newKey: unknown key" in records["a"].last_output_lines
        assert records["b"].finished_at_seconds == START
