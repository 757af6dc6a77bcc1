"""What the demo prints at its end: the comparison."""

from __future__ import annotations

from dataclasses import replace

from rich.console import RenderableType
from support.demo_result import sample_result
from support.printing import printed, words

from slopewise.demo.report.results import DemoResult
from slopewise.demo.report.sections import report_of
from slopewise.reports.report import terminal


def comparison(result: DemoResult) -> RenderableType:
    return terminal(report_of(result))


def test_a_policy_that_is_not_compared_has_no_verdict_and_its_reason_in_the_notes() -> None:
    fair, flowcon = sample_result().runs
    idle = replace(sample_result(), runs=[fair, replace(flowcon, resizes_applied=0)])

    text = words(printed(comparison(idle), width=200))

    assert "no verdict flowcon is not compared with fair; the notes say why" in text
    assert "note Under flowcon, nothing was done: no CPU was changed" in text
    assert [message for message in ("better", "worse", "×") if message in text] == []


def test_a_name_with_markup_is_printed_and_not_obeyed() -> None:
    fair = sample_result().runs[0]
    named = replace(fair, jobs=[replace(fair.jobs[0], name="[red]x[/red]\x1b[2J")], curves={})

    text = printed(comparison(replace(sample_result(), runs=[named])), force_terminal=True)

    assert "[red]x[/red]�[2J" in text
    assert "\x1b[2J" not in text
