"""This package enters other people's trainings: old Pythons, and nothing loaded that is not needed."""

from __future__ import annotations

import ast
import inspect
import json
import re
from pathlib import Path

import pytest
from support.training_fixtures import StartTraining

from slopewise_exporter import Reporter
from slopewise_exporter.environment import RANK_VARIABLES

EXPORTERS = Path(__file__).parents[2] / "exporters"
SOURCES = sorted((EXPORTERS / "slopewise_exporter").rglob("*.py"))


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_every_module_is_written_in_python_3_9_and_evaluates_no_annotation_that_it_could_not(source: Path) -> None:
    text = source.read_text()
    tree = ast.parse(text, feature_version=(3, 9))
    assert ast.get_docstring(tree)
    annotated = any(isinstance(node, (ast.AnnAssign, ast.FunctionDef)) for node in ast.walk(tree))
    assert "from __future__ import annotations" in text or not annotated


def test_the_client_library_is_loaded_by_a_process_that_is_scraped_and_by_no_other(
    start_training: StartTraining,
) -> None:
    script = """
import json, sys
from urllib.request import urlopen
from slopewise_exporter import Reporter
loaded = []
with Reporter() as reporter:
    reporter.step(loss=1.0)
    loaded.append("prometheus_client" in sys.modules)
    if reporter.port is not None:
        assert b"training_steps_total 1" in urlopen(f"http://127.0.0.1:{reporter.port}/metrics").read()
loaded.append("prometheus_client" in sys.modules)
print(json.dumps(loaded))
"""
    reporting, _ = start_training(script, SLOPEWISE_EXPORTER_LINGER_SECONDS="0").communicate(timeout=60)
    other_rank, _ = start_training(script, RANK="1").communicate(timeout=60)
    assert (json.loads(reporting), json.loads(other_rank)) == ([False, True], [False, False])


def test_a_missing_client_library_is_told_when_the_endpoint_would_open(start_training: StartTraining) -> None:
    training = start_training("""
import sys
sys.modules["prometheus_client"] = None  # as an import finds it that fails
from slopewise_exporter import Reporter
with Reporter() as reporter:
    reporter.step(loss=1.0)
    print(reporter.port)
""")
    output, errors = training.communicate(timeout=60)
    assert (output, training.returncode) == ("None\n", 0)
    assert "(No module named 'prometheus_client'). Training goes on without metrics" in errors


def test_the_example_of_the_readme_runs(start_training: StartTraining) -> None:
    example = (EXPORTERS / "README.md").read_text().split("```python\n")[1].split("```")[0]
    surroundings = """
from urllib.request import urlopen
epochs, loader = 2, [[1.0, 2.0], [3.0]]
train_on, validate = sum, lambda: 0.5
def save():
    text = urlopen(f"http://127.0.0.1:{reporter.port}/metrics").read().decode()
    shown = ("training_samples_total", "training_steps_planned ")
    print(*(line for line in text.splitlines() if line.startswith(shown)))
"""
    training = start_training(surroundings + example, SLOPEWISE_EXPORTER_LINGER_SECONDS="0")
    output, errors = training.communicate(timeout=60)
    assert output.splitlines() == [
        "training_samples_total 3.0 training_steps_planned 4.0",
        "training_samples_total 6.0 training_steps_planned 4.0",
    ]
    assert errors == ""


def test_no_framework_is_loaded_by_who_did_not_name_it(start_training: StartTraining) -> None:
    script = """
import sys
import slopewise_exporter
import slopewise_exporter.fit_report, slopewise_exporter.sklearn, slopewise_exporter.catboost
frameworks = "torch lightning transformers keras accelerate sklearn xgboost lightgbm catboost jax numpy"
print(sorted({*frameworks.split()} & set(sys.modules)))
"""
    output, _ = start_training(script).communicate(timeout=60)
    assert output == "[]\n"


def test_the_readme_names_every_argument_and_every_variable() -> None:
    page = (EXPORTERS / "README.md").read_text()
    variables = set(re.findall(r"SLOPEWISE_(?:EXPORTER|CHECKPOINT)_[A-Z_]+", "".join(map(Path.read_text, SOURCES))))
    arguments = set(inspect.signature(Reporter).parameters)
    assert variables >= {"SLOPEWISE_EXPORTER_PORT", "SLOPEWISE_EXPORTER_PORT_FILE", "SLOPEWISE_CHECKPOINT_FOLDER"}
    assert [name for name in sorted({*variables, *arguments, *RANK_VARIABLES}) if f"`{name}`" not in page] == []
