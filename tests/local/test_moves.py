"""Jobs that are really moved between two nodes of this machine, by tests and by passes, also to the bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from local.conftest import (
    INTERVAL_SECONDS,
    a_policy,
    leaked_cgroups,
    leaked_folders,
    marked_processes,
    running,
    start_python,
    tiny,
    tiny_trainings,
)
from local.test_nodes import affinity, nodes
from support.policies import shift
from support.waiting import eventually

from slopewise.adapters.local.crash_journal import clean_up_after_killed, default_state_dir
from slopewise.adapters.local.job_record import JobRecord
from slopewise.adapters.local.limiters.base import UNLIMITED
from slopewise.adapters.local.ports import FileMemory
from slopewise.config.jobs_file import JobSpec
from slopewise.config.pass_settings import pass_settings
from slopewise.local.session import Session
from slopewise.local.workshop import Workshop
from slopewise.model import Decision, Migrate, Outcome, Place
from slopewise.policies import Setting
from slopewise.reconcile import reconcile

pytestmark = [
    pytest.mark.processes,
    pytest.mark.usefixtures("nothing_left"),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two nodes need two cores"),
]

STEPS_A_SECOND = 50
OTHER_NODE = {"node-1": "node-2", "node-2": "node-1"}


def movable(name: str, seconds: float, way: str = "", *, busy: bool = False) -> JobSpec:
    return replace(tiny(name, seconds, way, busy=busy), migratable=True)


def record(session: Session, name: str = "a") -> JobRecord:
    return session.supervisor.records[name]


def log(session: Session, name: str = "a") -> Path:
    return session.supervisor.processes.folder / f"{name}.log"


def steps_done(session: Session, name: str = "a") -> list[int]:
    """As the trainer wrote them, in the order in which it did them, in all of its lives."""
    path = log(session, name)
    return [int(line) for line in path.read_text().splitlines() if line.isdecimal()] if path.exists() else []


def is_at_work(session: Session, steps: int = 10, name: str = "a") -> None:
    assert eventually(lambda: len(steps_done(session, name)) >= steps)


def move(session: Session, name: str = "a", here: str | None = None) -> Outcome[Decision]:
    """As a pass would."""
    here = here or nodes(session)[name]
    return session.ports.actuator.carry_out(Migrate(name, here, OTHER_NODE[here], "the test says so"))


def test_a_moved_job_does_each_of_its_steps_once_and_is_held_to_the_other_nodes_cores(workshop: Workshop) -> None:
    with running(workshop, a_policy("fair"), movable("a", 2, busy=True), nodes=2) as session:
        is_at_work(session)
        workshop.limiter.set_limit("a", 50)  # squeezed, it would need 0.4 s of its grace for a step
        before = nodes(session)["a"]
        assert move(session).result == "applied"
        assert eventually(lambda: nodes(session).get("a") not in (None, before))
        assert workshop.limiter.read("a") == UNLIMITED
        cores = {node.name: {node.cpus} for node in session.nodes}
        assert affinity(session, "a") == cores[nodes(session)["a"]]
        assert eventually(session.supervisor.all_ended)
        assert record(session).state == "finished", record(session).last_output_lines
        assert steps_done(session) == list(range(2 * STEPS_A_SECOND))
        assert (record(session).cpu_seconds or 0.0) > 1.9


def test_a_pass_that_wishes_a_move_begins_it_and_later_passes_show_what_it_has_cost(
    workshop: Workshop, tmp_path: Path
) -> None:
    migration = {"enabled": True, "minStaySeconds": 0, "maxPerNodePerHour": 60}
    document = a_policy("fair", migration=migration)
    policy = shift.Policy(shift.Parameters(to="node-2"), Setting(INTERVAL_SECONDS, "limits"))
    with running(workshop, document, movable("a", 60), nodes=2) as session:
        is_at_work(session)
        ports = replace(session.ports, memory=FileMemory(tmp_path / "memory.json"))
        reports = []

        def resumed() -> bool:
            time.sleep(0.5)
            reports.append(reconcile(ports, policy, pass_settings(document)))
            return any(news.stage == "resumed" for news in reports[-1].results.events)

        assert eventually(resumed)
        found = [(news.stage, news.record.node, news.warning) for report in reports for news in report.results.events]
        assert found == [("begun", "node-2", False), ("resumed", "node-2", False)]
        (news,) = [news for news in reports[-1].results.events if news.stage == "resumed"]
        assert news.record.steps_lost == 0.0
        (made,) = record(session).moves
        assert news.record.resumed_at_seconds is not None
        assert news.record.resumed_at_seconds > made.started_at_seconds
        assert "resumed on node-2 after " in news.message, "by its own first step, and not by the pass that saw it"
        print(news.message)
        assert [outcome.result for report in reports for outcome in report.results.of(Place, Migrate)] == ["applied"]
        assert steps_done(session) == list(range(len(steps_done(session))))


def test_a_trainer_that_ignores_sigterm_is_killed_after_its_grace_and_loses_only_what_it_had_not_saved(
    workshop: Workshop,
) -> None:
    with running(workshop, a_policy("fair"), movable("a", 8, "deaf"), nodes=2) as session:
        is_at_work(session, 60)
        assert move(session).result == "applied"
        assert eventually(lambda: record(session).state == "finished")
        steps = steps_done(session)
        assert len(record(session).moves) == 1
    again = [place for place in range(1, len(steps)) if steps[place] <= steps[place - 1]]
    assert len(again) <= 1  # killed in the moment of a save, it does none twice
    at = again[0] if again else 0
    if again:
        assert steps[at] == steps[at - 1] // 25 * 25 or steps[at] == (steps[at - 1] + 1) // 25 * 25
    assert steps[at:] == list(range(steps[at], 8 * STEPS_A_SECOND))
    assert steps[0] == 0


def test_a_run_that_is_stopped_in_the_middle_of_a_move_ends_at_once_and_leaves_nothing(workshop: Workshop) -> None:
    with running(workshop, a_policy("fair"), movable("a", 600), movable("b", 600), nodes=2) as session:
        is_at_work(session)
        move(session)
        session.stop()
    assert {each.state for each in session.supervisor.records.values()} == {"failed"}
    assert marked_processes() == []


KILLED_IN_MID_MOVE = """
import os, signal, sys, threading, time
from local.conftest import a_policy, running
from local.test_moves import is_at_work, move, movable
from slopewise.local.workshop import Workshop

with Workshop(actuator="auto", announce=print) as workshop:
    with running(workshop, a_policy("fair"), movable("a", 600, sys.argv[1]), nodes=2) as session:
        is_at_work(session)
        move(session)
        time.sleep(float(sys.argv[2]))
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("way", "seconds"),
    [("deaf", 1.0), *(pytest.param("", each, marks=pytest.mark.long) for each in (0.0, 0.15, 0.3))],
)
def test_a_controller_that_is_killed_in_the_middle_of_a_move_leaves_nothing_that_is_not_cleaned_up(
    prometheus_binaries: object, state_home: object, way: str, seconds: float
) -> None:
    before = leaked_cgroups(), leaked_folders()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    killed = start_python("-c", KILLED_IN_MID_MOVE, way, str(seconds), env=environment, stderr=subprocess.PIPE)
    _, complaints = killed.communicate(timeout=180)
    assert killed.returncode == -signal.SIGKILL, complaints
    # A process that was about to be started holds the lock of the journal, too, until its program is loaded.
    assert eventually(
        lambda: any("removed the folder" in message for message in clean_up_after_killed(default_state_dir()))
    )
    assert eventually(lambda: not tiny_trainings())
    assert (leaked_cgroups(), leaked_folders()) == before
