"""A real sweep on this machine: its trials, their places, the ranking at the end, and Optuna's trials as jobs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from local.conftest import TINY
from support.command_line import slopewise_process

EXAMPLES = Path(__file__).parents[2] / "examples/sweep"

pytestmark = pytest.mark.processes


@pytest.mark.usefixtures("nothing_left", "prometheus_binaries", "state_home")
def test_the_next_trial_starts_when_one_ends_and_the_end_has_the_ranking(tmp_path: Path) -> None:
    path = tmp_path / "jobs.yaml"
    sweep = {"grid": {"seconds": [0.5, 0.25]}, "maxRunning": 1}
    path.write_text(
        yaml.safe_dump([{"name": "s", "command": [sys.executable, str(TINY), "{seconds}"], "sweep": sweep}])
    )
    ended = slopewise_process("run", "--local", "--jobs", str(path), "--port", "0", "-o", "json")
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    first, second = result["jobs"]
    assert (first["name"], second["name"]) == ("s-1-seconds0-5", "s-2-seconds0-25")
    assert second["arrived_seconds"] >= first["finished_seconds"]
    (study,) = result["studies"]
    assert {trial["trial"]: trial["seconds"] for trial in study["trials"]} == {
        first["name"]: "0.5",
        second["name"]: "0.25",
    }


NAMES_ITS_STUDY = """
import time
from slopewise_exporter import Reporter
with Reporter(study="Own study", planned_steps=70) as reporter:
    for step in range(70):
        time.sleep(0.1)
        reporter.step(loss=1.0)
        reporter.evaluate(1.0 - step / 100)
"""


@pytest.mark.usefixtures("nothing_left", "prometheus_binaries", "state_home")
def test_a_training_names_its_study_itself_and_is_ranked_by_the_loss_of_its_end(tmp_path: Path) -> None:
    jobs, policy = tmp_path / "jobs.yaml", tmp_path / "policy.yaml"
    entries = [{"name": name, "command": [sys.executable, "-c", NAMES_ITS_STUDY]} for name in ("mine", "other")]
    jobs.write_text(yaml.safe_dump([entries[0], {**entries[1], "study": "of-the-file"}]))
    policy.write_text(yaml.safe_dump({"spec": {"behaviour": {"intervalSeconds": 4}}}))
    ended = slopewise_process(
        "run", "--local", "--jobs", str(jobs), "--policy-file", str(policy), "--port", "0", "-o", "json"
    )
    assert ended.returncode == 0, ended.stderr
    studies = {each["study"]: each["trials"] for each in json.loads(ended.stdout)["studies"]}
    assert {name: [trial["trial"] for trial in trials] for name, trials in studies.items()} == {
        "own-study": ["mine"],
        "of-the-file": ["other"],
    }
    assert studies["own-study"][0]["loss"] == pytest.approx(0.31), "its last scrapes have 0.31 to 0.45"
    assert not list(Path(os.environ["XDG_STATE_HOME"]).rglob("*.end")), "what was handed over is read once"


def test_a_job_of_an_optuna_study_asks_it_for_arguments_and_tells_it_the_loss(tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    shutil.copy(EXAMPLES / "optuna_trial.py", tmp_path)
    (tmp_path / "mlp.py").write_text("def train(width, lr, activation, epochs): return lr")
    storage = f"sqlite:///{tmp_path}/study.db"
    optuna.create_study(study_name="digits", storage=storage)
    variables = {**os.environ, "OPTUNA_STUDY": "digits", "OPTUNA_STORAGE": storage}
    subprocess.run([sys.executable, str(tmp_path / "optuna_trial.py")], env=variables, check=True, timeout=120)
    (trial,) = optuna.load_study(study_name="digits", storage=storage).trials
    assert trial.value == trial.params["lr"]
