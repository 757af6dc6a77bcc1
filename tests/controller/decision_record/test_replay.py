"""A record gives the same decisions again, bit for bit."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.instances import Diverging, a_sim_job, a_sim_node, an_instance
from support.own_policy import a_file, deciding
from support.recorded_runs import a_document, record_run
from support.worlds import START, FakeActuator, FakeClock, FakeObserver, a_job, a_snapshot

from slopewise.config.pass_settings import pass_settings, policy_of
from slopewise.config.training_policy import as_json
from slopewise.decision_record.files import BoundedFile
from slopewise.decision_record.lines import Answer, Pass, decode, encode
from slopewise.decision_record.reader import read
from slopewise.decision_record.recorder import Recorder
from slopewise.decision_record.replay import NOT_CARRIED_OUT, Given, ReplayedPass, replay
from slopewise.errors import ActuationError
from slopewise.memory_in_process import DictionaryMemory
from slopewise.model import ClusterSnapshot, Job, MemoryState, Migrate, Outcome, PassReport, Place, Resize
from slopewise.own_policies.catalogue import forget, name_file
from slopewise.ports import Ports
from slopewise.reconcile import reconcile
from slopewise.simulator.world.model import Instance


def no_notice(message: str) -> None:
    raise AssertionError(message)


def replayed(path: Path) -> list[ReplayedPass]:
    return list(replay(read(path, no_notice)))


def mixed_jobs() -> Instance:
    jobs = [
        a_sim_job(f"job-{n}", 150.0 + 40 * n, 25.0 * n, noise=0.02, steps_planned=1000 if n % 2 else None)
        for n in range(4)
    ]
    jobs.append(a_sim_job("diverges", 200.0, 10.0, curve=Diverging(0.4)))
    return an_instance(jobs, [a_sim_node("n1"), a_sim_node("n2", cpu=2.0)], seed=3)


MOVES: dict[str, Any] = {"migration": {"enabled": True, "minStaySeconds": 0}}


@pytest.mark.parametrize(
    ("policy", "spec"),
    [
        ("flowcon", {}),
        ("flowcon2", {"resources": {"control": "limits"}}),
        ("marginal", {}),
        ("deadline", {}),
        ("flowcon", {"placement": {"name": "specon"}, **MOVES}),
        ("flowcon", {"mode": "Recommend"}),
        ("fair", {"mode": "Observe"}),
    ],
)
def test_every_pass_gives_the_same_result_again(
    policy: str, spec: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "record.jsonl"
    reports = record_run(monkeypatch, mixed_jobs(), a_document(policy, **spec), path)
    again = replayed(path)
    assert len(again) == len(reports) > 10
    assert [(each.where, each.differences) for each in again if each.differences] == []
    for kinds in ((Resize,), (Place, Migrate)):
        assert [each.report.results.of(*kinds) for each in again] == [report.results.of(*kinds) for report in reports]
    if policy != "deadline" and spec.get("mode", "Auto") == "Auto":
        assert any(report.results.of(Resize) for report in reports), "the run decides something"
    if "migration" in spec:
        assert any(report.results.of(Place, Migrate) for report in reports)
        assert any(not job.evaluation.finite for report in reports for job in jobs_of(report) if job.evaluation)


def jobs_of(report: PassReport) -> tuple[Job, ...]:
    return () if report.snapshot is None else report.snapshot.jobs


def test_a_decision_that_differs_now_is_reported_with_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "record.jsonl"
    record_run(monkeypatch, mixed_jobs(), a_document("flowcon"), path)
    lines = path.read_bytes().splitlines(keepends=True)
    at, line = next((n, line) for n, line in enumerate(lines) if b'"action":"resize"' in line and b'"decided"' in line)
    changed = decode(line)
    assert isinstance(changed, Pass)
    first = changed.result.decided[0]
    other = msgspec.structs.replace(first, after=12345)
    result = msgspec.structs.replace(changed.result, decided=(other, *changed.result.decided[1:]))
    lines[at] = encode(msgspec.structs.replace(changed, result=result))
    path.write_bytes(b"".join(lines))
    (different,) = [each for each in replayed(path) if each.differences]
    assert different.where == f"{path}, line {at + 1}"
    then, now = different.differences
    assert then.startswith("no longer decided: ")
    assert "12345" in then
    assert now.startswith("decided now: ")
    assert str(first.after) in now


class OrderedOtherwise(DictionaryMemory):
    """As on a cluster, where jobs are loaded in the order of their objects, and not in that of the snapshot."""

    def load(self) -> MemoryState:
        state = super().load()
        return dataclasses.replace(state, jobs=dict(reversed(list(state.jobs.items()))))


def test_a_policy_of_ones_own_that_fails_where_it_decided_is_a_difference_of_each_pass(tmp_path: Path) -> None:
    mine, path = a_file(tmp_path, deciding("return fair")), tmp_path / "record.jsonl"
    document = a_document(name_file(mine).name)
    recorder, memory = Recorder(BoundedFile(path, 1_000_000), as_json(document)), OrderedOtherwise()
    for at in (START, START + 20):
        observer = FakeObserver([a_snapshot([a_job("a", at=at), a_job("b", at=at)], at=at)])
        ports = recorder.ports(Ports(observer, FakeActuator(), memory, FakeClock(at)))
        recorder(reconcile(ports, policy_of(document), pass_settings(document)))
    recorder.close()
    assert [each.differences for each in replayed(path)] == [[], []]
    mine.write_text(deciding("return 1 / 0"))
    forget()
    name_file(mine)
    again = replayed(path)
    assert [(each.report.policy_failed, bool(each.differences)) for each in again] == [(True, True)] * 2


def test_an_answer_and_an_error_of_the_actuator_are_those_of_the_record(tmp_path: Path) -> None:
    resize, refused = Resize("a", "n1", "limits", 500, 700, "up"), Resize("b", "n1", "limits", 500, 300, "down")
    actuator = Given(
        ClusterSnapshot(1.0, (), ()),
        (
            Answer("resize", "a", "deferred", "no room", begun_at_seconds=3.0),
            Answer("resize", "b", "failed", "the API server refuses", raised=True),
        ),
    )
    assert actuator.carry_out(resize) == Outcome(resize, "deferred", "no room", begun_at_seconds=3.0)
    with pytest.raises(ActuationError, match="the API server refuses"):
        actuator.carry_out(refused)
    assert actuator.carry_out(resize) == Outcome(resize, "deferred", NOT_CARRIED_OUT), "each answer was given once"
