"""A real run on this machine: its limits move, its decisions are annotated, and its Prometheus hangs and dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from local.conftest import (
    a_policy,
    after_passes,
    observed,
    own_prometheus,
    resizes,
    running,
    states,
    tiny,
)
from support import fake_grafana
from support.waiting import eventually

from slopewise.adapters.grafana.annotations import GrafanaAccess
from slopewise.adapters.local.limiters.base import UNLIMITED
from slopewise.decision_record.reader import read, snapshot_of
from slopewise.decision_record.recorder import RecordOptions
from slopewise.errors import UsageError
from slopewise.local.plan import SessionPlan
from slopewise.local.session import Session
from slopewise.local.workshop import Workshop
from slopewise.model import Resize
from slopewise.operate.replay import replay_file

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def grafana() -> Iterator[fake_grafana.FakeGrafana]:
    with fake_grafana.FakeGrafana() as grafana:
        yield grafana


@pytest.fixture(scope="module")
def session(shared_workshop: Workshop, grafana: fake_grafana.FakeGrafana) -> Iterator[Session]:
    """Two trainings whose limits have been changed."""
    annotated = GrafanaAccess(grafana.url, fake_grafana.TOKEN)
    jobs = tiny("fast", 900), tiny("slow", 900)
    with running(shared_workshop, a_policy(), *jobs, annotated=annotated) as session:
        assert eventually(lambda: resizes(session))
        yield session
    assert set(states(session).values()) == {"failed"}  # the tests ended them


@pytest.mark.cgroups
def test_limits_move_in_the_cgroups(session: Session) -> None:
    limiter = session.workshop.limiter
    if "requests" not in limiter.controls:
        pytest.skip("no right to make cgroups here")

    def limits_are_those_of_the_last_changes() -> bool:
        changed = {outcome.decision.job_uid: outcome.decision.to_millicores for outcome in resizes(session)}
        return {uid: limiter.read(uid).limit_millicores for uid in changed} == changed

    assert eventually(limits_are_those_of_the_last_changes)


def test_decisions_are_annotated_in_grafana_with_the_job_and_the_policy(
    session: Session, grafana: fake_grafana.FakeGrafana
) -> None:
    assert eventually(lambda: grafana.annotations)
    tags = grafana.annotations[0]["tags"]
    assert {"slopewise", "resize", "namespace:test", "policy:default"} <= set(tags)
    assert {"job:fast", "job:slow"} & set(tags)


def is_held(session: Session) -> bool:
    return session.all_reports()[-1].held is not None


def test_a_prometheus_that_hangs_holds_the_pass_for_seconds_and_not_for_ever(session: Session) -> None:
    pid = own_prometheus(session).pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        session.loop.trigger()
        assert eventually(lambda: is_held(session))
    finally:
        os.kill(pid, signal.SIGCONT)
    session.loop.trigger()
    assert eventually(lambda: not is_held(session))


def test_a_killed_prometheus_holds_every_pass_and_after_three_intervals_every_job_is_restored(session: Session) -> None:
    changed = {outcome.decision.job_uid for outcome in resizes(session)}
    session.revive_at_seconds = float("inf")  # not before we have looked
    own_prometheus(session).kill()
    session.loop.trigger()
    assert eventually(lambda: "original resources are restored" in (session.all_reports()[-1].held or ""))
    held = [report for report in session.all_reports() if report.held]
    assert [outcome for report in held for outcome in report.results.of(Resize)] == []
    assert {session.workshop.limiter.read(uid) for uid in changed} == {UNLIMITED}
    assert session.loop.is_alive()
    session.revive_at_seconds = 0.0
    assert eventually(lambda: not is_held(session))
    assert states(session) == {"fast": "running", "slow": "running"}


def test_a_record_goes_on_when_the_mode_is_changed_and_is_replayed_by_each_mode(
    workshop: Workshop, tmp_path: Path
) -> None:
    policy = a_policy(mode="Recommend")
    with running(workshop, policy, tiny("a", 900, light=True), record=RecordOptions(tmp_path, 8)) as session:
        after_passes(session, lambda: len(observed(session)) > 1)
        session.use(a_policy(), lambda: None)
        before = len(observed(session))
        after_passes(session, lambda: len(observed(session)) > before + 2)
        times = [report.taken_at_seconds for report in observed(session)]
    record = tmp_path / "default.jsonl"
    passes = list(read(record, print))
    recorded = [snapshot_of(each.recorded).taken_at_seconds for each in passes if each.recorded.inputs]
    assert recorded[: len(times)] == times
    assert list(dict.fromkeys(each.settings.document["spec"]["mode"] for each in passes)) == ["Recommend", "Auto"]
    assert replay_file(record, print, lambda _: None).is_same


def test_an_interval_of_less_than_four_scrapes_is_refused(shared_workshop: Workshop) -> None:
    policy = a_policy(behaviour={"intervalSeconds": 2})
    with pytest.raises(UsageError, match="intervalSeconds: 2 s is less than 4 scrapes of 1 s; write 4 or more"):
        Session(shared_workshop, SessionPlan(policy, [tiny("a", 1)], namespace="refused"))
