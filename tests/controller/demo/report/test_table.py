"""What the demo prints at its end: the comparison."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import RenderableType
from support.demo_result import sample_result
from support.printing import printed, words

from slopewise.demo.report.results import DemoResult
from slopewise.demo.report.sections import report_of
from slopewise.reports.report import terminal


def comparison(result: DemoResult) -> RenderableType:
    return terminal(report_of(result))


def test_each_measure_and_each_job_has_its_ratio_and_verdict_in_words() -> None:
    lines = [words(line) for line in printed(comparison(sample_result())).splitlines()]

    assert "Mean completion time 58.8 s 63.2 s ×1.08 worse" in lines
    assert "Mean time to 90 % 27.9 s 26.9 s ×0.96 unclear" in lines
    assert "Changes made none 13 resizes" in lines
    assert "CPU of everything else 0.03 cores 0.03 cores" in lines
    assert "stdlib-charlm 86.0 s 77.0 s ×0.90 better" in lines


def test_what_is_worse_is_printed_as_well_as_what_is_better() -> None:
    text = words(printed(comparison(sample_result()), width=200))

    assert "better flowcon against fair: 4 of 8 jobs ended sooner (most: " in text
    assert "worse flowcon against fair: mean completion time 8 % longer; 4 of 8 jobs ended later (most: " in text
    assert "unclear flowcon against fair: mean time to 90 %; makespan" in text


def test_a_policy_that_is_not_compared_has_no_verdict_and_its_reason_in_the_notes() -> None:
    fair, flowcon = sample_result().runs
    idle = replace(sample_result(), runs=[fair, replace(flowcon, resizes_applied=0, decisions=[])])

    text = words(printed(comparison(idle), width=200))

    assert "no verdict flowcon is not compared with fair; the notes say why" in text
    assert "note Under flowcon, nothing was done: no CPU was changed" in text
    assert [message for message in ("better", "worse", "×") if message in text] == []


def test_several_rounds_are_means_with_intervals_and_each_round_is_listed() -> None:
    whole = sample_result()
    slower = [
        replace(run, jobs=[replace(job, jct_seconds=(job.jct_seconds or 0.0) * 1.1) for job in run.jobs])
        for run in whole.runs
    ]
    text = printed(comparison(replace(whole, repeats=[slower, whole.runs], rounds_asked=3)), width=100)
    lines = [words(line) for line in text.splitlines()]

    assert "Mean completion time 60.7 ± 8.4 s 65.4 ± 9.1 s ×1.08 ± 0.00 worse" in lines
    assert "2 flowcon 69.6 s 26.9 s 91.0 s 0.03 cores" in lines
    assert sum(line.startswith(("1 ", "2 ", "3 ")) for line in lines) == 6


@pytest.mark.parametrize("runs", [2, 3, 5])
def test_the_comparison_of_policies_fits_80_columns(runs: int) -> None:
    fair, flowcon = sample_result().runs
    others = [replace(flowcon, policy=f"policy-{number}") for number in range(runs - 1)]

    text = printed(comparison(replace(sample_result(), runs=[fair, *others])), width=80)

    assert text.count("×0.90 better" if runs < 5 else "×0.90 of fair, better") == runs - 1
    assert max(len(line) for line in text.splitlines()) <= 80


def test_colour_is_left_out_where_the_user_wants_none() -> None:
    text = printed(comparison(sample_result()), force_terminal=True, no_color=True, color_system="truecolor")

    assert "\x1b[32m" not in text
    assert "\x1b[31m" not in text
    assert "worse" in text


def test_an_unfinished_job_has_a_dash_and_its_state() -> None:
    fair, flowcon = sample_result().runs
    cut = replace(
        flowcon.jobs[0],
        state="training",
        jct_seconds=None,
        finished_seconds=None,
    )
    result = replace(sample_result(), runs=[fair, replace(flowcon, jobs=[cut, *flowcon.jobs[1:]])])

    text = words(printed(comparison(result)))

    assert "digits-logreg 34.0 s – (training)" in text
    assert "note Under flowcon, 1 of 8 jobs had not ended: digits-logreg." in text


def test_a_name_with_markup_is_printed_and_not_obeyed() -> None:
    fair = sample_result().runs[0]
    named = replace(fair, jobs=[replace(fair.jobs[0], name="[red]x[/red]\x1b[2J")], curves={})

    text = printed(comparison(replace(sample_result(), runs=[named])), force_terminal=True)

    assert "[red]x[/red]�[2J" in text
    assert "\x1b[2J" not in text
