"""The trainings of `make record`, for a few steps each: they write files that a scenario can use."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import sklearn

from slopewise.simulator.curves import Recorded
from slopewise.simulator.scenario.curve_settings import recorded_loss

ROOT = Path(__file__).parents[2]
DIGITS = Path(sklearn.__file__).parent / "datasets" / "data" / "digits.csv.gz"
FEW = 12


@pytest.fixture
def recorded(python, environment, tmp_path):
    def record(name: str, file: str = "recorded.csv") -> str:
        options = ("--digits", DIGITS, "--out", tmp_path / file, "--steps", FEW)
        subprocess.run(
            [python, "-m", "replication.recording.training", name, *map(str, options)],
            cwd=ROOT,
            env={**os.environ, **environment, "PYTHONPATH": f"{ROOT}:{ROOT / 'exporters'}"},
            check=True,
            timeout=600,
        )
        return str(tmp_path / file)

    return record


@pytest.mark.parametrize("name", ["gru-pytorch", "dynamic-rnn-pytorch", "lstm-crf-pytorch", "vae-keras", "birnn-keras"])
def test_a_few_steps_are_a_recorded_loss(recorded, name):
    curve = recorded_loss(recorded(name), "train_ema")
    assert isinstance(curve, Recorded)
    assert curve.xs == pytest.approx([step / FEW for step in range(1, FEW + 1)], rel=1e-4)
    assert curve.first > curve.best > 0


@pytest.mark.parametrize("name", ["vae-pytorch", "mnist-keras"])
def test_the_same_seed_gives_the_same_losses(recorded, name):
    tables = []
    for file in ("one.csv", "two.csv"):
        lines = Path(recorded(name, file)).read_text(encoding="utf-8").splitlines()
        tables.append([line for line in lines if not line.startswith("#")])
        assert {"# seed: 1", f"# steps: {FEW}", f"# command: make record ONLY={name}"} <= set(lines)
    assert tables[0] == tables[1]
