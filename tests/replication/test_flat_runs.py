"""How often learning runs are called flat, from small tables of the same shape."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from support.past_jobs import Curve, fast
from typer.testing import CliRunner

from replication.flat_runs import (
    MEASURES,
    Calls,
    Run,
    at_any_moment,
    at_the_end,
    calls,
    main,
    read_runs,
    within_the_plan,
)

HIT, MISSED = "a1", "b1"


def rows(run: str, loss: Curve, count: int = 60) -> pd.DataFrame:
    part = np.linspace(0.0, 1.0, count)
    values = [loss(each) for each in part]
    known = {"run": run, "seconds": 3600 * part, "step": 1000 * part, "train_loss": values, "valid_loss": values}
    return pd.DataFrame({**known, "value": [1 - each / 4 for each in values]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run that falls in a line to its target at half of what was recorded, then is flat, and one that misses it."""
    pd.concat([rows(HIT, lambda part: 2 - min(part, 0.5)), rows(MISSED, fast)]).to_csv(tmp_path / "curves.csv.gz")
    pd.DataFrame(
        {
            "run": [HIT, MISSED],
            "better": "up",
            "reached": [1, 0],
            "reached_seconds": [1800.0, np.nan],
            "step_hint": [1000, 2000],
        }
    ).to_csv(tmp_path / "runs.csv")
    return tmp_path


def test_a_run_counts_up_to_its_target(folder: Path) -> None:
    hit, missed = read_runs(folder)
    losses, done, _ = hit.series("training loss")
    assert losses[-1, 0] <= 1800
    assert done[-1] == pytest.approx(0.5, abs=0.02)
    assert calls([hit], "training loss", at_the_end) == Calls(1, ())
    assert len(missed.series("validation metric").losses) == 60


def test_a_flat_run_is_called_so_by_each_measure_but_not_within_its_plan(folder: Path) -> None:
    _, missed = read_runs(folder)
    for measure in MEASURES:
        (at,) = calls([missed], measure, at_the_end).at
        assert 0.1 < at < 0.5
        assert len(calls([missed], measure, at_any_moment).at) == 1
    assert calls([missed], "training loss", within_the_plan).at == ()


def test_a_validation_loss_is_called_flat_only_where_the_training_loss_is_too() -> None:
    curve = rows(MISSED, fast).assign(train_loss=np.linspace(2.0, 1.0, 60))
    run = Run(MISSED, reached=True, step_hint=1000.0, curve=curve, better="up")
    found = {measure: len(calls([run], measure, at_any_moment).at) for measure in MEASURES}
    assert found == {
        "training loss": 0,
        "validation loss": 0,
        "validation loss alone": 1,
        "validation metric": 1,
    }


def test_the_command_prints_and_writes_the_page(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replication.flat_runs.SEEDS", range(1))
    app = typer.Typer()
    app.command()(main)
    result = CliRunner().invoke(app, ["--data", str(folder), "--out", str(folder / "page.md")])
    assert result.exit_code == 0, result.output
    page = (folder / "page.md").read_text()
    assert page.strip() == result.stdout.strip()
    assert "0 of 1 (0.0%, 0.0% to 97.5%)" in page
    assert "1 of 1" in page.split("## Runs that did not reach it")[1]


def test_a_folder_without_the_tables_is_one_sentence(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(main)
    result = CliRunner().invoke(app, ["--data", str(tmp_path), "--out", str(tmp_path / "page.md")])
    assert result.exit_code == 2
    assert f"--data {tmp_path}: the tables of runs cannot be read" in result.stderr
    assert not (tmp_path / "page.md").exists()
