"""One real run on two nodes, whose trainers do not do their part when they are moved."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from local.conftest import a_policy, running, states
from local.test_moves import OTHER_NODE, STEPS_A_SECOND, is_at_work, log, movable, move, record, steps_done
from local.test_nodes import nodes
from support.waiting import eventually

from slopewise.local.session import Session
from slopewise.local.workshop import Workshop
from slopewise.model import MoveUnderWay

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two nodes need two cores"),
]

STEPS_BEFORE = {"deaf": 60, "exits-0": 10, "cannot-resume": 10}
"""Of the trainers that are moved, each once it has done so many."""


@pytest.fixture(scope="module")
def session(shared_workshop: Workshop) -> Iterator[Session]:
    jobs = [
        movable("deaf", 8, "deaf"),
        movable("exits-0", 60, "exits-0"),
        movable("cannot-resume", 60, "cannot-resume"),
        movable("long", 600, "deaf"),
    ]
    with running(shared_workshop, a_policy("fair"), *jobs, nodes=2) as session:
        for name, steps in STEPS_BEFORE.items():
            is_at_work(session, steps, name)
            assert move(session, name).result == "applied"
        yield session


def test_a_trainer_that_ignores_sigterm_is_killed_after_its_grace_and_loses_only_what_it_had_not_saved(
    session: Session,
) -> None:
    assert eventually(lambda: states(session)["deaf"] == "finished")
    steps = steps_done(session, "deaf")
    again = [place for place in range(1, len(steps)) if steps[place] <= steps[place - 1]]
    assert len(again) <= 1  # killed in the moment of a save, it does none twice
    at = again[0] if again else 0
    if again:
        assert steps[at] == steps[at - 1] // 25 * 25 or steps[at] == (steps[at - 1] + 1) // 25 * 25
    assert len(record(session, "deaf").moves) == 1
    assert steps[at:] == list(range(steps[at], 8 * STEPS_A_SECOND))
    assert steps[0] == 0


def test_a_trainer_that_exits_0_when_it_is_signalled_to_end_has_finished(session: Session) -> None:
    assert eventually(lambda: states(session)["exits-0"] == "finished")
    assert record(session, "exits-0").moves == []


def test_a_trainer_that_cannot_resume_fails_after_two_tries_with_its_last_words(session: Session) -> None:
    assert eventually(lambda: states(session)["cannot-resume"] == "failed")
    last_words = "RuntimeError: the checkpoint makes no sense to me"
    assert record(session, "cannot-resume").last_output_lines.endswith(last_words)
    assert log(session, "cannot-resume").read_text().count(last_words) == 2


def test_a_job_that_moves_is_reported_as_moving_and_then_as_a_job_of_its_new_node(session: Session) -> None:
    is_at_work(session, name="long")
    here = nodes(session)["long"]
    there = OTHER_NODE[here]
    move(session, "long")
    snapshot = session.ports.observer.observe().snapshot
    assert "long" not in [each.name for each in snapshot.jobs]
    (found,) = [each for each in snapshot.moving if each.job_uid == "long"]
    assert found == MoveUnderWay("long", here, there, found.since_seconds, "saving and ending")
    again = move(session, "long", here)
    assert (again.result, again.detail) == ("deferred", f"it is on its way from {here} to {there}")
    assert eventually(lambda: nodes(session).get("long") == there)
    snapshot = session.ports.observer.observe().snapshot
    assert [each.node for each in snapshot.jobs if each.name == "long"] == [there]
    assert "long" not in [each.job_uid for each in snapshot.moving]
