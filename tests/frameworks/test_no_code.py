"""The examples of docs/exporters-frameworks.md without their line: `slopewise-exporter run` adds the same callbacks.

The command is another Python's, which lends the frameworks' Python this package.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
from support.killing import REPORTING
from support.reported_examples import SCRAPE, SURROUNDINGS, reporting_examples

# Words of the example; steps, epochs, stages of the loss. Of Accelerate the plan is not known.
EXPECTED = {
    "lightning": ("slopewise_exporter.lightning", 40, 5, {"train", "train_ema", "eval"}),
    "transformers": ("slopewise_exporter.transformers", 40, 5, {"train", "train_ema"}),
    "keras": ("slopewise_exporter.keras", 10, 5, {"train", "train_ema", "eval"}),
    "accelerate": ("slopewise_exporter.accelerate", 8, 0, {"train", "train_ema"}),
    "sklearn": ("monitor=ReportMonitor()", 50, 0, {"train", "train_ema"}),
    "xgboost": ("slopewise_exporter.xgboost", 50, 0, {"train", "train_ema"}),
    "lightgbm": ("slopewise_exporter.lightgbm", 50, 0, {"train", "train_ema"}),
    "catboost": ("slopewise_exporter.catboost", 50, 0, {"train", "train_ema", "eval"}),
}
OURS = re.compile(
    r"^from slopewise_exporter.*\n|,? ?(callbacks=\[ReportCallback\(\)\]"
    r"|monitor=ReportMonitor\(\))|log_with=SlopewiseTracker\(\)",
    re.MULTILINE,
)
PERCEPTRON = "from sklearn.neural_network import MLPClassifier\nMLPClassifier((4,), max_iter=7, tol=0).fit(x, y)\n"
CLASSIFIERS = {
    "xgboost": "xgboost.XGBRegressor(n_estimators=20).fit(x, x.sum(1), eval_set=[(x, x.sum(1))], verbose=False)\n",
    "lightgbm": "lightgbm.LGBMRegressor(n_estimators=20, verbose=-1).fit(x, x.sum(1), eval_set=[(x, x.sum(1))])\n",
}


def run(folder, python, environment, surroundings, code, *, plain=False):
    """The samples of a scrape at the end of a script in which nothing is ours; `plain`: no `run` before it either."""
    script = folder / "train.py"
    before = (SURROUNDINGS / f"{surroundings}.py").read_text()
    script.write_text(f"{before}\n{code}\n{'' if plain else SCRAPE}")
    run = [] if plain else [sys.executable, "-m", "slopewise_exporter", "run", "--"]
    environment = {name: text for name, text in environment.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*run, python, str(script)],
        cwd=folder,
        env={**os.environ, **REPORTING, **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {} if plain else json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_without_its_line_reports_the_same(tmp_path, python, environment, name):
    words, steps, epochs, stages = EXPECTED[name]
    (code,) = [code for code in reporting_examples() if words in code]
    unchanged = OURS.sub("", code)
    assert unchanged != code
    assert "slopewise" not in unchanged.lower()
    now = run(tmp_path, python, environment, name, unchanged)
    assert now["training_steps_total"] == steps
    assert now.get("training_steps_planned") == (None if name == "accelerate" else steps)
    assert now["training_epochs_total"] == epochs
    assert {stage for stage in ("train", "train_ema", "eval") if f'training_loss{{stage="{stage}"}}' in now} == stages
    assert now['training_loss{stage="train"}'] > 0


@pytest.mark.parametrize("name", [name for name in EXPECTED if name not in ("sklearn", "accelerate")])
def test_a_callback_that_the_script_has_itself_stays_the_only_one(tmp_path, python, environment, name):
    words, steps, _, _ = EXPECTED[name]
    (code,) = [code for code in reporting_examples() if words in code]
    assert run(tmp_path, python, environment, name, code)["training_steps_total"] == steps


def test_a_network_of_scikit_learn_reports_its_epochs(tmp_path, python, environment):
    now = run(tmp_path, python, environment, "sklearn", PERCEPTRON)
    assert (now["training_steps_total"], now["training_epochs_total"], now["training_steps_planned"]) == (7, 7, 7)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_the_classes_for_scikit_learn_report_like_the_function(tmp_path, python, environment, name):
    now = run(tmp_path, python, environment, name, CLASSIFIERS[name])
    assert (now["training_steps_total"], now["training_steps_planned"]) == (20, 20)


def test_fits_one_after_another_are_one_training(tmp_path, python, environment):
    code = "for _ in range(3):\n    model.fit(x, y, epochs=2, verbose=0)\n"
    now = run(tmp_path, python, environment, "keras", code)
    assert (now["training_steps_total"], now["training_steps_planned"]) == (18, 18)


def test_a_frameworks_callback_comes_before_what_is_printed(tmp_path, python, environment):
    code = "print('step 77/99 loss=77')\nmodel.fit(x, y, epochs=2, verbose=2)\nprint('loss=78')\n"
    now = run(tmp_path, python, environment, "keras", code)
    assert (now["training_steps_total"], now["training_steps_planned"]) == (6, 6)
    assert now['training_loss{stage="train"}'] < 70
