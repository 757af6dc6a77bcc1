"""When jobs start and where: at once on one node, after a word of the pass or without it on several; and moves."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.limiting import FakeLimiter
from support.worlds import START, FakeClock, a_snapshot

from slopewise.adapters.local.cleanup import StartedCommand, StartedProcess
from slopewise.adapters.local.crashed_runs import EarlierJob, EarlierRun
from slopewise.adapters.local.job_processes import GRACE_SECONDS, KILL_SECONDS, JobProcesses, last_losses
from slopewise.adapters.local.job_record import SHOWN_SECONDS, JobRecord
from slopewise.adapters.local.launcher import Command, ForeignProcess, single_thread_environment
from slopewise.adapters.local.limiters.base import UNLIMITED
from slopewise.adapters.local.move import RESUME_SECONDS
from slopewise.adapters.local.nodes import LocalNode
from slopewise.adapters.local.supervisor import PLACEMENT_WAIT_SECONDS, REPORTED_SECONDS, Supervisor
from slopewise.adapters.prometheus.reader import JobSeries
from slopewise.config.jobs_file import JobSpec, Queueing
from slopewise.errors import ActuationError, SlopewiseError
from slopewise.model import JobState, Migrate, MoveUnderWay, Node, Objectives, PassReport, Stop

CORES = frozenset(os.sched_getaffinity(0))
ONE = [LocalNode(Node("local", 2.0, 2**30), CORES)]
TWO = [LocalNode(Node(name, 1.0, 2**29), CORES) for name in ("node-1", "node-2")]
HELD = PassReport(START, "flowcon", {}, START, held="Prometheus is gone")


@dataclass
class FakeProcess:
    """Runs until the test says that it has ended."""

    status: int | None = None
    helpers: int = 0
    """Processes that it has started, and that end when the group is signalled."""
    stubborn: bool = False
    """Signalled to end, it does not."""
    hangs: bool = False
    """Killed, it does not end either: it waits for a disk."""
    received: list[str] = field(default_factory=list)
    is_collected: bool = True
    """So `terminate_all`, which knows real processes, leaves it alone."""

    status_is_known: bool = True

    def poll(self) -> int | None:
        return self.status

    def has_ended(self) -> bool:
        return self.status is not None

    def ask_to_end(self) -> None:
        self.received.append("end")

    def is_over(self) -> bool:
        return self.status is not None and not self.helpers

    def signal(self, number: int) -> None:
        self.received.append(signal.Signals(number).name)
        if number == signal.SIGKILL and not self.hangs:
            self.status, self.helpers = -9 if self.status is None else self.status, 0
        elif not self.stubborn:
            self.helpers = 0

    def terminate(self, grace_seconds: float) -> int | None:
        return self.status

    def collect(self) -> None:
        pass

    def tail(self, lines: int) -> str:
        return "no module named numpy"


@dataclass
class FakeLauncher:
    """Starts nothing; remembers what was started. `admit` gets our own pid, which may go on all our cores."""

    started: dict[str, FakeProcess] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    refuses: bool = False

    def check(self, command: Command) -> None:
        self.checked.append(command.name)

    def start(self, command: Command, admit: Callable[[int], None], members: object) -> FakeProcess:
        if self.refuses:
            raise SlopewiseError(f"{command.name}: there is no room for its log.")
        admit(os.getpid())
        self.commands.append(command)
        self.started[command.name] = FakeProcess()
        return self.started[command.name]


@dataclass
class World:
    clock: FakeClock
    launcher: FakeLauncher
    limiter: FakeLimiter
    supervisor: Supervisor
    events: list[str]

    def nodes(self) -> dict[str, str]:
        return {job.name: job.node for job in self.supervisor.running()}

    def waiting(self) -> list[str]:
        return [arrival.uid for arrival in self.supervisor.waiting()]

    def look_and_pass(self) -> None:
        """A look, a pass that could not observe, and another look: who has arrived runs somewhere."""
        self.supervisor.poll()
        self.supervisor.after_pass(HELD)
        self.supervisor.poll()

    def a_pass(self) -> PassReport:
        """One that sees who waits now, and places no job."""
        snapshot = a_snapshot([])
        seen = type(snapshot)(START, snapshot.nodes, (), waiting=tuple(self.supervisor.waiting()))
        return PassReport(START, "flowcon", {}, START, snapshot=seen)


def a_world(tmp_path: Path, nodes: Sequence[LocalNode], *specs: JobSpec) -> World:
    clock, launcher, limiter = FakeClock(), FakeLauncher(), FakeLimiter()
    events: list[str] = []
    supervisor = Supervisor(
        specs,
        "run",
        JobProcesses(launcher, limiter, tmp_path, clock, nodes, ours=True),  # type: ignore[arg-type]
        on_event=lambda: events.append("!"),
    )
    supervisor.start()
    return World(clock, launcher, limiter, supervisor, events)


def job(name: str, arrive: float = 0.0, **more: Any) -> JobSpec:
    return JobSpec(name, ["true"], arrive, **more)


def test_on_one_node_a_job_starts_when_it_arrives_and_none_waits(tmp_path: Path) -> None:
    world = a_world(tmp_path, ONE, job("a"), job("b", arrive=5))
    ended = JobRecord(job("z"), 0, arrived_at_seconds=START, finished_at_seconds=START + 5, exit_status=0)
    world.supervisor.recall({"z": ended})  # of an earlier session
    assert not ended.waits_for_node
    world.supervisor.poll()
    assert (world.nodes(), world.waiting(), world.events) == ({"a": "local"}, [], ["!"])
    world.clock.seconds += 5
    world.supervisor.poll()
    assert world.nodes() == {"a": "local", "b": "local"}


def test_on_two_nodes_an_arrival_wakes_the_loop_and_waits_for_the_pass(tmp_path: Path) -> None:
    world = a_world(tmp_path, TWO, job("b", arrive=5), job("a"))
    world.supervisor.poll()
    assert (world.nodes(), world.waiting(), world.events) == ({}, ["a"], ["!"])
    world.clock.seconds += PLACEMENT_WAIT_SECONDS - 0.1
    world.supervisor.poll()
    assert (world.nodes(), world.events) == ({}, ["!"])
    world.clock.seconds += 0.1
    world.supervisor.poll()
    assert world.nodes() == {"a": "node-1"}, "a pass that never comes holds up no arrival"


def test_who_waits_is_reported_with_what_it_was_promised_in_order_of_arrival(tmp_path: Path) -> None:
    late = job("b", arrive=2, objectives=Objectives(weight=2.0), deadline_seconds=60.0, max_useful_cpu_millicores=500)
    world = a_world(tmp_path, TWO, late, job("a"))
    world.supervisor.poll()
    world.clock.seconds += 2
    world.supervisor.poll()
    assert world.waiting() == ["a", "b"]
    arrival = world.supervisor.waiting()[1]
    assert arrival.arrived_at_seconds == START + 2
    assert arrival.objectives == Objectives(weight=2.0, deadline_at_seconds=START + 62)
    assert arrival.useful_parallelism_cores == 0.5


def test_what_the_pass_saw_and_did_not_place_goes_where_the_fewest_jobs_are(tmp_path: Path) -> None:
    world = a_world(tmp_path, TWO, job("a"), job("b"), job("c"))
    world.supervisor.poll()
    world.supervisor.place("a", "node-1")
    world.supervisor.after_pass(world.a_pass())
    world.supervisor.poll()
    assert world.nodes() == {"a": "node-1", "b": "node-2", "c": "node-1"}


def test_a_job_that_arrived_after_the_pass_looked_waits_for_the_next_one(tmp_path: Path) -> None:
    world = a_world(tmp_path, TWO, job("a"))
    before = world.a_pass()
    world.supervisor.poll()
    world.supervisor.after_pass(before)
    world.supervisor.poll()
    assert (world.nodes(), world.waiting()) == ({}, ["a"])


def test_jobs_that_have_ended_count_no_more_where_the_next_one_goes(tmp_path: Path) -> None:
    world = a_world(tmp_path, TWO, job("a"), job("b", arrive=1))
    world.look_and_pass()
    assert world.nodes() == {"a": "node-1"}, "a pass that could not observe holds up no arrival"
    world.launcher.started["a"].status = 0
    world.clock.seconds += 1
    world.look_and_pass()
    assert world.nodes() == {"b": "node-1"}


@pytest.mark.parametrize(("uid", "node"), [("a", "node-9"), ("b", "node-1"), ("nobody", "node-1")])
def test_only_who_waits_can_be_placed_and_only_where_there_is_a_node(tmp_path: Path, uid: str, node: str) -> None:
    world = a_world(tmp_path, TWO, job("a"), job("b", arrive=5))
    world.supervisor.poll()
    with pytest.raises(ActuationError, match=uid):
        world.supervisor.place(uid, node)
    assert world.waiting() == ["a"]


def test_completion_counts_from_the_arrival_and_not_from_the_start(tmp_path: Path) -> None:
    world = a_world(tmp_path, TWO, job("a"))
    world.supervisor.poll()
    world.clock.seconds += 2
    world.supervisor.place("a", "node-1")
    world.supervisor.poll()
    record = world.supervisor.records["a"]
    assert (record.arrived_at_seconds, record.started_at_seconds) == (START, START + 2)


@pytest.mark.parametrize(("nodes", "labelled"), [(ONE, "local"), (TWO, None)])
def test_a_target_names_its_node_if_it_is_alone(tmp_path: Path, nodes: list[LocalNode], labelled: str | None) -> None:
    (target,) = a_world(tmp_path, nodes, job("a")).supervisor.targets()
    assert target["labels"].get("node") == labelled
    assert target["labels"]["pod"] == "a"


# --- moves --------------------------------------------------------------------------------------------------

MOVE = Migrate("a", "node-1", "node-2", "slow move")


def a_moving_world(tmp_path: Path, **more: Any) -> tuple[World, FakeProcess]:
    """Job `a` runs on node-1 and `b` on node-2, and `a` was sent to node-2."""
    world = a_world(tmp_path, TWO, job("a", **{"migratable": True, **more}), job("b"))
    world.look_and_pass()
    process = world.launcher.started["a"]
    world.limiter.set_limit("a", 100)
    assert world.supervisor.migrate(MOVE).result == "applied"
    world.supervisor.poll()
    world.events.clear()
    return world, process


def test_a_job_that_moves_gets_its_cpu_back_is_signalled_to_end_and_starts_on_the_other_node(tmp_path: Path) -> None:
    world, process = a_moving_world(tmp_path)
    record = world.supervisor.records["a"]
    assert (process.received, world.limiter.allocations["a"]) == (["end"], UNLIMITED)
    assert (record.state, world.nodes(), world.events) == ("moving", {"b": "node-2"}, [])
    assert world.supervisor.moving() == [MoveUnderWay("a", "node-1", "node-2", START, "saving and ending")]
    second = world.supervisor.migrate(MOVE)
    assert (second.result, second.detail) == ("deferred", "it is on its way from node-1 to node-2")
    world.clock.seconds += 1.5
    process.status = 143
    world.supervisor.poll()
    assert (record.state, world.nodes(), world.events) == ("running", {"a": "node-2", "b": "node-2"}, ["!"])
    assert world.supervisor.moving() == []
    again = [command for command in world.launcher.commands if command.name == "a"]
    assert again[0] == again[1]
    (made,) = record.moves
    assert (made.from_node, made.node) == ("node-1", "node-2")
    assert (made.asked_at_seconds, made.ended_at_seconds, made.started_at_seconds) == (START, START + 1.5, START + 1.5)
    assert record.started_at_seconds == START + 1.5
    world.launcher.started["a"].status = 0
    world.supervisor.poll()
    assert record.cpu_seconds == 6.0, "of both lives: the limiter reports 3 s of every cgroup"


def test_helpers_are_signalled_to_end_once_the_command_has_and_the_job_waits_for_them(tmp_path: Path) -> None:
    world, process = a_moving_world(tmp_path)
    process.status, process.helpers = 143, 2
    world.supervisor.poll()
    assert (process.received, world.supervisor.records["a"].state) == (["end", "SIGTERM"], "moving")
    world.supervisor.poll()
    assert (process.received, world.nodes()["a"]) == (["end", "SIGTERM"], "node-2")


@pytest.mark.parametrize("helpers", [0, 1])
def test_who_does_not_end_in_time_is_killed_and_resumes_from_its_checkpoint(tmp_path: Path, helpers: int) -> None:
    world, process = a_moving_world(tmp_path)
    process.stubborn, process.helpers = True, helpers
    process.status = 143 if helpers else None
    world.clock.seconds += GRACE_SECONDS - 0.1
    world.supervisor.poll()
    assert "SIGKILL" not in process.received
    world.clock.seconds += 0.1
    world.supervisor.poll()
    assert process.received[-1] == "SIGKILL"
    world.supervisor.poll()
    assert world.nodes()["a"] == "node-2"


def test_who_outlives_even_being_killed_is_not_started_a_second_time_beside_itself(tmp_path: Path) -> None:
    world, process = a_moving_world(tmp_path)
    process.stubborn = process.hangs = True
    world.clock.seconds += GRACE_SECONDS
    world.supervisor.poll()
    world.clock.seconds += 60.0
    world.supervisor.poll()
    assert [command.name for command in world.launcher.commands].count("a") == 1
    assert world.supervisor.moving() == [MoveUnderWay("a", "node-1", "node-2", START, "killed, and not gone yet")]
    process.hangs = False
    world.supervisor.poll()
    world.supervisor.poll()
    assert world.nodes()["a"] == "node-2"


def test_a_job_that_ends_with_status_0_when_it_is_signalled_to_end_has_finished(tmp_path: Path) -> None:
    world, process = a_moving_world(tmp_path)
    process.status = 0
    world.supervisor.poll()
    assert (world.supervisor.records["a"].state, world.nodes(), world.supervisor.moving()) == (
        "finished", {"b": "node-2"}, [],
    )  # fmt: skip
    assert world.events == ["!"]
    assert "status 0 on the SIGTERM of a move" in world.supervisor.records["a"].ended_by_move


@pytest.mark.parametrize("state", [JobState.FINISHED, JobState.FAILED])
def test_a_job_ended_by_a_move_is_shown_to_the_next_passes_and_then_no_more(tmp_path: Path, state: JobState) -> None:
    world, process = a_moving_world(tmp_path)
    process.status = 0 if state is JobState.FINISHED else 143
    for _ in range(3):
        world.supervisor.poll()
        world.launcher.started["a"].status = 0 if state is JobState.FINISHED else 1
    shown = {job.name: job.state for job in world.supervisor.observed()}
    assert shown == {"b": JobState.STARTING, "a": state}
    world.clock.seconds += SHOWN_SECONDS + 1
    assert [job.name for job in world.supervisor.observed()] == ["b"]


def test_a_job_that_fails_at_resuming_is_started_once_more_and_never_moved_again(tmp_path: Path) -> None:
    late, process = a_moving_world(tmp_path)
    process.status = 143
    late.supervisor.poll()
    late.clock.seconds += RESUME_SECONDS
    late.launcher.started["a"].status = 1
    late.supervisor.poll()
    record = late.supervisor.records["a"]
    assert (record.state, len(late.launcher.commands)) == ("failed", 3), "long after it resumed it fails by itself"
    assert record.ended_by_move == ""

    world, process = a_moving_world(tmp_path)
    process.status = 143
    world.supervisor.poll()
    world.launcher.started["a"].status = 1
    world.supervisor.poll()
    assert (world.nodes()["a"], len(world.launcher.commands)) == ("node-2", 4)
    job_again = next(job for job in world.supervisor.running() if job.name == "a")
    assert job_again.movability is not None
    assert job_again.movability.way is None
    assert "failed with status 1 when it was resumed" in str(job_again.movability.blocked_reason)
    refused = world.supervisor.migrate(Migrate("a", "node-2", "node-1", "why"))
    assert (refused.result, "failed with status 1" in refused.detail) == ("infeasible", True)
    world.launcher.started["a"].status = 1
    world.supervisor.poll()
    assert (world.supervisor.records["a"].state, len(world.launcher.commands)) == ("failed", 4)


def test_a_job_that_cannot_be_started_on_its_new_node_has_failed_and_says_why(tmp_path: Path) -> None:
    world, process = a_moving_world(tmp_path)
    process.status, world.launcher.refuses = 143, True
    world.supervisor.poll()
    record = world.supervisor.records["a"]
    assert (record.state, record.last_output_lines, world.supervisor.moving()) == (
        "failed", "a: there is no room for its log.", [],
    )  # fmt: skip
    assert record.ended_by_move == "could not be started again after a move"
    shown = {job.name: job.state for job in world.supervisor.observed()}
    assert shown == {"b": JobState.STARTING, "a": JobState.FAILED}


@pytest.mark.parametrize("argument", ["a\0b", "x" * 2**18])
def test_a_job_that_the_system_refuses_to_start_has_failed_and_ends_no_other(tmp_path: Path, argument: str) -> None:
    world = a_world(tmp_path, ONE, JobSpec("a", ["true", argument], 0.0), job("b"))
    started = world.launcher.start

    def start(command: Command, *others: Any) -> Any:
        return subprocess.Popen(command.arguments) if command.name == "a" else started(command, *others)

    world.launcher.start = start  # type: ignore[method-assign,assignment]
    world.supervisor.poll()
    record = world.supervisor.records["a"]
    assert (record.state, record.ended_by_move, list(world.launcher.started)) == ("failed", "", ["b"])
    assert "null byte" in record.last_output_lines or "too long" in record.last_output_lines


def test_another_job_of_an_earlier_ones_name_is_checked_and_has_a_port_and_a_log_of_its_own(tmp_path: Path) -> None:
    command = StartedCommand(
        arguments=("x",), working_directory=None, log_path=tmp_path / "a.1.log", port=19_999,
        arrived_at_seconds=1.0, started_at_seconds=1.0, submission=1,
    )  # fmt: skip
    before = StartedProcess(name="a", pid=1, started_ticks=1, boot_id="of another boot", ours=False, command=command)
    world = a_world(tmp_path, ONE)
    world.supervisor.earlier = EarlierRun({"a": EarlierJob(before, "run-1")})
    world.supervisor.add([job("a", queueing=Queueing(submission=1))])
    assert (world.launcher.checked, world.supervisor.records["a"].port) == ([], 19_999)
    world.supervisor.add([job("a", queueing=Queueing(submission=2))])
    world.supervisor.poll()
    assert (world.launcher.checked, world.launcher.commands[0].log_path) == (["a"], tmp_path / "a.2.log")
    assert world.supervisor.records["a"].port != 19_999


@pytest.mark.parametrize(("status", "state"), [(0, JobState.FINISHED), (1, JobState.FAILED)])
def test_a_job_that_had_ended_before_its_signal_is_not_moved(tmp_path: Path, status: int, state: JobState) -> None:
    world = a_world(tmp_path, TWO, job("a", migratable=True), job("b"))
    world.look_and_pass()
    process = world.launcher.started["a"]
    assert world.supervisor.migrate(MOVE).result == "applied"
    process.status = status
    world.supervisor.poll()
    record = world.supervisor.records["a"]
    assert (process.received, record.state, record.ended_by_move) == ([], str(state), "")
    assert (len(world.launcher.commands), world.supervisor.moving()) == (2, [])
    assert {job.name: (job.node, job.state) for job in world.supervisor.observed()} == {
        "b": ("node-2", JobState.STARTING), "a": ("node-1", state),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("uid", "node", "reason"),
    [
        ("a", "node-1", "it is on node-1 already"),
        ("a", "node-9", "there is no node 'node-9'"),
        ("b", "node-1", "it has no `migratable: true`"),
        ("late", "node-1", "no such job runs"),
        ("nobody", "node-1", "no such job runs"),
    ],
)
def test_what_cannot_be_moved_stays_and_it_is_said_why(tmp_path: Path, uid: str, node: str, reason: str) -> None:
    world = a_world(tmp_path, TWO, job("a", migratable=True), job("b"), job("late", arrive=60, migratable=True))
    world.look_and_pass()
    outcome = world.supervisor.migrate(Migrate(uid, world.nodes().get(uid, "node-2"), node, "why"))
    assert (outcome.result, reason in outcome.detail) == ("infeasible", True), outcome.detail
    assert world.nodes() == {"a": "node-1", "b": "node-2"}


def test_an_arrival_counts_a_moving_job_where_it_goes(tmp_path: Path) -> None:
    world = a_world(tmp_path, TWO, job("a", migratable=True), job("b"), job("c", arrive=1))
    world.look_and_pass()
    world.supervisor.migrate(MOVE)
    world.clock.seconds += 1
    world.look_and_pass()
    assert world.nodes() == {"b": "node-2", "c": "node-1"}


@pytest.mark.parametrize(
    ("nodes", "migratable", "expected"), [(TWO, True, "checkpoints/a"), (TWO, False, ""), (ONE, True, "")]
)
def test_which_trainings_checkpoint(tmp_path: Path, nodes: list[LocalNode], migratable: bool, expected: str) -> None:
    world = a_world(tmp_path, nodes, job("a", migratable=migratable))
    world.look_and_pass()
    (command,) = world.launcher.commands
    folder = str(tmp_path / expected) if expected else ""
    assert command.environment["SLOPEWISE_CHECKPOINT_FOLDER"] == folder


def test_our_own_trainings_have_one_thread_unless_a_job_says_how_many_and_each_its_environment(tmp_path: Path) -> None:
    wants = {"SEED": "7", "SLOPEWISE_EXPORTER_LINGER_SECONDS": "9", "SLOPEWISE_THREADS": "off"}
    says = job("says", port=9500, environment=wants, working_directory=tmp_path)
    world = a_world(tmp_path, ONE, job("plain"), says)
    world.supervisor.poll()
    assert world.launcher.commands[1].working_directory == tmp_path
    environments = {command.name: command.environment for command in world.launcher.commands}
    one_thread = single_thread_environment()
    assert environments["plain"].items() >= one_thread.items()
    assert environments["says"].keys().isdisjoint(one_thread)
    assert environments["says"].items() >= {**wants, "SLOPEWISE_EXPORTER_PORT": "9500"}.items()


def test_a_job_joins_the_study_that_it_names_where_its_file_names_none(tmp_path: Path) -> None:
    of_file: dict[str, Any] = {"queueing": Queueing(study="s"), "objectives": Objectives(study="s")}
    world = a_world(tmp_path, ONE, job("a"), job("b", **of_file), job("silent"))
    world.supervisor.poll()
    world.supervisor.join(dict.fromkeys(("a", "b", "gone"), JobSeries(study="own")))
    studies = {name: each.spec.queueing.study for name, each in world.supervisor.records.items()}
    assert studies == {"a": "own", "b": "s", "silent": ""}
    assert {each.name: each.objectives.study for each in world.supervisor.running()} == studies


def test_when_a_job_ended_is_known_for_a_while_where_another_has_its_name(tmp_path: Path) -> None:
    world = a_world(tmp_path, ONE, job("a"), job("b"))
    world.supervisor.poll()
    world.launcher.started["a"].status = 0
    world.supervisor.poll()
    assert world.supervisor.former_ends() == {}
    world.supervisor.add([job("a")])
    assert world.supervisor.former_ends() == {"a": START}
    world.clock.seconds += REPORTED_SECONDS
    assert world.supervisor.former_ends() == {}


@pytest.mark.parametrize(
    ("text", "losses"),
    [("eval 0.25\ntrain 1e-3\n", {"eval": 0.25, "train": 0.001}), ("eval\n", {}), ("eval a\n", {}), ("\xff", {})],
)
def test_what_a_job_hands_over_at_its_end_is_read_once(tmp_path: Path, text: str, losses: dict[str, float]) -> None:
    (tmp_path / "a.end").write_text("eval 9")
    world = a_world(tmp_path, ONE, job("a"))
    world.supervisor.poll()
    (command,) = world.launcher.commands
    assert not (tmp_path / "a.end").exists()
    Path(command.environment["SLOPEWISE_EXPORTER_END_FILE"]).write_bytes(text.encode("latin-1"))
    assert [last_losses(command.log_path), last_losses(command.log_path), last_losses(None)] == [losses, {}, {}]


# --- stops at the target ------------------------------------------------------------------------------------

WHY = "stopped at its target: loss 0.19 ≤ 0.2"
STOP = Stop("a", "local", WHY)


def a_stopping_world(tmp_path: Path) -> tuple[World, FakeProcess]:
    """Job `a` runs, limited, and is being stopped at its target."""
    world = a_world(tmp_path, ONE, job("a"))
    world.supervisor.poll()
    process = world.launcher.started["a"]
    world.limiter.set_limit("a", 100)
    outcome = world.supervisor.end_at_target(STOP)
    assert (outcome.result, outcome.detail) == ("applied", f"{WHY}; it saves and ends within {GRACE_SECONDS:g} s")
    world.supervisor.poll()
    world.events.clear()
    return world, process


@pytest.mark.parametrize("status", [0, 143, -9])
def test_a_job_at_its_target_is_signalled_to_end_and_is_not_started_again(tmp_path: Path, status: int) -> None:
    """-9: it does not end within its grace, and is killed."""
    world, process = a_stopping_world(tmp_path)
    record = world.supervisor.records["a"]
    assert (process.received, world.limiter.allocations["a"]) == (["end"], UNLIMITED)
    assert (record.state, world.nodes(), world.supervisor.all_ended()) == ("stopping", {}, False)
    takes_seconds = GRACE_SECONDS if status == -9 else 1.5
    world.clock.seconds += takes_seconds
    if status == -9:
        world.supervisor.poll()
        assert process.received[-1] == "SIGKILL"
    process.status = status
    world.supervisor.poll()
    assert (record.state, record.exit_status, record.stopped_at_target) == ("stopped at target", status, WHY)
    assert (record.finished_at_seconds, world.events) == (START + takes_seconds, ["!"])
    world.clock.seconds += RESUME_SECONDS
    world.supervisor.poll()
    assert world.supervisor.all_ended()
    assert len(world.launcher.commands) == 1


def test_a_job_that_ends_by_itself_before_it_is_signalled_has_finished(tmp_path: Path) -> None:
    world = a_world(tmp_path, ONE, job("a"))
    world.supervisor.poll()
    world.launcher.started["a"].status = 0
    world.supervisor.end_at_target(STOP)
    world.supervisor.poll()
    assert (world.supervisor.records["a"].state, world.launcher.started["a"].received) == ("finished", [])


def test_what_a_job_has_left_behind_is_killed_after_the_grace_and_holds_up_no_other(tmp_path: Path) -> None:
    world = a_world(tmp_path, ONE, job("a"), job("b", arrive=1.0))
    world.supervisor.poll()
    process, record = world.launcher.started["a"], world.supervisor.records["a"]
    process.status, process.helpers, process.stubborn = 0, 1, True
    world.supervisor.poll()
    assert (record.state, process.received) == ("stopping", ["SIGTERM", "SIGCONT"])
    world.clock.seconds += GRACE_SECONDS - 0.1
    world.supervisor.poll()
    assert (process.helpers, world.supervisor.records["b"].state) == (1, "running")
    world.clock.seconds += 0.1
    world.supervisor.poll()
    assert (process.received[-1], process.helpers) == ("SIGKILL", 0)
    world.supervisor.poll()
    assert (record.state, record.finished_at_seconds) == ("finished", START)


def test_what_even_a_kill_does_not_end_holds_up_no_end_for_ever(tmp_path: Path) -> None:
    world = a_world(tmp_path, ONE, job("a"))
    world.supervisor.poll()
    process, record = world.launcher.started["a"], world.supervisor.records["a"]
    process.status, process.helpers, process.stubborn, process.hangs = 0, 1, True, True
    for seconds in (0.0, GRACE_SECONDS, KILL_SECONDS - 0.1):
        world.clock.seconds += seconds
        world.supervisor.poll()
        assert record.state == "stopping"
    world.clock.seconds += 0.1
    world.supervisor.poll()
    assert (record.state, process.helpers, world.limiter.allocations) == ("finished", 1, {})


@pytest.mark.parametrize(("status", "state"), [(1, "cancelled"), (0, "finished")])
@pytest.mark.parametrize("helpers", [0, 1], ids=["before that is noticed", "while its rest ends"])
def test_one_that_is_cancelled_once_it_has_ended_is_not_restarted(
    tmp_path: Path, status: int, state: str, helpers: int
) -> None:
    world = a_world(tmp_path, ONE, job("a", queueing=Queueing(restarts=3)))
    world.supervisor.poll()
    process = world.launcher.started["a"]
    process.status, process.helpers, process.stubborn = status, helpers, True
    if helpers:
        world.supervisor.poll()
    world.supervisor.cancel("a")
    process.helpers = 0
    world.supervisor.poll()
    world.supervisor.poll()
    record = world.supervisor.records["a"]
    assert (record.state, record.spec.queueing.attempt) == (state, 0)


def test_a_job_that_moves_or_has_ended_is_not_stopped_and_one_that_stops_not_moved(tmp_path: Path) -> None:
    moving, _ = a_moving_world(tmp_path)
    assert moving.supervisor.end_at_target(STOP).result == "deferred"
    ended = a_world(tmp_path, ONE, job("a"))
    assert ended.supervisor.end_at_target(STOP).result == "infeasible"
    stopping = a_world(tmp_path, TWO, job("a", migratable=True))
    stopping.look_and_pass()
    assert stopping.supervisor.end_at_target(STOP).result == "applied"
    outcome = stopping.supervisor.migrate(MOVE)
    assert (outcome.result, outcome.detail) == ("infeasible", "it is being stopped at its target")


READ = (
    'read 2 lines, none has a loss; the last: "epoch 2 of 3"; try `lossPattern`, or the two lines of slopewise_exporter'
)

UNREAD = "it wrote no line yet: `stdbuf -oL` before it if it buffers, or the two lines of slopewise_exporter"


@pytest.mark.parametrize(
    ("written", "more", "shown"),
    [("epoch 1\nepoch 2 of 3\n", {}, READ), ("", {}, UNREAD), ("it serves its own\n", {"port": 20_001}, "")],
)
def test_what_was_read_of_a_users_output(tmp_path: Path, written: str, more: dict[str, Any], shown: str) -> None:
    world = a_world(tmp_path, ONE, job("a", **more))
    log = tmp_path / "a.log"
    log.write_text(written)
    world.supervisor.processes.ours = False
    assert world.supervisor.output_of("a") == ("", False)
    world.supervisor.records["a"].process = ForeignProcess("a", 0, log)
    assert world.supervisor.output_of("a") == (shown, shown == UNREAD)


def test_stopping_in_the_middle_of_a_move_ends_the_job_where_it_is(tmp_path: Path) -> None:
    world, process = a_moving_world(tmp_path)
    process.status = 143
    world.launcher.started["b"].status = -15
    world.supervisor.stop()
    assert [record.state for record in world.supervisor.records.values()] == ["failed", "failed"]
    assert (world.supervisor.moving(), world.limiter.allocations, len(world.launcher.commands)) == ([], {}, 2)
