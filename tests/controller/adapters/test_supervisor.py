"""When jobs start and where: at once on one node, after a word of the pass or without it on several."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.limiting import FakeLimiter
from support.worlds import START, FakeClock, a_snapshot

from controller.adapters.nodes import LocalNode
from controller.adapters.supervisor import PATIENCE_SECONDS, Supervisor
from controller.errors import ActuationError
from controller.jobs import JobSpec
from controller.model import Node, PassReport, Promises

CORES = frozenset(os.sched_getaffinity(0))
ONE = [LocalNode(Node("local", 2.0, 2**30), CORES)]
TWO = [LocalNode(Node(name, 1.0, 2**29), CORES) for name in ("node-1", "node-2")]
HELD = PassReport(START, "flowcon", {}, START, held="Prometheus is gone")


@dataclass
class FakeProcess:
    """Runs until it is told that it has ended."""

    status: int | None = None

    def poll(self) -> int | None:
        return self.status

    def terminate(self, grace_seconds: float) -> int | None:
        return self.status

    def tail(self, lines: int) -> str:
        return ""


@dataclass
class FakeLauncher:
    """Starts nothing; remembers what was started. `admit` gets our own pid, which may go on all our cores."""

    started: dict[str, FakeProcess] = field(default_factory=dict)

    def check(self, command: object) -> None:
        pass

    def start(self, command, admit: Callable[[int], None], members: object) -> FakeProcess:
        admit(os.getpid())
        self.started[command.name] = FakeProcess()
        return self.started[command.name]


@dataclass
class World:
    clock: FakeClock
    launcher: FakeLauncher
    supervisor: Supervisor
    events: list[str]

    def nodes(self) -> dict[str, str]:
        return {job.name: job.node for job in self.supervisor.running()}

    def waiting(self) -> list[str]:
        return [arrival.uid for arrival in self.supervisor.waiting()]

    def a_pass(self) -> PassReport:
        """One that sees who waits now, and places nobody."""
        snapshot = a_snapshot([])
        seen = type(snapshot)(START, snapshot.nodes, (), waiting=tuple(self.supervisor.waiting()))
        return PassReport(START, "flowcon", {}, START, snapshot=seen)


def a_world(tmp_path: Path, nodes: Sequence[LocalNode], *specs: JobSpec) -> World:
    clock, launcher, events = FakeClock(), FakeLauncher(), []
    supervisor = Supervisor(
        specs, "run", launcher, FakeLimiter(), tmp_path, clock, nodes, ours=True, on_event=lambda: events.append("!")
    )  # type: ignore[arg-type]
    supervisor.start()
    return World(clock, launcher, supervisor, events)


def job(name: str, arrive: float = 0.0, **more: object) -> JobSpec:
    return JobSpec(name, ["true"], arrive, **more)  # type: ignore[arg-type]


def test_on_one_node_a_job_starts_when_it_arrives_and_nobody_waits(tmp_path: Path) -> None:
    world = a_world(tmp_path, ONE, job("a"), job("b", arrive=5))
    world.supervisor.poll()
    assert (world.nodes(), world.waiting(), world.events) == ({"a": "local"}, [], ["!"])
    world.clock.seconds += 5
    world.supervisor.poll()
    assert world.nodes() == {"a": "local", "b": "local"}


def test_on_two_nodes_an_arrival_wakes_the_loop_and_waits_for_the_pass(tmp_path: Path) -> None:
    world = a_world(tmp_path, TWO, job("b", arrive=5), job("a"))
    world.supervisor.poll()
    assert (world.nodes(), world.waiting(), world.events) == ({}, ["a"], ["!"])
    world.clock.seconds += PATIENCE_SECONDS - 0.1
    world.supervisor.poll()
    assert (world.nodes(), world.events) == ({}, ["!"])


def test_who_waits_is_told_with_what_it_was_promised_in_order_of_arrival(tmp_path: Path) -> None:
    late = job("b", arrive=2, promises=Promises(weight=2.0), deadline_seconds=60.0, max_useful_cpu_millicores=500)
    world = a_world(tmp_path, TWO, late, job("a"))
    world.supervisor.poll()
    world.clock.seconds += 2
    world.supervisor.poll()
    assert world.waiting() == ["a", "b"]
    arrival = world.supervisor.waiting()[1]
    assert arrival.arrived_at_seconds == START + 2
    assert arrival.promises == Promises(weight=2.0, deadline_at_seconds=START + 62)
    assert arrival.useful_parallelism_cores == 0.5


def test_what_the_pass_places_starts_there_with_the_next_look(tmp_path: Path) -> None:
    world = a_world(tmp_path, TWO, job("a"))
    world.supervisor.poll()
    world.supervisor.place("a", "node-2")
    assert world.waiting() == []
    world.supervisor.poll()
    assert world.nodes() == {"a": "node-2"}
    assert world.events == ["!", "!"]


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


def test_an_outage_of_prometheus_holds_up_no_arrival(tmp_path: Path) -> None:
    world = a_world(tmp_path, TWO, job("a"))
    world.supervisor.poll()
    world.supervisor.after_pass(HELD)
    world.supervisor.poll()
    assert world.nodes() == {"a": "node-1"}


def test_a_pass_that_never_comes_holds_up_no_arrival(tmp_path: Path) -> None:
    world = a_world(tmp_path, TWO, job("a"))
    world.supervisor.poll()
    world.clock.seconds += PATIENCE_SECONDS
    world.supervisor.poll()
    assert world.nodes() == {"a": "node-1"}


def test_jobs_that_have_ended_count_no_more_where_the_next_one_goes(tmp_path: Path) -> None:
    world = a_world(tmp_path, TWO, job("a"), job("b", arrive=1))
    world.supervisor.poll()
    world.supervisor.after_pass(HELD)
    world.supervisor.poll()
    world.launcher.started["a"].status = 0
    world.clock.seconds += 1
    world.supervisor.poll()
    world.supervisor.after_pass(HELD)
    world.supervisor.poll()
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
def test_a_target_names_its_node_only_where_there_is_but_one(
    tmp_path: Path, nodes: list[LocalNode], labelled: str | None
) -> None:
    (target,) = a_world(tmp_path, nodes, job("a")).supervisor.targets()
    assert target["labels"].get("node") == labelled
    assert target["labels"]["pod"] == "a"
