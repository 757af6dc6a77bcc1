"""What the demo prints: the live table, the line for logs, the comparison."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

from controller.demo.table import LiveHeader, LiveRow, comparison, live_table, plain_progress_line, sparkline
from tests.controller.demo.sample import sample_result

HEADER = LiveHeader(
    policy="flowcon", elapsed_seconds=30.4, next_look_seconds=7.6, passes=3, resizes_applied=4, withheld=0
)
ROW = LiveRow(
    name="digits",
    state="training",
    job_class="NL",
    loss=0.3456789,
    loss_history=[3.0, 2.0, 1.0],
    growth=0.0123,
    cpu_cores_used=0.481,
    cpu_allotted_millicores_now=2000,
    cpu_wanted_millicores=500,
    why="growth 0.012 per interval is below α 0.05",
)


def printed(renderable: RenderableType, width: int = 120, **options: object) -> str:
    """What rich writes to a terminal of `width` columns."""
    console = Console(file=io.StringIO(), width=width, **options)  # type: ignore[arg-type]
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined]


def words(line: str) -> str:
    return " ".join(line.split())


# --- the comparison ---------------------------------------------------------------------------------------


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
    assert [said for said in ("better", "worse", "×") if said in text] == []


def test_several_rounds_are_means_with_intervals_and_each_round_is_listed() -> None:
    whole = sample_result()
    slower = [
        replace(run, jobs=[replace(job, jct_seconds=job.jct_seconds * 1.1) for job in run.jobs]) for run in whole.runs
    ]
    text = printed(comparison(replace(whole, repeats=[slower, whole.runs], rounds_asked=3)), width=100)
    lines = [words(line) for line in text.splitlines()]

    assert "Mean completion time 60.7 ± 8.4 s 65.4 ± 9.1 s ×1.08 ± 0.00 worse" in lines
    assert "2 flowcon 69.6 s 26.9 s 91.0 s 0.03 cores" in lines
    assert sum(line.startswith(("1 ", "2 ", "3 ")) for line in lines) == 6


@pytest.mark.parametrize("runs", [2, 3, 5])
def test_the_comparison_of_up_to_five_policies_fits_80_columns(runs: int) -> None:
    fair, flowcon = sample_result().runs
    others = [replace(flowcon, policy=f"policy-{number}") for number in range(runs - 1)]

    text = printed(comparison(replace(sample_result(), runs=[fair, *others])), width=80)

    assert text.count("×0.90 better") == runs - 1
    assert max(len(line) for line in text.splitlines()) <= 80


def test_colour_is_left_out_where_the_user_wants_none() -> None:
    text = printed(comparison(sample_result()), force_terminal=True, no_color=True, color_system="truecolor")

    assert "\x1b[32m" not in text
    assert "\x1b[31m" not in text
    assert "worse" in text


def test_an_unfinished_job_has_a_dash_and_its_state() -> None:
    fair, flowcon = sample_result().runs
    cut = replace(flowcon.jobs[0], state="training", jct_seconds=None, finished_seconds=None)
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


# --- the live table ---------------------------------------------------------------------------------------


def test_a_row_tells_state_loss_growth_cpu_and_why() -> None:
    text = words(printed(live_table([ROW], HEADER), width=160))

    assert "flowcon 30 s next look in 8 s 3 passes 4 resizes applied 0 withheld" in text
    assert "digits training NL 0.346 ▇▃▁ 0.0123 0.48 2.00 → 0.50 growth 0.012 per interval is below α 0.05" in text


def test_what_is_not_known_yet_is_a_dash() -> None:
    row = LiveRow("new", "starting", None, None, [], None, None, None, None, "")

    assert "new starting – – – – –" in words(printed(live_table([row], HEADER)))


def test_only_one_figure_is_shown_when_a_job_has_what_the_policy_wants() -> None:
    text = printed(live_table([replace(ROW, cpu_wanted_millicores=2000)], HEADER))

    assert "2.00" in text
    assert "2.00 →" not in text


def test_a_job_that_ended_has_no_cpu_any_more() -> None:
    assert "2.00" not in printed(live_table([replace(ROW, state="finished", why="")], HEADER))


def test_a_long_reason_is_cut_and_a_narrow_terminal_gets_none() -> None:
    row = replace(ROW, name="a-very-long-name-of-a-job", why="because " * 40)

    wide, narrow = printed(live_table([row], HEADER), width=120), printed(live_table([row], HEADER), width=80)

    assert ("because" in wide, "…" in wide, len(wide.splitlines())) == (True, True, 4)
    assert ("because" in narrow, "2.00 → 0.50" in narrow, len(narrow.splitlines())) == (False, True, 3)


@pytest.mark.parametrize("width", [60, 70, 80, 100, 110, 140])
def test_however_narrow_the_terminal_job_names_are_whole_and_rows_are_one_line(width: int) -> None:
    rows = [replace(ROW, name="digits-deep-sigmoid", state="finished"), replace(ROW, name="a")]

    lines = printed(live_table(rows, HEADER), width=width).splitlines()

    assert [line.split()[0] for line in lines[2:4]] == ["digits-deep-sigmoid", "a"]
    assert "STATE" in lines[1]
    assert all(len(line) <= width for line in lines)
    assert "2.00 → 0.50" in lines[3]
    assert "0.346" in lines[3]


def test_a_class_has_its_meaning_beside_it_or_where_there_is_no_room_below_the_table() -> None:
    rows = [ROW, replace(ROW, job_class="CL"), replace(ROW, job_class="urgent")]

    wide, narrow = printed(live_table(rows, HEADER), width=80), printed(live_table(rows, HEADER), width=60)

    assert "NL still learning" in wide
    assert "CL converged" in wide
    assert len(wide.splitlines()) == 5
    assert narrow.splitlines()[-1].strip() == "NL still learning, CL converged"
    assert "NL still learning" not in "".join(narrow.splitlines()[:-1])


def test_a_served_model_shows_its_response_time_and_objective_from_the_start() -> None:
    waiting = LiveRow("bert", "waiting", None, None, [], None, None, None, None, "", None, 0.15)
    serving = replace(waiting, name="gpt", state="training", pace_seconds=0.1123, cpu_allotted_millicores_now=500)

    text = printed(live_table([waiting, serving], HEADER), width=60)

    assert "TIME / GOAL" in text
    assert "bert waiting – – of 150 ms" in words(text)
    assert "gpt training – 112 of 150 ms" in words(text)
    assert "LOSS" not in text
    assert "LOSS" in printed(live_table([waiting, ROW], HEADER), width=100)


def test_trouble_is_said_below_the_header() -> None:
    text = printed(live_table([ROW], replace(HEADER, note="Prometheus does not answer: holding")))

    assert text.splitlines()[1] == "Prometheus does not answer: holding"


def test_a_hostile_reason_does_not_reach_the_terminal() -> None:
    text = printed(live_table([replace(ROW, why="[b]x[/b]\x1b]0;owned\x07\nnext")], HEADER), force_terminal=True)

    assert "[b]x[/b]�]0;owned� next" in text


def test_a_diverged_job_does_not_stop_the_table() -> None:
    row = replace(ROW, loss=math.inf, loss_history=[1.0, math.nan, 1e308, 1e308], growth=math.nan)

    assert "inf" in printed(live_table([row], HEADER))


# --- the sparkline and the line for logs ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("history", "drawn"),
    [
        ([], ""),
        ([1.0], "▁"),
        ([2.0, 2.0, 2.0], "▁▁▁"),
        ([0.0, 1.0, 2.0, 3.0, 4.0], "▁▂▃▅▇"),
        ([1.0, math.nan, 0.0], "▇ ▁"),
        ([math.nan, math.inf, -math.inf, 1e308], "    "),
    ],
)
def test_a_sparkline_goes_from_low_to_high_and_leaves_gaps(history: list[float], drawn: str) -> None:
    assert sparkline(history) == drawn


def test_a_long_history_is_drawn_in_twelve_blocks() -> None:
    assert sparkline([float(value) for value in range(100, 0, -1)]) == "▇▇▇▅▅▃▃▂▂▁▁▁"


def test_the_line_for_a_log_counts_jobs_passes_and_resizes() -> None:
    rows = [replace(ROW, name=str(number)) for number in range(5)] + [replace(ROW, state="finished")]

    assert plain_progress_line(rows, HEADER) == "t=30s flowcon: 5 running, 1 done, 3 passes, 4 resizes"


def test_the_line_for_a_log_tells_failures_and_trouble() -> None:
    header = replace(HEADER, passes=1, resizes_applied=1, withheld=2, note="no\nanswer")

    assert (
        plain_progress_line([replace(ROW, state="failed"), replace(ROW, state="waiting")], header)
        == "t=30s flowcon: 0 running, 0 done, 1 failed, 1 pass, 1 resize, 2 withheld, no answer"
    )


def test_a_job_on_its_way_between_nodes_counts_as_running_and_moves_are_counted() -> None:
    header = replace(HEADER, moves_applied=2)
    moving = replace(ROW, state="moving", job_class=None, growth=None)

    assert plain_progress_line([moving], header) == (
        "t=30s flowcon: 1 running, 0 done, 3 passes, 4 resizes, 2 placed or moved"
    )
    text = words(printed(live_table([moving], header), width=160))
    assert "4 resizes applied 2 placed or moved 0 withheld" in text
    assert "digits moving – " in text
