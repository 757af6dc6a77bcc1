"""The history from a decision record: every action that was carried out, in words and in figures."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import msgspec
import pandas as pd
import pytest
from support.recorded_runs import Recorded

from slopewise.config.quantities import cpu_quantity
from slopewise.crds.history import as_json, csv_text
from slopewise.decision_record.lines import Decided, Inputs, Pass, Settings, decode, encode
from slopewise.errors import UsageError
from slopewise.model import CpuAllocation, MemoryAllocation, PassReport, Resize
from slopewise.operate.recorded import history_recorded


@pytest.fixture
def reports(recorded: Recorded) -> list[PassReport]:
    return recorded.reports


def silent(message: str) -> None:
    raise AssertionError(message)


def applied(reports: list[PassReport]) -> list[Resize]:
    return [each.decision for report in reports for each in report.results.of(Resize) if each.result == "applied"]


def test_every_applied_resize_is_there_in_order_with_its_figures(path: Path, reports: list[PassReport]) -> None:
    lines = [line for line in history_recorded(path, None, silent) if line.action.result == "applied"]
    wanted = applied(reports)
    assert len(wanted) > 10, "more than a JobGrowth keeps"
    assert [
        (line.workload, line.action.change, line.figures.before, line.figures.after, line.figures.unit)
        for line in lines
        if line.figures is not None
    ] == [
        (
            each.job_uid,
            f"requests {cpu_quantity(each.from_millicores)} to {cpu_quantity(each.to_millicores)}",
            each.from_millicores,
            each.to_millicores,
            "millicores",
        )
        for each in wanted
    ]
    assert {line.namespace for line in lines} == {"simulated"}
    assert {line.figures.policy for line in lines if line.figures is not None} == {"recorded"}


@pytest.mark.parametrize("name", ["long", "simulated/long"])
def test_one_job_is_named_with_or_without_its_namespace(name: str, path: Path, reports: list[PassReport]) -> None:
    lines = history_recorded(path, name, silent)
    assert {line.workload for line in lines} == {"long"}
    assert sum(line.action.result == "applied" for line in lines) == sum(
        each.job_uid == "long" for each in applied(reports)
    )


def test_what_guards_withheld_is_there_when_asked_for_with_the_guard(path: Path, reports: list[PassReport]) -> None:
    withheld = [each for report in reports for each in report.results.withheld_of(Resize)]
    assert withheld
    assert "withheld" not in {line.action.result for line in history_recorded(path, None, silent)}
    lines = [line for line in history_recorded(path, None, silent, withheld=True) if line.action.result == "withheld"]
    first, wanted = lines[0], withheld[0]
    assert first.figures is not None
    assert (first.figures.guard, first.action.detail) == (wanted.guard, wanted.reason)


def test_a_job_that_the_record_never_saw_is_a_mistake(path: Path) -> None:
    with pytest.raises(UsageError, match=r"history: there is no job 'lung'; did you mean 'long'\?"):
        history_recorded(path, "lung", silent)


def test_a_notebook_reads_the_csv(path: Path, reports: list[PassReport]) -> None:
    lines = history_recorded(path, None, silent)
    frame = pd.read_csv(io.StringIO(csv_text(lines)), parse_dates=["time"])
    assert len(frame) == len(lines)
    resized = frame[frame.result == "applied"]
    assert (resized.after - resized.before).sum() == sum(
        each.to_millicores - each.from_millicores for each in applied(reports)
    )
    assert list(frame.workload) == [line.workload for line in lines]


def test_moves_memory_and_stops_have_their_own_words(path: Path) -> None:
    """A record whose last pass is rewritten with one decision of each kind."""
    raw = path.read_bytes().splitlines(keepends=True)
    settings = next(line for line in map(decode, raw) if isinstance(line, Settings))
    last = next(
        line
        for line in map(decode, raw)
        if isinstance(line, Pass) and line.inputs and len(line.inputs.snapshot.jobs) > 1
    )
    assert last.inputs is not None
    path.write_bytes(encode(settings) + encode(rewritten(last, last.inputs)))
    found = [
        (each["action"], each["change"], each["result"], each["unit"])
        for each in as_json(history_recorded(path, None, silent))
    ]
    assert found == [
        ("Resize", "memory limit 1024Mi to 2048Mi", "applied", "bytes"),
        ("Move", "machine to other", "failed", ""),
        ("Place", "on other", "applied", "millicores"),
        ("Stop", "at its target", "deferred", ""),
    ]


def rewritten(last: Pass, inputs: Inputs) -> Pass:
    gib = 2**30
    jobs = tuple(
        job.altered(memory=MemoryAllocation(gib // 2, gib), allocation=CpuAllocation(None, 1000), node="machine")
        for job in inputs.snapshot.jobs
    )
    uid = jobs[0].uid
    decided = (
        Decided("memory", uid, "simulated/x", "machine", "near its limit", gib, 2 * gib, result="applied"),
        Decided("migrate", uid, "simulated/x", "other", "more room", result="failed", detail="refused"),
        Decided("place", uid, "simulated/x", "other", "emptiest", None, 500, result="applied"),
        Decided("stop", uid, "simulated/x", "machine", "loss 0.1 ≤ 0.2", result="deferred"),
    )
    snapshot = replace(inputs.snapshot, jobs=jobs)
    return msgspec.structs.replace(
        last,
        inputs=msgspec.structs.replace(inputs, snapshot=snapshot),
        result=msgspec.structs.replace(last.result, decided=decided),
    )
