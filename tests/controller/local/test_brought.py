"""What a job that runs does and when it ends, in everyday words, and where the policy's own reason is shown instead."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.worlds import START, a_job, a_snapshot, known

from slopewise.adapters.local.job_record import JobRecord
from slopewise.config.jobs_file import JobSpec
from slopewise.local.brought import brought, outlook
from slopewise.local.live import live_rows
from slopewise.local.session import Session
from slopewise.local.tally import JobTally
from slopewise.model import (
    NO_RESULTS,
    Decisions,
    Ends,
    JobMemory,
    JobState,
    MemoryState,
    Outcome,
    PassReport,
    Resize,
    Results,
    Withheld,
)

RESIZE = Resize("net", "n1", "limits", 1000, 200, "waits: 2 in order")


@pytest.fixture(autouse=True)
def midnight(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`START` is 13:46:40 of 12 January there."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def remembered(job_class: str, at: float, wait: float = 0.0, fair: float | None = None) -> JobMemory:
    ends = Ends(START + at, START + at - wait, START + at, None if fair is None else START + fair)
    return known(job_class=job_class).with_decided(ends=ends)


def a_report(results: Results = NO_RESULTS, **jobs: JobMemory) -> PassReport:
    snapshot = a_snapshot([a_job(uid) for uid in jobs])
    decisions = Decisions("marginal", (), dict.fromkeys(jobs, "2 in order"), MemoryState(jobs))
    return PassReport(START, "marginal", {}, START, None, snapshot, decisions, results)


NET = remembered("waits", 3600.0, 20.0, 3840.0)
XGB = remembered("first", 20.0)


def said(report: PassReport) -> str:
    assert report.snapshot is not None
    return outlook(next(job for job in report.snapshot.jobs if job.uid == "net"), report)


def test_one_that_waits_says_for_which_job_how_long_and_when_both_ways_of_sharing_end_it() -> None:
    text = said(a_report(net=NET, xgb=XGB))
    assert text == "waits for xgb, back in about 20s; ends about 14:46, under fair sharing 14:50"


def test_of_several_before_it_the_one_that_ends_first_is_named() -> None:
    others: Any = {"slow": remembered("due", 900.0), "xgb": XGB, "also": remembered("waits", 3000.0)}
    assert said(a_report(net=NET, **others)).startswith("waits for xgb and 1 more, back in")


@pytest.mark.parametrize(
    ("memory", "text"),
    [
        (remembered("first", 400.0, fair=500.0), "comes first; ends about 13:53:20, under fair sharing 13:55:00"),
        (remembered("objective", 90_000.0), "has what its objective or deadline needs; ends about Tue 13 Jan 14:46"),
        (remembered("first", -1.0), ""),
        (remembered("waits", 50.0), "waits; ends about 13:47:30"),
        (known(job_class="first"), ""),
        (remembered("NL", 50.0), ""),
    ],
)
def test_what_the_others_say(memory: JobMemory, text: str) -> None:
    assert said(a_report(net=memory)) == text


@pytest.mark.parametrize(
    ("results", "mode", "dry_run", "reason"),
    [
        (NO_RESULTS, "Auto", False, "waits for xgb"),
        (Results((), (Withheld(RESIZE, "floor", "bound floor 100m"),)), "Auto", False, "waits for xgb"),
        (Results((Outcome(RESIZE, "failed", "no cgroup"),)), "Auto", False, "no cgroup"),
        (NO_RESULTS, "Recommend", False, "2 in order"),
        (NO_RESULTS, "Auto", True, "2 in order"),
    ],
)
def test_words_stand_where_the_order_is_carried_out(results: Results, mode: str, dry_run: bool, reason: str) -> None:
    report = a_report(results, net=NET, xgb=XGB)
    (row,) = live_rows(a_session(report, "running", mode, dry_run=dry_run))
    assert row.reason.startswith(reason)


def test_a_job_in_the_queue_says_what_it_waits_for() -> None:
    (row,) = live_rows(a_session(a_report(xgb=XGB), "waiting", "Auto"))
    assert (row.state, row.reason) == ("waiting", "waits for a place: 2 of 2 run")


def a_session(report: PassReport, state: str, mode: str, *, dry_run: bool = False) -> Session:
    """One with the job `net`."""
    record = SimpleNamespace(spec=SimpleNamespace(name="net", objectives=SimpleNamespace(qoe_seconds=None)))
    record.state = state
    queue = SimpleNamespace(waits={"net": "waits for a place: 2 of 2 run"})
    session = SimpleNamespace(
        newest_report=lambda observed: report,
        supervisor=SimpleNamespace(records={"net": record}, queue=queue),
        tally=SimpleNamespace(of=lambda name: JobTally()),
        control="limits",
        spec=SimpleNamespace(mode=mode),
        plan=SimpleNamespace(dry_run=dry_run),
    )
    return cast(Session, session)


@pytest.mark.parametrize("seconds", [1e12, 1e18, 1e300, float("inf")])
def test_an_end_that_no_calendar_has_is_not_said_and_ends_no_session(seconds: float) -> None:
    """A training may report any number of planned steps."""
    assert said(a_report(net=remembered("first", seconds))) == ""
    shown = said(a_report(net=remembered("first", 3600.0, fair=seconds)))
    assert shown == "comes first; ends about 14:46"


@pytest.mark.parametrize(
    ("exit_status", "reported", "compared"),
    [(0, None, True), (1, "finished", False), (None, "finished", True), (None, "failed", False), (None, None, False)],
)
def test_a_job_that_was_taken_over_is_compared_where_it_says_itself_that_it_has_finished(
    exit_status: int | None, reported: str | None, compared: bool
) -> None:
    record = JobRecord(JobSpec("a", [], 0.0), 0, arrived_at_seconds=100.0, finished_at_seconds=120.0)
    record.exit_status, record.status_unknown = exit_status, exit_status is None
    state = None if reported is None else JobState(reported)
    tally = JobTally(first_level=1.0, reported_state=state, fair_seconds=(130.0, 125.0, 140.0))
    found = brought(record, tally)
    assert (None if found is None else found.sentence) == (
        "took 20s; under fair sharing about 30s (25s to 40s)" if compared else None
    )
