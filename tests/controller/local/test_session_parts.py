"""What a session does when its policy or its targets cannot be stored, and when its Prometheus has died."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.worlds import FakeClock, FakeMemory

from slopewise.config.jobs_file import JobSpec
from slopewise.config.metric_mappings import OwnMappings
from slopewise.config.training_policy import TrainingPolicy, TrainingPolicySpec
from slopewise.errors import SlopewiseError
from slopewise.local.session import REVIVE_SECONDS, Session
from slopewise.model import JobMemory, MemoryState


def test_a_policy_that_cannot_be_stored_is_not_used() -> None:
    def full() -> None:
        raise SlopewiseError("the disk is full.")

    limiter = SimpleNamespace(controls={"limits", "requests"})
    session: Any = SimpleNamespace(
        workshop=SimpleNamespace(limiter=limiter),
        plan=SimpleNamespace(scrape_interval_seconds=1.0),
        loop=SimpleNamespace(trigger=lambda: None),
        _next="as before",
    )
    policy = TrainingPolicy(spec=TrainingPolicySpec())
    with pytest.raises(SlopewiseError, match="the disk is full"):
        Session.use(session, policy, full)
    assert session._next == "as before"
    Session.use(session, policy, lambda: None)
    assert session._next.document.spec.mode == policy.spec.mode


@pytest.mark.parametrize("fresh", [True, False])
def test_jobs_that_are_taken_in_are_read_by_their_own_mappings(fresh: bool) -> None:
    """Also those of an earlier session, whose memory stays."""
    memory = FakeMemory(MemoryState({"a": JobMemory()}))
    session: Any = SimpleNamespace(
        ports=SimpleNamespace(memory=memory),
        reader=SimpleNamespace(close=lambda: None),
        tally=SimpleNamespace(jobs={}),
        folder=None,
        _taken_in=deque(),
        _next="document",
        _deciding="document",
        _own_mappings=lambda: {"a": OwnMappings()},
        _reader=lambda: "with its mapping",
        _ports=lambda folder: "with that reader",
    )
    Session._taken(session, [JobSpec("a", [], 0.0)], fresh=fresh)
    Session._change(session)
    assert (session.reader, session.ports, "a" in memory.state.jobs) == (
        "with its mapping",
        "with that reader",
        not fresh,
    )


@dataclass
class FakePrometheus:
    """One that may have died, on a disk that may be full."""

    targets: list[str] = field(default_factory=list)
    needs_restart: bool = False
    full: bool = False
    restarts: int = 0

    def set_targets(self, targets: list[str]) -> None:
        if self.full:
            raise SlopewiseError("the disk is full.")
        self.targets = targets

    def restart(self) -> None:
        self.restarts += 1


class TestPrometheus:
    @pytest.fixture
    def session(self) -> Any:
        session = SimpleNamespace(
            clock=FakeClock(),
            prometheus=FakePrometheus(),
            loop=SimpleNamespace(trigger=lambda: None),
            revive_at_seconds=0.0,
            jobs=["a"],
            warnings=[],
        )
        session._targets = lambda: list(session.jobs)
        session._log = SimpleNamespace(warning=lambda event, **_: session.warnings.append(event))
        return session

    @staticmethod
    def tend(session: Any) -> None:
        Session._tend_prometheus(cast(Session, session))

    def test_what_cannot_be_written_is_said_and_tried_again_after_a_while(self, session: Any) -> None:
        session.prometheus.full = True
        self.tend(session)
        self.tend(session)
        session.prometheus.full = False
        self.tend(session)
        assert (session.prometheus.targets, session.warnings) == ([], ["prometheus failed"])
        session.clock.seconds += REVIVE_SECONDS
        self.tend(session)
        assert session.prometheus.targets == ["a"]

    def test_one_that_dies_again_and_again_is_restarted_after_a_pause(self, session: Any) -> None:
        session.prometheus.needs_restart = True
        self.tend(session)
        self.tend(session)
        session.clock.seconds += REVIVE_SECONDS
        self.tend(session)
        assert (session.prometheus.restarts, session.warnings) == (2, ["prometheus restarted"] * 2)
