"""Plans that frameworks change or leave open, and what else each one's callback has to survive."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from support.killing import REPORTING

REPORTS = Path(__file__).parent / "reports"


@pytest.fixture
def shown(python, environment, tmp_path):
    """What one of the scripts has shown, by the name of the check; what else it printed; its log."""

    def run(name: str, *arguments: str, **variables: str):
        training = subprocess.run(
            [python, str(REPORTS / f"{name}_plans.py"), str(tmp_path), *arguments],
            env={**os.environ, **REPORTING, **environment, "JAX_PLATFORMS": "cpu", **variables},
            capture_output=True,
            text=True,
            timeout=280,
        )
        assert training.returncode == 0, training.stdout + training.stderr
        assert "slopewise_exporter" not in training.stderr, training.stderr  # no hook has failed
        lines = [line.split(" ", 1) for line in training.stdout.splitlines() if " " in line]
        return dict(json.loads(rest) for word, rest in lines if word == "SHOWN"), {
            word: rest for word, rest in lines if word != "SHOWN"
        }

    return run


def plan(values):
    """Steps done, steps planned, and whether fewer may do."""
    return values["steps"], values.get("planned"), values.get("bound")


def test_lightning(shown):
    now, _ = shown("lightning")
    assert plan(now["early first"]) == (2, 400, 1)
    assert plan(now["early"]) == (16, 16, 0)
    assert now["early"]["eval"] == 2
    assert 0 < now["early"]["waited"] < 0.5 * 2  # each of two validations takes 0.5 s and more
    assert now["stream first"].get("planned") is None
    assert plan(now["stream second epoch"]) == (8, 24, 0)
    assert plan(now["stream"]) == (24, 24, 0)
    assert now["stream"]["waited"] > 0.5 * 3 * 64 * 0.005
    assert plan(now["accumulated second epoch"]) == (2, 6, 0)
    assert plan(now["two optimizers second epoch"]) == (16, 48, 0)
    assert plan(now["two optimizers"]) == (48, 48, 0)
    assert plan(now["timed first"]) == (2, 10, 1)
    assert plan(now["resumed"]) == (25, 25, 0)
    assert plan(now["second fit first"]) == (27, 41, 0)
    assert plan(now["second fit"]) == (41, 41, 0)
    assert plan(now["checkpoints first"]) == (2, 400, 1)
    assert plan(now["checkpoints"]) == (16, 16, 0)


def test_transformers(shown):
    now, _ = shown("transformers")
    assert plan(now["early first"]) == (2, 400, 1)
    assert plan(now["early"]) == (16, 16, 0)
    assert now["early"]["eval"] > 0
    assert plan(now["changed first"]) == (2, 40, 0)
    assert plan(now["changed"]) == (6, 6, 0)
    assert plan(now["resumed"]) == (24, 24, 0)
    assert now["resumed"]["epochs"] == 3
    assert plan(now["second first"]) == (26, 32, 0)
    assert plan(now["second"]) == (32, 32, 0)
    for each in ("changed", "checkpoints"):
        assert now[each]["waited"] > 0.5 * now[each]["steps"] * 8 * 0.005
    assert plan(now["checkpoints first"])[1:] == (400, 1)
    assert plan(now["checkpoints"]) == (16, 16, 0)


def test_keras(shown):
    now, printed = shown("keras")
    assert printed["THREADS"] == "[False]"  # none of them in the thread that trains
    assert plan(now["early epoch 1"]) == (8, 400, 1)
    assert plan(now["early"]) == (16, 16, 0)
    assert now["early"]["eval"] > 0
    assert now["stream epoch 0"].get("planned") is None
    assert plan(now["stream"]) == (8, 8, 0)
    assert plan(now["later epoch 3"]) == (24, 40, 0)
    assert plan(now["later"]) == (40, 40, 0)
    assert plan(now["second epoch 0"]) == (40, 56, 0)
    assert plan(now["second"]) == (56, 56, 0)
    assert plan(now["threads"]) == (32, 32, 0)
    assert plan(now["checkpoints epoch 1"]) == (8, 400, 1)
    assert plan(now["checkpoints"]) == (16, 16, 0)


def test_keras_on_jax(shown):
    now, printed = shown("executions", KERAS_BACKEND="jax")
    assert printed["BACKEND"] == "jax"
    for at_once in (1, 4, 5, 16):
        assert plan(now[f"{at_once} at once"]) == (50, 50, 0)
        assert now[f"{at_once} at once"]["epochs"] == 5


def test_accelerate(shown):
    now, _ = shown("loops", "accelerate")
    assert plan(now["accelerate half"]) == (20, 40, 0)
    assert now["accelerate half"]["eval"] == 0.5
    assert plan(now["accelerate"]) == (40, 40, 0)
    assert plan(now["accelerate bare"])[0] == 3


def test_jax(shown):
    now, printed = shown("loops", "jax")
    assert plan(now["jax"])[:2] == (42, 40)
    assert now["jax"]["train"] == pytest.approx(float(printed["LAST"]))
    assert now["jax"]["nonfinite"] == 1


def test_boosting(shown):
    now, _ = shown("boosting")
    for name in ("xgboost", "lightgbm", "catboost"):
        assert plan(now[f"{name} early first"]) == (2, 300, 1)
        assert now[f"{name} early"]["steps"] < 20
        assert now[f"{name} early"]["train"] < 0.7 < now[f"{name} early"]["eval"]
    assert now["xgboost early"]["planned"] == now["xgboost early"]["steps"]  # the others report no end
    assert plan(now["xgboost folds"]) == (7, 7, 0)
    assert plan(now["xgboost search"]) == (27, 27, 0)
    assert plan(now["lightgbm folds"]) == (7, 7, 0)
    assert plan(now["lightgbm class"]) == (16, 16, 0)
    assert plan(now["catboost twice"]) == (18, 18, 0)


def test_one_process_reports_where_no_variable_has_the_rank(shown):
    _, said = shown("ranks")
    assert {name: said[name] for name in ("torch-0", "torch-1", "jax-0", "jax-1")} == {
        "torch-0": "reports",
        "torch-1": "silent",
        "jax-0": "reports",
        "jax-1": "silent",
    }


def test_one_process_of_lightning_reports(shown):
    _, said = shown("ranks", "lightning")
    assert (said["lightning-0"], said["lightning-1"]) == ("4of4", "silent")
