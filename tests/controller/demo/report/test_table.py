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


def test_a_policy_that_is_not_compared_has_no_verdict_and_its_reason_in_the_notes() -> None:
    fair, flowcon = sample_result().runs
    idle = replace(sample_result(), runs=[fair, replace(flowcon, resizes_applied=0)])

    text = words(printed(comparison(idle), width=200))

    assert "no verdict flowcon is not compared with fair; the notes say why" in text
    assert "note Under flowcon, nothing was done: no CPU was changed" in text
    assert [message for message in ("better", "worse", "×") if message in text] == []


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


def test_a_name_with_markup_is_printed_and_not_obeyed() -> None:
    fair = sample_result().runs[0]
    named = replace(fair, jobs=[replace(fair.jobs[0], name="[red]x[/red]\x1b[2J")], curves={})

    text = printed(comparison(replace(sample_result(), runs=[named])), force_terminal=True)

    assert "[red]x[/red]�[2J" in text
    assert "\x1b[2J" not in text
