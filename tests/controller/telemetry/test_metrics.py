"""What the controller says of itself: the metrics of docs/metrics.md, and one log line a pass."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog
from msgspec import structs
from prometheus_client import generate_latest
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_metrics
from support.worlds import START, a_job, a_node, a_snapshot, known

from slopewise.errors import SlopewiseError
from slopewise.manager.metrics import ClusterMetrics, of_freezes, of_moves, of_resizes, of_suspended, of_watches
from slopewise.model import (
    Absence,
    Change,
    CpuAllocation,
    DeadlineStatus,
    Decisions,
    Job,
    JobMemory,
    JobState,
    MemoryState,
    Migrate,
    MoveEvent,
    MoveRecord,
    MoveStage,
    ObjectiveStatus,
    Outcome,
    Pace,
    PassReport,
    PendingResize,
    Place,
    QoeStatus,
    Resize,
    Results,
    Stop,
    TargetStatus,
    Timing,
    Withheld,
)
from slopewise.telemetry.families import page
from slopewise.telemetry.metrics import Instruments, Telemetry, configure_logging

VERBS = {"observe": 0.01, "decide": 0.001, "guard": 0.0001, "act": 0.002}
DOCUMENTED = Path(__file__).parents[3] / "docs" / "metrics.md"


def a_report(held: str | None = None) -> PassReport:
    if held:
        return PassReport(START, "flowcon", {"observe": 0.01}, START + 20, held=held)
    jobs = [a_job("a"), a_job("b", finite=False), a_job("c", level=None)]
    resize = Resize("a", "n1", "limits", 1000, 500, "why")
    memory = MemoryState({"a": known(efficiency=0.02, job_class="NL", wanted=0.5), "b": known(), "c": known()})
    return PassReport(
        START,
        "flowcon",
        VERBS,
        START + 20,
        snapshot=a_snapshot(jobs, [a_node(cpu_cores=2.0)]),
        decisions=Decisions("flowcon", (resize,), {}, memory),
        results=Results((Outcome(resize, "applied"),), (Withheld(resize, "cooldown", "cooldown: …"),)),
    )


def recorded(*reports: PassReport) -> Telemetry:
    configure_logging(stream=io.StringIO())
    telemetry = Telemetry(control="limits", interval_seconds=20.0)
    for report in reports:
        telemetry.record(report)
    return telemetry


def a_pass_over(*jobs: Job, memory: Mapping[str, JobMemory] | None = None, **more: Any) -> PassReport:
    """A pass that decides nothing, and remembers nothing of the jobs but what is given."""
    state = MemoryState({job.uid: JobMemory() for job in jobs} | dict(memory or {}))
    snapshot = a_snapshot(jobs)
    return PassReport(START, "p", {}, START + 20, snapshot=snapshot, decisions=Decisions("p", (), {}, state), **more)


def of_job(telemetry: Telemetry, name: str, uid: str = "a", **labels: str) -> float | None:
    return value(telemetry, f"slopewise_job_{name}", job_namespace="team", job_name=uid, job_node="n1", **labels)


def value(telemetry: Telemetry, name: str, **labels: str) -> float | None:
    return telemetry.registry.get_sample_value(name, labels)


def test_every_exported_metric_is_documented_and_every_documented_one_is_exported() -> None:
    telemetry = recorded(a_report())
    cluster = ClusterMetrics(telemetry.registry)
    cluster.follow(lambda: of_watches({"pods": (1.0, 0)}))
    cluster.follow(lambda: of_resizes({"node-a": [7.0, 31.0]}))
    cluster.follow(lambda: of_moves([7.0, 31.0], []))
    cluster.follow(lambda: of_suspended([]))
    cluster.follow(lambda: of_freezes({}))
    telemetry.record_left_out({("team", "loud"): 100_000})
    telemetry.record_outage(lasts=False)
    text = generate_latest(telemetry.registry).decode()
    exported = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE slopewise_")}
    exported = {name for name in exported if not name.endswith("_created")}
    documented = set(re.findall(r"`(slopewise_[a-z_]+)", DOCUMENTED.read_text()))
    assert exported | {"slopewise_saved_seconds"} == documented, "that one is of a session on one machine"


@pytest.mark.parametrize(
    ("accept", "parse"),
    [("text/plain", plain_metrics), ("application/openmetrics-text;version=1.0.0", open_metrics)],
    ids=["plain", "openmetrics"],
)
def test_a_page_has_the_samples_that_the_client_library_would_write(accept: str, parse: Any) -> None:
    report = a_report()
    assert report.snapshot is not None
    first, *others = report.snapshot.jobs
    odd = first.altered(name='the "odd"\\\n')
    registry = recorded(replace(report, snapshot=replace(report.snapshot, jobs=(odd, *others)))).registry
    encode, content_type = choose_encoder(accept)
    headers, body = page(registry, accept, "identity")
    found = list(parse(body.decode()))
    assert found == list(parse(encode(registry).decode()))
    assert headers == [("Content-Type", content_type)]
    names = {each.labels["job_name"] for family in found for each in family.samples if "job_name" in each.labels}
    assert names == {odd.name, "b", "c"}


def test_names_are_escaped_alike_on_all_of_a_page() -> None:
    registry, accept = recorded(a_report()).registry, "text/plain;version=1.0.0;escaping=dots"
    encode, _ = choose_encoder(accept)
    _, body = page(registry, accept, "identity")
    assert body == encode(registry)
    assert b"slopewise__job__" in body


def test_pods_with_too_many_series_are_named_until_they_have_fewer_and_each_policy_names_its_own() -> None:
    instruments = Instruments()
    first, second = (
        Telemetry(control="limits", interval_seconds=20.0, document=name, instruments=instruments) for name in "ab"
    )
    first.record_left_out({("team", "loud"): 5_000})
    second.record_left_out({("team", "loud"): 5_001})
    second.record_left_out({})
    assert series_left_out(instruments, "a") == 5_000
    assert series_left_out(instruments, "b") is None
    first.forget()
    assert series_left_out(instruments, "a") is None


def series_left_out(instruments: Instruments, policy: str) -> float | None:
    pod = {"name": policy, "job_namespace": "team", "job_name": "loud"}
    return instruments.registry.get_sample_value("slopewise_left_out_series", pod)


def test_a_pass_is_counted_with_its_outcomes_and_a_held_one_is_not_the_last_one() -> None:
    telemetry = recorded()
    counters = [
        ("slopewise_passes_total", {"result": "ok"}), ("slopewise_passes_total", {"result": "held"}),
        ("slopewise_resizes_total", {"outcome": "applied"}), ("slopewise_resizes_total", {"outcome": "failed"}),
        ("slopewise_withheld_total", {"guard": "cooldown"}), ("slopewise_withheld_total", {"guard": "node_capacity"}),
    ]  # fmt: skip

    def values() -> list[float | None]:
        return [value(telemetry, name, **labels) for name, labels in counters]

    assert values() == [0] * 6, "they are there before their first event"
    telemetry.record(a_report(held="Prometheus is gone"))
    assert (values(), value(telemetry, "slopewise_last_pass_timestamp_seconds")) == ([0, 1, 0, 0, 0, 0], 0)
    telemetry.record(a_report())
    assert values() == [1, 1, 1, 0, 1, 0]
    assert value(telemetry, "slopewise_last_pass_timestamp_seconds") == START + sum(VERBS.values())
    assert value(telemetry, "slopewise_interval_seconds") == 20


def test_figures_of_a_job_are_those_of_the_last_pass_that_observed() -> None:
    telemetry = recorded(a_report(), a_report(held="Prometheus is gone"))
    assert of_job(telemetry, "growth_efficiency", resource="cpu") == 0.02
    cores = [of_job(telemetry, f"cpu_{which}_cores") for which in ("allocated", "accepted", "wanted")]
    assert cores == [2.0, 2.0, 0.5]
    assert of_job(telemetry, "class", **{"class": "NL"}) == 1
    assert of_job(telemetry, "diverged", "b") == 1
    assert of_job(telemetry, "metrics_available", "c") == 0
    assert value(telemetry, "slopewise_jobs", state="training") == 3


def test_an_evaluation_that_has_grown_old_is_none_that_is_available() -> None:
    telemetry = recorded(a_pass_over(a_job("fresh", age=19.0), a_job("stale", age=21.0)))  # four scrapes of 5 s
    assert [of_job(telemetry, "metrics_available", uid) for uid in ("fresh", "stale")] == [1.0, 0.0]


def test_what_a_job_has_is_what_its_kubelet_reports_and_not_what_was_accepted() -> None:
    telemetry = recorded(a_pass_over(a_job("a", limit=500).altered(actual=CpuAllocation(2000, 1000))))
    assert of_job(telemetry, "cpu_allocated_cores") == 2.0
    assert of_job(telemetry, "cpu_accepted_cores") == 0.5


def test_what_is_true_of_some_jobs_is_exported_of_those_alone() -> None:
    pending = PendingResize("deferred", START - 75.0, "no room", CpuAllocation(1000, 1000))
    worse = Change(START - 60, "limits", 1000, 500, regression="OOM-killed after its CPU went from 1000m to 500m")
    changed = JobMemory(original=CpuAllocation(1000, 250), change=worse)
    dear = known(timing=Timing(least_step_cpu_seconds=2.0), paces=(Pace(START, 4.0, 0.8),) * 3)
    memory = {
        "worse": changed.altered(backoff=changed.backoff.altered(until_seconds=START + 1)),
        "better": changed.altered(backoff=changed.backoff.altered(until_seconds=START)),
        "dear": dear,
        "cheap": dear.altered(timing=dear.timing.altered(least_step_cpu_seconds=None)),
        "ended": dear,
    }
    jobs = [
        a_job("waits").altered(pending=pending, wait_ratio=0.4),
        *(a_job(uid) for uid in ("worse", "better", "dear", "cheap", "plain")),
        a_job("ended", state=JobState.FINISHED),
    ]
    telemetry = recorded(a_pass_over(*jobs, memory=memory))

    def figures(name: str) -> dict[str, float]:
        found = {job.uid: of_job(telemetry, name, job.uid) for job in jobs}
        return {uid: each for uid, each in found.items() if each is not None}

    assert figures("resize_pending_seconds") == {"waits": 75.0}
    assert figures("regressed") == {"worse": 1.0, "better": 0.0}
    assert figures("cpu_per_step_ratio") == {"dear": pytest.approx(1.6)}
    assert figures("wait_ratio") == {"waits": 0.4}


def test_what_an_owner_asks_of_a_job_is_exported_and_of_other_jobs_nothing() -> None:
    jobs = [a_job("late"), a_job("done"), a_job("new"), a_job("hangs"), a_job("plain")]
    statuses = {
        "late": ObjectiveStatus(
            QoeStatus(10.0, 12.0, -0.2, "B", True), DeadlineStatus(START + 60, 60.0, -40.0, True, True)
        ),
        "done": ObjectiveStatus(deadline=DeadlineStatus(START - 5, -5.0), target=TargetStatus(True, False)),
        "hangs": ObjectiveStatus(QoeStatus(0.5, 40.0, -79.0, "B", True, in_flight=12.0)),
        "new": ObjectiveStatus(QoeStatus(10.0), target=TargetStatus(None, True)),
    }
    telemetry = recorded(a_pass_over(*jobs, objective_statuses=statuses))

    def figures(name: str) -> dict[str, float]:
        there = {"job_namespace": "team", "job_name": name, "job_node": "n1"}
        found = {}
        for family in telemetry.registry.collect():
            for sample in family.samples:
                if {**sample.labels, **there} == sample.labels and re.search(
                    "objective|qoe|deadline|reached", sample.name
                ):
                    found[sample.name.removeprefix("slopewise_job_") + sample.labels.get("class", "")] = sample.value
        return found

    assert figures("late") == {
        "objective_seconds": 10.0,
        "objective_took_seconds": 12.0,
        "qoe_deviation_ratio": -0.2,
        "qoe_classB": 1.0,
        "objective_missed": 1.0,
        "deadline_timestamp_seconds": START + 60,
        "deadline_slack_seconds": -40.0,
        "deadline_hopeless": 1.0,
        "deadline_missed": 0.0,
    }
    assert figures("hangs") == {
        "objective_seconds": 0.5,
        "objective_took_seconds": 40.0,
        "qoe_deviation_ratio": -79.0,
        "qoe_classB": 1.0,
        "objective_missed": 1.0,
    }
    assert figures("done") == {
        "deadline_timestamp_seconds": START - 5,
        "deadline_hopeless": 0.0,
        "deadline_missed": 1.0,
        "deliverable_reached": 1.0,
        "target_reached": 0.0,
    }
    assert figures("new") == {"objective_seconds": 10.0, "target_reached": 1.0}
    assert figures("plain") == {}


def test_a_pass_is_one_json_line_with_its_figures_and_names() -> None:
    (line,) = lines_of(a_report())
    assert (line["event"], line["name"], line["policy"]) == ("pass completed", "training", "flowcon")
    assert (line["jobs"], line["applied"], line["withheld"]) == (3, 1, {"cooldown": 1})
    assert line["observe_ms"] == 10.0
    assert line["changes"] == ["team/a 1000m to 500m applied: why", "team/a 1000m to 500m withheld: cooldown: …"]


def a_report_with_moves() -> PassReport:
    place, migrate = Place("late", "n2", "least claims"), Migrate("a", "n1", "n2", "slow move")
    return also(
        a_report(),
        outcomes=(Outcome(place, "applied"), Outcome(migrate, "infeasible", "does not move yet")),
        withheld=(Withheld(migrate, "may_migrate", "may_migrate: it must not"),),
    )


def also(report: PassReport, **more: Any) -> PassReport:
    """The report with these results besides."""
    results = {kind: (*getattr(report.results, kind), *found) for kind, found in more.items()}
    return replace(report, results=structs.replace(report.results, **results))


def test_moves_are_counted_by_kind_and_outcome_and_withheld_ones_under_their_guard() -> None:
    telemetry = recorded(a_report_with_moves())
    assert value(telemetry, "slopewise_moves_total", kind="place", outcome="applied") == 1
    assert value(telemetry, "slopewise_moves_total", kind="migrate", outcome="infeasible") == 1
    assert value(telemetry, "slopewise_moves_total", kind="migrate", outcome="applied") == 0
    assert value(telemetry, "slopewise_withheld_total", guard="may_migrate") == 1
    assert value(telemetry, "slopewise_withheld_total", guard="cooldown") == 1


def test_the_line_of_a_pass_names_every_move_and_what_became_of_it() -> None:
    (line,) = lines_of(a_report_with_moves())
    assert line["moves"] == [
        "place late on n2 applied: least claims",
        "migrate team/a on n2 infeasible: does not move yet",
        "migrate team/a on n2 withheld: may_migrate: it must not",
    ]
    assert line["withheld"] == {"cooldown": 1, "may_migrate": 1}


def test_a_line_names_a_job_without_a_pod_by_its_workload() -> None:
    report = a_report()
    assert report.snapshot is not None
    absent = Absence("job-1:0", "suspended", "its Job is suspended, and not by Slopewise", "team/train")
    event = MoveEvent("job-1:0", "cancelled", MoveRecord(START, "n1", "n2"), "its move is over")
    snapshot = replace(report.snapshot, absent=(absent,))
    (line,) = lines_of(also(replace(report, snapshot=snapshot), events=(event,)))
    assert line["moves"] == ["team/train its move is over"]


def news(stage: MoveStage, message: str, **more: object) -> MoveEvent:
    record = MoveRecord(START - 10.0, "n1", "n2", **more)  # type: ignore[arg-type]
    return MoveEvent("a", stage, record, message, warning=stage == "failed")


BACK = {"resumed_at_seconds": START - 6.0, "resumed_on": "n2", "steps_lost": 20.0}
STAGES = (
    news("begun", "moves from n1 to n2: why"),
    news("resumed", "resumed on n2 after 4 s, 20 steps lost", **BACK),
    news("failed", "crashed on resume: failed; it is not moved again", **BACK, failure="crashed on resume: failed"),
)


def test_what_became_of_migrations_is_counted_with_what_they_cost_and_one_given_up_has_cost_nothing() -> None:
    stayed = news("cancelled", "stays on n1", **{**BACK, "resumed_on": "n1"})
    telemetry = recorded(also(a_report(), events=(*STAGES, stayed)))
    stages = ("begun", "resumed", "failed", "cancelled")
    assert [value(telemetry, "slopewise_migrations_total", stage=each) for each in stages] == [1, 1, 1, 1]
    assert value(telemetry, "slopewise_move_pause_seconds_sum") == 4.0
    assert value(telemetry, "slopewise_move_pause_seconds_count") == 1
    assert value(telemetry, "slopewise_move_steps_lost_total") == 20.0


def lines_of(*reports: PassReport, interval_seconds: float = 20.0) -> list[dict[str, Any]]:
    """What one policy's passes log."""
    stream = io.StringIO()
    configure_logging(stream=stream, as_json=True)
    telemetry = Telemetry(control="limits", interval_seconds=interval_seconds, document="training")
    for report in reports:
        telemetry.record(report)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def a_quiet_report(after_seconds: float = 0.0, guard: str = "cooldown") -> PassReport:
    """A pass that changes nothing, because a guard withholds what is wanted."""
    report = a_report()
    [withheld] = report.results.withheld
    return replace(
        report,
        taken_at_seconds=START + after_seconds,
        results=Results(withheld=(withheld.altered(guard=guard, reason=f"{guard}: {after_seconds:g} s"),)),
    )


def test_what_became_of_earlier_migrations_is_in_a_line_of_its_own_pass_however_quiet_it_is() -> None:
    quiet, reported = a_quiet_report(), also(a_quiet_report(2.0), events=STAGES)
    first, second = lines_of(quiet, reported)
    assert first["moves"] == []
    assert second["moves"] == [f"team/a {each.message}" for each in STAGES[1:]]


def test_passes_in_quick_succession_have_one_line_an_interval_and_a_change_one_of_its_own() -> None:
    lines = lines_of(*(a_quiet_report(seconds) for seconds in range(0, 42, 2)))
    assert [line["withheld"] for line in lines] == [{"cooldown": 1}] * 3
    changed = replace(a_report(), taken_at_seconds=START + 2)
    assert [line["applied"] for line in lines_of(a_quiet_report(), changed, changed)] == [0, 1, 1]
    held = [
        replace(a_report(held=f"no news for {seconds} s"), taken_at_seconds=START + seconds)
        for seconds in range(0, 20, 2)
    ]
    assert [line["reason"] for line in lines_of(*held)] == ["no news for 0 s", "no news for 18 s"]


def test_what_is_withheld_is_named_once_and_counted_in_every_line() -> None:
    first, second, third = lines_of(a_quiet_report(), a_quiet_report(20), a_quiet_report(22, guard="floor"))
    assert first["changes"] == ["team/a 1000m to 500m withheld: cooldown: 0 s"]
    assert (second["changes"], second["withheld"]) == ([], {"cooldown": 1})
    assert third["changes"] == ["team/a 1000m to 500m withheld: floor: 22 s"]


def test_a_line_names_twenty_changes_what_went_wrong_first_and_counts_the_others() -> None:
    report = a_report()
    [applied] = report.results.outcomes
    outcomes = (*[applied] * 30, applied.altered(result="failed", detail="refused"))
    [line] = lines_of(replace(report, results=Results(outcomes)))
    assert line["changes"][0] == "team/a 1000m to 500m failed: refused"
    assert len(line["changes"]) == 21
    assert line["changes"][-1] == "and 11 more"


@pytest.mark.parametrize("uid", ["a", "of-another-pod"])
def test_a_job_that_went_to_another_policy_is_reported_once_by_the_one_that_saw_it_last(uid: str) -> None:
    """Or a new pod of its name."""
    instruments = Instruments()
    configure_logging(stream=io.StringIO())
    for name, of, level, at in (("old", "a", 1.0, START), ("new", uid, 2.0, START + 20)):
        telemetry = Telemetry(control="limits", interval_seconds=20.0, document=name, instruments=instruments)
        job = a_job("a", level=level, at=at).altered(uid=of)
        snapshot = a_snapshot([job], [a_node()], at=at)
        decisions = Decisions("flowcon", (), {}, MemoryState({of: known()}))
        telemetry.record(PassReport(at, "flowcon", VERBS, at + 20, snapshot=snapshot, decisions=decisions))
    a = {"job_namespace": "team", "job_name": "a", "job_node": "n1"}
    levels = [
        sample.value
        for family in telemetry.registry.collect()
        for sample in family.samples
        if (sample.name, sample.labels) == ("slopewise_job_evaluation", a)
    ]
    assert levels == [2.0]
    assert value(telemetry, "slopewise_jobs", state="training") == 1


def test_an_expected_failure_is_one_sentence_and_our_mistake_is_logged_in_full() -> None:
    stream = io.StringIO()
    configure_logging(stream=stream, as_json=True)
    telemetry = Telemetry(control="limits", interval_seconds=20.0)
    telemetry.record_failure(SlopewiseError("the disk is full"))
    assert json.loads(stream.getvalue())["reason"] == "the disk is full"
    configure_logging(stream=stream)
    telemetry.record_failure(ZeroDivisionError("by zero"))
    assert "ZeroDivisionError: by zero" in stream.getvalue()
    assert value(telemetry, "slopewise_passes_total", result="failed") == 2
    structlog.reset_defaults()


@pytest.mark.parametrize(("available", "shown"), [(None, 4.0), (1.5, 1.5), (-1.0, 0.001)])
def test_what_others_leave_of_a_node_is_exported(available: float | None, shown: float) -> None:
    report = a_report()
    assert report.snapshot is not None
    nodes = tuple(replace(node, cpu_cores=4.0, available_cores=available) for node in report.snapshot.nodes)
    telemetry = recorded(replace(report, snapshot=replace(report.snapshot, nodes=nodes)))
    assert value(telemetry, "slopewise_node_available_cores", job_node="n1") == shown
    assert value(telemetry, "slopewise_node_allocatable_cores", job_node="n1") == 4.0


def test_stops_at_the_target_are_counted_and_logged_and_a_withheld_one_once() -> None:
    stop = Stop("a", "n1", "stopped at its target: loss 0.19 ≤ 0.2")
    quiet = a_quiet_report()
    done = also(a_quiet_report(2.0), outcomes=(Outcome(stop, "applied"),))
    assert value(recorded(quiet, done), "slopewise_stops_total", outcome="applied") == 1
    withheld = Withheld(stop, "stop_checkpointing", "stop_checkpointing: job is checkpointing")
    waits = [also(a_quiet_report(at), withheld=(withheld,)) for at in (4.0, 60.0)]
    first, stopped, held, again = lines_of(quiet, done, *waits)
    assert [line.get("stops") for line in (first, stopped, held, again)] == [
        None,
        ["stop team/a applied: stopped at its target: loss 0.19 ≤ 0.2"],
        ["stop team/a withheld: stop_checkpointing: job is checkpointing"],
        None,
    ]
    assert held["withheld"] == {"cooldown": 1, "stop_checkpointing": 1}


def test_a_warning_is_logged_once_and_equal_ones_of_a_pass_are_one_with_the_other_jobs() -> None:
    jobs = [a_job(name).altered(warnings=(f"port {port} refuses",)) for name, port in (("a", 1), ("b", 2), ("c", 3))]
    odd = a_job("d").altered(warnings=("port 4 breaks off",))
    report = replace(a_report(), snapshot=a_snapshot([*jobs, odd]), decisions=None)
    lines = [line for line in lines_of(report, report) if line["event"] == "job warning raised"]
    assert [(line["job"], line["warning"], line.get("others")) for line in lines] == [
        ("team/a", "its port refuses", ["team/b", "team/c"]),
        ("team/d", "port 4 breaks off", None),
    ]


def test_a_warning_whose_figure_grows_with_each_pass_is_logged_once() -> None:
    reports = [
        replace(
            a_report(),
            snapshot=a_snapshot([a_job("a").altered(warnings=(f"left out: it exports {series} series",))]),
            decisions=None,
        )
        for series in (5_000, 5_010, 5_020)
    ]
    raised = [line["warning"] for line in lines_of(*reports) if line["event"] == "job warning raised"]
    assert raised == ["left out: it exports 5000 series"]
