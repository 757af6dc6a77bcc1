"""A job explained from a record: an applied, a withheld and a deferred decision; jobs that are gone or never were."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from support.recorded_runs import Recorded, a_document, record_run, three_jobs

from slopewise.decision_record.lines import Pass, decode, encode
from slopewise.decision_record.reader import read
from slopewise.errors import UsageError
from slopewise.model import PassReport, Resize
from slopewise.operate.explanation import Explanation
from slopewise.operate.recorded import explain_recorded


def texts(explanation: Explanation, label: str) -> list[str]:
    return [fact.text for fact in explanation.facts if fact.label == label]


def explained(path: Path, name: str, at_seconds: float | None = None) -> Explanation:
    return explain_recorded(path, name, at_seconds, lambda _: None)


def time_of(reports: list[PassReport], result: str) -> tuple[str, float]:
    """The name of a job, and the time of the pass, of the first resize that ended so; `withheld` for a guard."""
    for report in reports:
        found = (
            report.results.withheld_of(Resize)
            if result == "withheld"
            else [o for o in report.results.of(Resize) if o.result == result]
        )
        if found:
            return report.by_job[found[-1].decision.job_uid].name, report.taken_at_seconds
    raise AssertionError(f"no resize was {result}")


def test_an_applied_resize_is_explained_with_what_each_guard_made_of_it(path: Path, recorded: Recorded) -> None:
    reports = recorded.reports
    name, at = time_of(reports, "applied")
    explanation = explained(path, name, at)
    (resize,) = texts(explanation, "resize")
    decided = next(report for report in reports if report.taken_at_seconds == at).decisions
    assert decided is not None
    uid = name.partition("/")[2]
    wanted = next(each for each in decided.resizes if each.job_uid == uid)
    assert resize == f"requests {wanted.from_millicores}m to {wanted.to_millicores}m: {wanted.reason}"
    guards = texts(explanation, "guards")
    assert guards[0].startswith("paused, canary, frozen, ended, ineligible")
    assert guards[-1].endswith("minimum_change: no objection")
    assert texts(explanation, "outcome") == ["applied"]
    assert len(texts(explanation, "done")) >= 1
    assert "is due at" in texts(explanation, "next")[0]


def test_a_withheld_resize_names_guard_figure_and_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "record.jsonl"
    reports = record_run(monkeypatch, three_jobs(), a_document("flowcon", mode="Recommend"), path)
    name, at = time_of(reports, "withheld")
    explanation = explained(path, name, at)
    assert texts(explanation, "guards")[0] == (
        "paused withholds it: mode is Recommend, and only Canary and Auto change anything"
    )
    assert texts(explanation, "outcome") == []
    assert any("mode is Recommend" in text for text in texts(explanation, "attention"))


def test_a_deferred_resize_gives_the_answer_of_the_platform(path: Path, recorded: Recorded) -> None:
    name, at = time_of(recorded.reports, "applied")
    lines = [decode(line) for line in path.read_bytes().splitlines()]
    deferred = [
        msgspec.structs.replace(
            line,
            answers=tuple(msgspec.structs.replace(each, result="deferred", detail="no room") for each in line.answers),
        )
        if isinstance(line, Pass) and line.taken_at_seconds == at
        else line
        for line in lines
    ]
    path.write_bytes(b"".join(map(encode, deferred)))
    explanation = explained(path, name, at)
    assert texts(explanation, "outcome") == ["deferred: no room"]
    assert texts(explanation, "decision") == ["deferred: no room"]


def test_a_job_that_is_long_gone_is_explained_as_it_was_seen_last(path: Path) -> None:
    gone = explained(path, "short")
    last = list(read(path, lambda _: None))[-1].recorded
    assert last.inputs is not None
    assert "short" not in {job.name for job in last.inputs.snapshot.jobs}
    assert "before the last pass of the record" in texts(gone, "next")[0]
    assert texts(gone, "job")[0].startswith(("Training on n1", "Finished on n1"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lng", "there is no job 'lng'; did you mean 'long'?"),
        ("simulated/lng", "did you mean 'simulated/long'?"),
        ("x\x1b[31m", "there is no job"),
    ],
)
def test_a_job_that_never_was_is_refused_with_those_there_are(name: str, message: str, path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        explained(path, name)
    assert message in str(caught.value)


def test_before_the_first_pass_there_is_no_job(path: Path) -> None:
    with pytest.raises(UsageError, match="the record has seen none up to then"):
        explained(path, "long", at_seconds=0.0)
