"""`python -m replication`: a mistake is reported in one sentence before anything runs."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from replication.__main__ import HERE, main
from replication.run import SETTINGS

app = typer.Typer()
app.command()(main)


def test_an_unknown_setting_is_answered_with_those_there_are() -> None:
    result = CliRunner().invoke(app, ["--only", "flowcon-fixed", "--only", "nonsense"])
    assert result.exit_code == 2
    reported = " ".join(result.output.split())
    assert "--only nonsense: there is no such setting" in reported
    assert all(name in reported for name in SETTINGS)


@pytest.mark.parametrize("options", [["--seeds", "1"], ["--seeds", "0"], ["--workers", "0"]])
def test_too_few_seeds_for_an_interval_or_no_workers_are_refused(options: list[str]) -> None:
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 2
    assert options[0] in result.output


def test_one_setting_is_printed_and_nothing_is_written() -> None:
    before = {path: path.stat().st_mtime_ns for path in [HERE / "papers.md", *(HERE / "images").rglob("*.svg")]}
    result = CliRunner().invoke(app, ["--only", "qoe-ample", "--seeds", "2", "--workers", "1"])
    assert result.exit_code == 0
    assert "DQoES: 10 served models, CPU ample" in result.output
    assert {path: path.stat().st_mtime_ns for path in before} == before
