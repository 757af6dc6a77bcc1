"""The table of real sweeps: which trial is the best, which rounds count, and the ratios to fair sharing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from replication.real_runs import block
from replication.real_sweeps import BEGIN, END, PAGE, read_rounds, table
from slopewise.errors import UsageError


def a_run(folder: Path, number: int, name: str, done: float, *, others: float = 0.2, state: str = "finished") -> None:
    """Two trials on two cores for 100 s: `b`, with the lower loss, ends after `done` seconds.

    Each takes until 10 s before its end. With the best first, `a` is said to have taken 88 s under fair sharing.
    """
    of_run = {"state": state, "cpu_seconds": 80.0, "fair_seconds": None}
    jobs = [
        {**of_run, "name": "a", "loss_last": 0.3, "finished_seconds": 90.0, "jct_seconds": 80.0},
        {**of_run, "name": "b", "loss_last": 0.1, "finished_seconds": done, "jct_seconds": done - 10.0},
    ]
    if name == "best":
        jobs[0]["fair_seconds"] = 88.0
    used = 16_000 + round(100 * 100 * others)
    (folder / f"{number}-{name}.json").write_text(json.dumps({"jobs": jobs}))
    (folder / f"{number}-{name}.before").write_text("cpu  0 0 0 0 0 0 0 0 0 0\n1000.0\n")
    (folder / f"{number}-{name}.after").write_text(f"cpu  {used} 0 0 {20_000 - used} 0 0 0 0 0 0\n1100.0\n")


def test_the_best_is_done_earlier_in_the_rounds_in_which_others_left_as_much_of_the_cpu(tmp_path: Path) -> None:
    for number, done, others in ((1, 40.0, 0.2), (3, 32.0, 0.25), (5, 8.0, 0.35)):
        a_run(tmp_path, number, "fair", 80.0)
        a_run(tmp_path, number + 1, "best", done, others=others)
    a_run(tmp_path, 10, "fair", 1.0)  # has no run beside it yet
    text = table(read_rounds(tmp_path))
    assert "`b` is the best; the final losses of a trial differ by 0 % at most." in text
    assert "| 1 | 80 s | 40 s | 0.50 | 90 s | 90 s | 1.00 | 160, 160 | 1.80, 1.80 |" in text
    assert "| 2 | 80 s | 32 s | 0.40 | 90 s | 90 s | 1.00 | 160, 160 | 1.80, 1.75 |" in text
    assert "| 3 (does not count) | 80 s | 8 s | 0.10 |" in text
    assert "do not count: 1 here." in text
    assert "the best was done in 0.45 [-0.19, 1.09] of the time" in text
    assert "by +10 % in the sum of jobs (+10 % to +10 %), and by 10 % in the mean job; rounds: 2." in text


def test_a_trial_that_failed_and_a_folder_without_a_pair_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no pair of N-fair\.json and N-best\.json"):
        read_rounds(tmp_path)
    a_run(tmp_path, 1, "fair", 80.0, state="failed")
    with pytest.raises(UsageError, match=r"1-fair\.json: a did not finish with a loss"):
        read_rounds(tmp_path)


def test_the_table_of_the_page_is_what_the_command_writes(tmp_path: Path) -> None:
    for number, name in ((1, "fair"), (2, "best"), (3, "fair"), (4, "best")):
        a_run(tmp_path, number, name, 80.0)
    # A line by hand says since what the rounds are old; the next `make real-sweeps` writes the block without it.
    written = re.sub(r"These rounds are from before .*\n\n", "", block(PAGE.read_text(encoding="utf-8"), BEGIN, END))
    page, made = (
        re.sub(r"\n\| \d .*|`\S+` is|[+-]?\d[\d.]*", "", text) for text in (written, table(read_rounds(tmp_path)))
    )
    assert page == made
