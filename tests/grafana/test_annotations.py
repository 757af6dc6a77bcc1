"""Decisions as annotations: what is written of a pass, and a Grafana that is gone, slow, refuses or is none."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.fake_grafana import TOKEN, FakeGrafana
from support.replicas import Town
from support.waiting import eventually
from support.worlds import START, a_job, a_node, a_snapshot, known
from typer.testing import CliRunner

from slopewise.adapters.grafana.annotations import (
    MAX_OF_A_PASS,
    MAX_TAG,
    MAX_WAITING,
    DecisionAnnotations,
    GrafanaAccess,
    annotations_of,
)
from slopewise.commands.app import app
from slopewise.errors import UsageError
from slopewise.model import (
    Decisions,
    MemoryState,
    Migrate,
    MoveEvent,
    MoveRecord,
    Outcome,
    PassReport,
    Resize,
    ResizeMemory,
    Results,
    Stop,
    Withheld,
)

DASHBOARD = Path(__file__).parents[2] / "grafana/dashboards/job.json"


def a_report(*uids: str, **more: Any) -> PassReport:
    """A pass that has resized each of these jobs."""
    resizes = tuple(Resize(uid, "n1", "limits", 1000, 500, "CL, hardly growing") for uid in uids)
    memory = MemoryState({uid: known() for uid in uids})
    return PassReport(
        START,
        "flowcon",
        {},
        START + 20,
        snapshot=a_snapshot([a_job(uid) for uid in uids], [a_node()]),
        decisions=Decisions("flowcon", resizes, {}, memory),
        results=Results(tuple(Outcome(resize, "applied") for resize in resizes)),
        **more,
    )


@pytest.fixture
def grafana() -> Iterator[FakeGrafana]:
    with FakeGrafana() as server:
        yield server


@pytest.fixture
def writer(grafana: FakeGrafana) -> Iterator[DecisionAnnotations]:
    made = DecisionAnnotations(GrafanaAccess(grafana.url, TOKEN), timeout_seconds=0.3, pause=lambda _: 0.01)
    yield made
    made.close()


def texts(report: PassReport) -> list[str]:
    return [each.text for each in annotations_of(report, "training")]


def test_an_applied_resize_says_what_was_changed_and_why_and_is_found_by_job_namespace_and_policy() -> None:
    [annotation] = annotations_of(a_report("mnist"), "training")

    assert annotation.text == "team/mnist 1000m to 500m applied: CL, hardly growing"
    assert annotation.tags == ("slopewise", "resize", "job:mnist", "namespace:team", "policy:training")
    assert annotation.at_seconds == START


def test_the_dashboard_of_a_job_asks_for_the_tags_that_are_written() -> None:
    asked = json.loads(DASHBOARD.read_text(encoding="utf-8"))["annotations"]["list"][1]["target"]["tags"]
    [annotation] = annotations_of(a_report("mnist"), "training")

    assert {tag.replace("$job", "mnist") for tag in asked} <= set(annotation.tags)


def test_moves_stops_and_memory_are_annotated_and_what_was_withheld_is_not() -> None:
    report = a_report("a", "b")
    [resize, _] = report.results.of(Resize)
    migrate = Migrate("a", "n1", "n2", "converged")
    record = MoveRecord(START, "n1", "n2")
    more = replace(
        report,
        results=Results(
            (
                Outcome(ResizeMemory("b", "n1", "request", 2, 1, "needs little"), "failed", "refused"),
                Outcome(migrate, "deferred", "no room"),
                Outcome(Stop("b", "n1", "stopped at its target"), "applied"),
            ),
            (Withheld(resize.decision, "cooldown", "cooldown: 3 s"),),
            (MoveEvent("a", "begun", record, "begun"), MoveEvent("a", "resumed", record, "resumed on n2")),
        ),
    )

    assert texts(more) == [
        "team/a to n2 deferred: no room",
        "team/a resumed on n2",
        "team/b memory request failed: refused",
        "team/b applied: stopped at its target",
    ]


def test_a_held_pass_has_none() -> None:
    assert texts(replace(a_report("a"), held="Prometheus is gone")) == []


def test_of_many_decisions_some_are_written_and_the_others_are_counted() -> None:
    found = texts(a_report(*(f"job-{number}" for number in range(MAX_OF_A_PASS + 30))))

    assert len(found) == MAX_OF_A_PASS + 1
    assert found[-1] == "and 30 more decisions"


def test_a_name_that_looks_like_html_is_shown_as_it_is_and_a_long_one_is_cut() -> None:
    name = "<script>alert('x')</script>\x1b[31m" + "x" * 1000
    [annotation] = annotations_of(a_report(name), "training")

    assert annotation.text.startswith("team/&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;")
    assert "<" not in annotation.text
    assert all(len(tag) <= MAX_TAG for tag in annotation.tags)


def test_annotations_reach_grafana_at_the_time_of_their_pass(writer: DecisionAnnotations, grafana: FakeGrafana) -> None:
    writer.sink("training")(a_report("a", "b"))

    assert eventually(lambda: writer.sent == 2)
    assert [each["text"].split()[0] for each in grafana.annotations] == ["team/a", "team/b"]
    assert {each["time"] for each in grafana.annotations} == {1000 * START}
    assert grafana.annotations[0]["tags"][0] == "slopewise"


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (401, '{"message": "Invalid API key"}', "role Editor"),
        (403, '{"message": "no rights"}', "no rights"),
        (502, "<html>an error message of a proxy</html>", "is not Grafana's API"),
        (200, '{"status": "ok"}', "is not Grafana's API"),
    ],
)
def test_a_grafana_that_refuses_or_is_none_is_logged_once_and_annotations_go_on_when_it_is_well(
    writer: DecisionAnnotations,
    grafana: FakeGrafana,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    status: int,
    body: str,
    reason: str,
) -> None:
    grafana.answer_with(status, body)
    writer.sink("training")(a_report("a", "b", "c"))

    assert eventually(lambda: writer.dropped == 3)
    logged = [line for line in capsys.readouterr().out.splitlines() if "annotation not written" in line]
    assert len(logged) == 1
    assert reason in logged[0]
    grafana.misbehaviour = None
    writer.sink("training")(a_report("d"))
    assert eventually(lambda: writer.sent == 1)


def test_a_grafana_that_is_gone_holds_no_pass_and_no_end() -> None:
    with socket.socket() as unreachable:
        unreachable.bind(("127.0.0.1", 0))  # bound and not listening: nothing else can answer on this port
        access = GrafanaAccess(f"http://127.0.0.1:{unreachable.getsockname()[1]}", TOKEN)
        writer = DecisionAnnotations(access, pause=lambda _: 60.0)
        for _ in range(2 * MAX_WAITING):
            writer.sink("training")(a_report("a"))

        assert writer.dropped >= MAX_WAITING - 1  # what waits is bounded
        writer.close(timeout_seconds=0.2)
        assert not writer._thread.is_alive()


def test_a_grafana_that_hangs_holds_no_pass(writer: DecisionAnnotations, grafana: FakeGrafana) -> None:
    grafana.silent.set()
    writer.sink("training")(a_report("a"))

    assert eventually(lambda: writer.dropped == 1)


def test_closing_sends_what_waits(writer: DecisionAnnotations, grafana: FakeGrafana) -> None:
    writer.sink("training")(a_report(*(f"job-{number}" for number in range(10))))
    writer.close(timeout_seconds=10)

    assert len(grafana.annotations) == 10


def test_an_address_that_is_none_is_refused_before_anything_starts() -> None:
    with pytest.raises(UsageError, match="is not Grafana's address"):
        DecisionAnnotations(GrafanaAccess("grafana.example.org", TOKEN))


def test_a_run_that_is_to_annotate_needs_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRAFANA_TOKEN", raising=False)
    result = CliRunner().invoke(app, ["run", "--local", "--jobs", "x.yaml", "--grafana-url", "http://grafana"])

    assert isinstance(result.exception, UsageError)
    assert "set GRAFANA_TOKEN" in str(result.exception)


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_replica_annotates_what_its_policies_change_and_nothing_in_a_dry_run(
    grafana: FakeGrafana, *, dry_run: bool
) -> None:
    with Town() as town:
        town.pod("a")
        town.policy("p", mode="Auto")
        with town.replica(annotated=GrafanaAccess(grafana.url, TOKEN), dry_run=dry_run) as replica:
            assert eventually(lambda: replica.passes() >= 2)
            if not dry_run:
                assert eventually(lambda: grafana.annotations)
    if dry_run:
        assert grafana.annotations == []
    else:
        assert "300m to 2000m applied" in grafana.annotations[0]["text"]
        assert "policy:p" in grafana.annotations[0]["tags"]
