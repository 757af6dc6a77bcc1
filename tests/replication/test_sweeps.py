"""replication/sweeps.md: its ratios, what misses a bar, where a rule that stops trials wins, and the command."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from replication import sweeps
from replication.sweeps import Network, app, is_late, page
from slopewise.simulator.trials import StudyResult


def a_draw(**found_at: float | None) -> Mapping[str, StudyResult]:
    """Fair sharing finds the best after 100 s; all end after 200 s. A rule that has lost it has one 10 % worse."""
    names = {"best": "best first", "ASHA": "ASHA", "median": "median rule", "oracle": "oracle"}
    results = {"fair": StudyResult("fair", 100.0, 200.0, 0.5)}
    for key, label in names.items():
        at = found_at.get(key, 50.0)
        results[label] = StudyResult(label, at, 200.0, 0.5 if at is not None else 0.55, 0 if key == "best" else 3)
    return results


def a_network(*draws: Mapping[str, StudyResult], late: bool = True, threads: int = 4) -> Network:
    return Network("net", threads, late, draws, draws)


def test_the_page_marks_what_misses_its_bar_and_says_where_stopping_wins() -> None:
    good, bad = (
        a_network(a_draw(best=60.0, ASHA=None), a_draw(best=70.0, ASHA=20.0)),
        a_network(a_draw(best=99.0), a_draw(best=105.0), late=False),
    )
    text = page([good, bad])
    assert "| net | 0.65 | 0.65 [" in text
    assert "| **late** | 0.65 | " in text
    assert "| net | *1.02* | *1.02* [" in text
    assert "| **early** | *1.02* | *1.02* [" in text
    assert " | 0.20 (1 of 2) | 0.50 (2 of 2) |" in text
    assert "| late | 4 cores | 0.65 | 0.65 [" in text
    assert "| net | 4 | 1 of 2 | 1 | 10.0 % | 2 of 2 | 0 |  |" in text


def test_a_network_is_late_where_nine_of_ten_trials_are_flat() -> None:
    flat, falls = (0.7, 0.69, 0.7), (0.7, 0.6, 0.5)
    assert is_late([flat] * 9 + [falls])
    assert not is_late([flat] * 8 + [falls] * 2)


def test_the_command_writes_the_page_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "TRIALS", 3)
    monkeypatch.setattr(sweeps, "THREADS", (4,))
    losses = "\n".join(f"{number},0.7,{0.7 - 0.05 * number},{0.7 - 0.1 * number}" for number in range(4))
    (tmp_path / "tiny.csv").write_text(f"trial,valid_0,valid_1,valid_2\n{losses}\n")
    options = ("--data", str(tmp_path), "--draws", "2", "--out", str(tmp_path / "page.md"))
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.output
    text = (tmp_path / "page.md").read_text()
    assert "3 of the trials of each network, drawn 2 times" in text
    assert "| tiny | " in text
    (tmp_path / "other.md").write_text("no place for real sweeps")
    refused = CliRunner().invoke(app, (*options[:-1], str(tmp_path / "other.md")))
    assert (refused.exit_code, "other.md: the page has 0 blocks" in refused.output) == (2, True)
    empty = CliRunner().invoke(app, ("--data", str(tmp_path / "none")))
    assert empty.exit_code == 2


def test_the_page_is_what_the_command_writes() -> None:
    text = sweeps.PAGE.read_text(encoding="utf-8")
    head = sweeps.HEAD.partition("{trials}")[0]
    assert text.startswith(head)
    assert all(f"## A trial can use {uses}" in text for uses in ("4 cores", "one core"))
    assert "## Where stopping wins" in text
