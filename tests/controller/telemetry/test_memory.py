"""Memory of jobs in the log line and in the metrics."""

from __future__ import annotations

from support.worlds import START, a_job, a_snapshot

from slopewise.model import (
    Decisions,
    JobMemory,
    MemoryAllocation,
    MemoryState,
    Outcome,
    PassReport,
    ResizeMemory,
    Results,
    Usage,
    Withheld,
)
from slopewise.telemetry.log_line import PassLines
from slopewise.telemetry.metrics import Telemetry

MIB = 2**20
CHANGE = ResizeMemory("a", "n1", "request", 1024 * MIB, 360 * MIB, "CL, hardly growing")
JOB = a_job("a").altered(usage=Usage(START, 0.0, 300.0 * MIB), memory=MemoryAllocation(1024 * MIB))


def a_report(
    outcomes: tuple[Outcome[ResizeMemory], ...] = (), withheld: tuple[Withheld[ResizeMemory], ...] = ()
) -> PassReport:
    decisions = Decisions("p", (), {}, MemoryState({"a": JobMemory()}))
    return PassReport(
        START, "p", {}, START + 20, snapshot=a_snapshot([JOB]), decisions=decisions, results=Results(outcomes, withheld)
    )


def test_a_change_is_in_the_line_of_its_pass() -> None:
    facts = PassLines(20.0).facts(a_report((Outcome(CHANGE, "applied"),)))
    assert facts is not None
    assert facts["changes"] == ["team/a memory request 1024Mi to 360Mi applied: CL, hardly growing"]
    assert (facts["wanted"], facts["applied"]) == (1, 1)


def test_what_a_guard_withholds_is_in_a_line_once_and_in_a_quiet_mode_with_what_is_wanted() -> None:
    lines = PassLines(20.0)
    withheld = a_report(withheld=(Withheld(CHANGE, "memory_paused", "memory_paused: mode is Recommend"),))
    facts = lines.facts(withheld)
    assert facts is not None
    expected = "team/a memory request 1024Mi to 360Mi withheld: memory_paused: mode is Recommend; CL, hardly growing"
    assert (facts["changes"], facts["withheld"]) == ([expected], {"memory_paused": 1})
    assert lines.facts(withheld) is None


def test_metrics_have_the_working_set_request_and_limit_where_there_is_one() -> None:
    telemetry = Telemetry(control="requests", interval_seconds=20.0)
    withheld = Withheld(CHANGE, "memory_pressure", "why")
    telemetry.record(a_report((Outcome(CHANGE, "applied"),), (withheld,)))
    labels = {"job_namespace": "team", "job_name": "a", "job_node": "n1"}
    found = {
        name: telemetry.registry.get_sample_value(f"slopewise_job_memory_{name}_bytes", labels)
        for name in ("working_set", "request", "limit")
    }
    assert found == {"working_set": 300.0 * MIB, "request": 1024.0 * MIB, "limit": None}
    assert telemetry.registry.get_sample_value("slopewise_resizes_total", {"outcome": "applied"}) == 1
    assert telemetry.registry.get_sample_value("slopewise_withheld_total", {"guard": "memory_pressure"}) == 1
