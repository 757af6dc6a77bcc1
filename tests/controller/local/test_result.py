"""The end of `slopewise run --local`: every job in a table that keeps names, and the same as JSON."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from slopewise.local.result import LocalJobResult, LocalResult, report_of
from slopewise.reports.ranking import Ranking
from slopewise.reports.report import terminal
from slopewise.reports.trials import Trial

JOB = LocalJobResult(
    name="digits-deep-sigmoid",
    state="finished",
    exit_status=0,
    arrived_seconds=0.0,
    finished_seconds=65.0,
    jct_seconds=65.0,
    steps=800,
    steps_planned=1000,
    loss_first=2.3,
    loss_last=0.1234,
    cpu_seconds=31.25,
    resizes=3,
)
RESULT = LocalResult("flowcon", "Auto", "requests", 65.0, 7, 0, 3, 2, (JOB,))


def printed(result: LocalResult, width: int = 100) -> str:
    text = io.StringIO()
    Console(file=text, width=width).print(terminal(report_of(result)))
    return text.getvalue()


def test_a_job_is_a_row_with_its_time_loss_cpu_changes_and_steps() -> None:
    heading, row, summary = printed(RESULT).splitlines()
    assert heading.split() == ["JOB", "STATE", "TIME", "LOSS", "STEPS", "CPU", "S", "CHANGES"]
    assert " ".join(row.split()) == "digits-deep-sigmoid finished 1m05s 2.3 → 0.123 800 of 1000 31.2 3"
    assert summary == "flowcon, mode Auto: 7 passes, 3 resizes applied, 2 withheld in 1m05s."


@pytest.mark.parametrize("width", [40, 60, 80])
def test_however_narrow_the_terminal_names_states_and_times_stay(width: int) -> None:
    row = printed(RESULT, width).splitlines()[1]
    assert row.split()[:3] == ["digits-deep-sigmoid", "finished", "1m05s"]
    assert len(row) <= width


def test_what_was_asked_of_a_job_is_beside_what_became_of_it() -> None:
    served = replace(JOB, qoe_seconds=0.15, pace_seconds=0.112, loss_first=None, loss_last=None)
    late = replace(JOB, name="late", deadline_seconds=60.0, deadline_met=False)
    text = " ".join(printed(replace(RESULT, jobs=(served, late)), 120).split())
    assert "– 800 of 1000 112 of 150 ms –" in text
    assert "– 65.0 of 60.0 s missed" in text


def test_the_time_under_fair_sharing_stands_beside_that_of_each_job_where_one_is_known() -> None:
    compared = replace(RESULT, jobs=(replace(JOB, fair_seconds=84.0), replace(JOB, name="other")))
    rows = [" ".join(line.split()) for line in printed(compared, 80).splitlines()]
    assert rows[0].startswith("JOB STATE TIME FAIR SHARING LOSS")
    assert "finished 1m05s 1m24s" in rows[1]
    assert "FAIR SHARING" not in printed(RESULT, 80)


def test_a_job_that_failed_says_why_below_and_a_mode_that_changes_nothing_is_named() -> None:
    bad = replace(JOB, state="failed", name="bad", exit_status=1, note="ended with status 1: ValueError: x")
    text = printed(replace(RESULT, mode="Recommend", jobs=(bad,)), 200)
    assert "bad: ended with status 1: ValueError: x" in text
    assert "Nothing was changed; `mode: Auto` in the policy file has it act." in text
    assert [job.name for job in replace(RESULT, jobs=(bad, JOB)).failed] == ["bad"]


def test_a_job_that_was_stopped_at_its_target_is_a_success_whatever_its_status() -> None:
    done = replace(JOB, state="stopped at target", exit_status=143, note="stopped at its target: loss 0.19 ≤ 0.2")
    result = replace(RESULT, jobs=(done,))
    assert result.failed == []
    lines = printed(result).splitlines()
    assert "stopped at target" in lines[1]
    assert lines[2] == "digits-deep-sigmoid: stopped at its target: loss 0.19 ≤ 0.2"


def test_trials_of_a_study_are_ranked_with_their_arguments_below_the_jobs() -> None:
    trials = [
        Trial("digits-1-lr1", "finished", 0.5, 20.0, arguments={"lr": "1"}),
        Trial("digits-2-lr-2", "failed", 0.25, 10.5, arguments={"lr": "-2"}),
    ]
    result = replace(RESULT, studies=(Ranking("digits", trials),))
    lines = [" ".join(line.split()) for line in printed(result).splitlines()]
    at = lines.index("PLACE TRIAL lr LOSS STATE CPU S")
    assert lines[at + 1 : at + 3] == ["1 digits-2-lr-2 -2 0.25 failed 10", "2 digits-1-lr1 1 0.5 finished 20"]
    assert "study digits: the best so far of 2 trials is digits-2-lr-2, loss 0.25, failed" in lines
    assert json.loads(json.dumps(result.as_json()))["studies"][0]["trials"][0]["trial"] == "digits-2-lr-2"
    heading, best, _ = result.csv_text().splitlines()
    assert heading == "study,place,trial,lr,loss,state,cpu_seconds,asha_stops_at,reason,chance"
    assert best == "digits,1,digits-2-lr-2,-2,0.25,failed,10.5,,,"
    assert RESULT.csv_text().startswith("name,state,exit_status,")


def test_equal_remarks_are_one_with_a_count() -> None:
    silent = [
        replace(JOB, name=name, note=f"reported no loss: port {port} refuses")
        for name, port in (("a", 1), ("b", 2), ("c", 3))
    ]
    odd = replace(JOB, name="d", note="reported no loss: port 4 breaks off")
    lines = printed(replace(RESULT, jobs=(*silent, odd))).splitlines()
    assert [line for line in lines if "reported" in line] == [
        "a and 2 more: reported no loss: its port refuses",
        "d: reported no loss: port 4 breaks off",
    ]
