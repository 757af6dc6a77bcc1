"""What a session does when its policy or its targets cannot be stored, and when its Prometheus has died."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.limiting import FakeLimiter
from support.worlds import FakeClock

from slopewise.adapters.local.limiters.base import UNLIMITED
from slopewise.adapters.local.ports import FileMemory, LocalActuator
from slopewise.config.training_policy import TrainingPolicy, TrainingPolicySpec
from slopewise.errors import SlopewiseError
from slopewise.local.plan import deciding
from slopewise.local.session import REVIVE_SECONDS, Session
from slopewise.model import CpuAllocation, JobMemory, MemoryState


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


@pytest.mark.parametrize("used_again", [[], ["former"]])
def test_a_change_that_a_full_disk_interrupts_is_made_by_the_next_pass(tmp_path: Path, used_again: list[str]) -> None:
    limiter, memory = FakeLimiter({"a": CpuAllocation(None, 200)}), FileMemory(tmp_path / "memory.json")
    memory.save(MemoryState({"a": JobMemory(original=UNLIMITED), "former": JobMemory()}))
    auto = TrainingPolicy(spec=TrainingPolicySpec(mode="Auto"))
    recommend = TrainingPolicy(spec=TrainingPolicySpec(mode="Recommend"))
    unused: Any = None
    ports = SimpleNamespace(memory=memory, actuator=LocalActuator(limiter, unused, unused, unused))
    session: Any = SimpleNamespace(
        folder=tmp_path, ports=ports, loop=SimpleNamespace(), _recorder=None, _mapped={}, _forgotten=deque(used_again),
        telemetry=SimpleNamespace(describe=lambda *_: None), supervisor=SimpleNamespace(records={}),
        reader=SimpleNamespace(close=lambda: None), _reader=lambda: "of the new policy", _ports=lambda _: ports,
        _new_outage=lambda: None, _deciding=deciding(auto, limiter, 5.0), _next=deciding(recommend, limiter, 5.0),
        _own_mappings=dict,
    )  # fmt: skip
    (tmp_path / "memory.json.new").mkdir()
    with pytest.raises(SlopewiseError, match="cannot be written"):
        Session._change(session)
    (tmp_path / "memory.json.new").rmdir()
    Session._change(session)
    known = memory.load().jobs
    assert (known["a"].original, limiter.allocations["a"], session.reader) == (None, UNLIMITED, "of the new policy")
    assert ("former" in known) is (not used_again)


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
    def session(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        session = SimpleNamespace(
            clock=FakeClock(),
            prometheus=FakePrometheus(),
            loop=SimpleNamespace(trigger=lambda: None),
            revive_at_seconds=0.0,
            jobs=["a"],
            warnings=[],
        )
        session._targets = lambda: list(session.jobs)
        log = SimpleNamespace(warning=lambda event, **_: session.warnings.append(event))
        monkeypatch.setattr("slopewise.local.session._log", log)
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
