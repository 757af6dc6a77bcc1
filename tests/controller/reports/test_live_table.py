"""What a run prints while it goes on: the live table, and the line for logs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from support.printing import printed, words

from slopewise.reports.live_table import LiveHeader, LiveRow, LiveTable, plain_progress_line, sparkline

HEADER = LiveHeader(
    policy="flowcon", elapsed_seconds=30.4, requeue_seconds=7.6, passes=3, resizes_applied=4, withheld=0
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
    reason="growth 0.012 per interval is below α 0.05",
)


def test_a_row_shows_state_loss_growth_cpu_and_why_below_a_header_and_its_trouble() -> None:
    rows = [
        ROW,
        replace(ROW, name="wanted", cpu_wanted_millicores=2000, reason=""),
        replace(ROW, name="ended", state="finished", reason=""),
        replace(ROW, name="diverged", loss=math.inf, loss_history=[1.0, math.nan, 1e308, 1e308], growth=math.nan),
        LiveRow("new", "starting", None, None, [], None, None, None, None, ""),
    ]
    lines = printed(
        LiveTable(rows, replace(HEADER, note="Prometheus does not answer: holding")), width=160
    ).splitlines()
    text = [words(line) for line in lines]
    assert text[0] == "flowcon 30 s next pass in 8 s 3 passes 4 resizes applied 0 withheld"
    assert text[1] == "Prometheus does not answer: holding"
    shown = {line.split()[0]: line for line in text[3:] if line}
    assert shown["digits"] == (
        "digits training NL 0.346 ▇▃▁ 0.0123 0.48 2.00 → 0.50 growth 0.012 per interval is below α 0.05"
    )
    assert "2.00" in shown["wanted"]
    assert "2.00 →" not in shown["wanted"]
    assert "2.00" not in shown["ended"]
    assert "inf" in shown["diverged"]
    assert shown["new"].startswith("new starting – – – – –")


def test_a_long_reason_is_cut_and_a_narrow_terminal_gets_none() -> None:
    row = replace(ROW, name="a-very-long-name-of-a-job", reason="because " * 40)

    wide, narrow = printed(LiveTable([row], HEADER), width=120), printed(LiveTable([row], HEADER), width=80)

    assert ("because" in wide, "…" in wide, len(wide.splitlines())) == (True, True, 4)
    assert ("because" in narrow, "2.00 → 0.50" in narrow, len(narrow.splitlines())) == (False, True, 3)


def test_where_classes_are_words_a_narrow_terminal_has_the_reason_before_growth_and_curve() -> None:
    row = replace(ROW, job_class="waits", reason="waits for xgb, back in about 20s")
    narrow = printed(LiveTable([row], HEADER), width=80)
    assert ("waits for xgb, back in" in narrow, "GROWTH" in narrow, len(narrow.splitlines())) == (True, False, 3)


@pytest.mark.parametrize("width", [60, 70, 80, 100, 110, 140])
def test_however_narrow_the_terminal_job_names_are_whole_and_rows_are_one_line(width: int) -> None:
    rows = [replace(ROW, name="digits-deep-sigmoid", state="finished"), replace(ROW, name="a")]

    lines = printed(LiveTable(rows, HEADER), width=width).splitlines()

    assert [line.split()[0] for line in lines[2:4]] == ["digits-deep-sigmoid", "a"]
    assert "STATE" in lines[1]
    assert all(len(line) <= width for line in lines)
    assert "2.00 → 0.50" in lines[3]
    assert "0.346" in lines[3]


def test_a_class_has_its_meaning_beside_it_or_where_there_is_no_room_below_the_table() -> None:
    rows = [ROW, replace(ROW, job_class="CL"), replace(ROW, job_class="urgent")]

    wide, narrow = printed(LiveTable(rows, HEADER), width=80), printed(LiveTable(rows, HEADER), width=60)

    assert "NL still learning" in wide
    assert "CL hardly growing" in wide
    assert len(wide.splitlines()) == 5
    assert narrow.splitlines()[-1].strip() == "NL still learning, CL hardly growing"
    assert "NL still learning" not in "".join(narrow.splitlines()[:-1])


def test_a_served_model_shows_its_response_time_and_objective_from_the_start() -> None:
    waiting = LiveRow("bert", "waiting", None, None, [], None, None, None, None, "", None, 0.15)
    serving = replace(waiting, name="gpt", state="training", pace_seconds=0.1123, cpu_allotted_millicores_now=500)

    text = printed(LiveTable([waiting, serving], HEADER), width=60)

    assert "TIME / GOAL" in text
    assert "bert waiting – – of 150 ms" in words(text)
    assert "gpt training – 112 of 150 ms" in words(text)
    assert "LOSS" not in text
    assert "LOSS" in printed(LiveTable([waiting, ROW], HEADER), width=100)


def test_a_hostile_reason_does_not_reach_the_terminal() -> None:
    text = printed(LiveTable([replace(ROW, reason="[b]x[/b]\x1b]0;owned\x07\nnext")], HEADER), force_terminal=True)

    assert "[b]x[/b]�]0;owned� next" in text


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
        ([float(value) for value in range(100, 0, -1)], "▇▇▇▅▅▃▃▂▂▁▁▁"),
    ],
)
def test_a_sparkline_goes_from_low_to_high_and_leaves_gaps(history: list[float], drawn: str) -> None:
    assert sparkline(history) == drawn


@pytest.mark.parametrize(
    ("states", "header", "line"),
    [
        (["training"] * 5 + ["finished"], HEADER, "t=30s flowcon: 5 running, 1 done, 3 passes, 4 resizes"),
        (
            ["failed", "waiting"],
            replace(HEADER, passes=1, resizes_applied=1, withheld=2, note="no\nanswer"),
            "t=30s flowcon: 0 running, 0 done, 1 failed, 1 pass, 1 resize, 2 withheld, no answer",
        ),
        (
            ["finished", "stopped at target", "stopping", "cancelled", "ended", "ended"],
            HEADER,
            "t=30s flowcon: 1 running, 2 done, 1 cancelled, 2 ended, 3 passes, 4 resizes",
        ),
        # on its way between nodes
        (
            ["moving"],
            replace(HEADER, moves_applied=2),
            "t=30s flowcon: 1 running, 0 done, 3 passes, 4 resizes, 2 placed or moved",
        ),
    ],
)
def test_the_line_for_a_log_has_counts_and_trouble(states: list[str], header: LiveHeader, line: str) -> None:
    assert plain_progress_line([replace(ROW, state=each) for each in states], header) == line
