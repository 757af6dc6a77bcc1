"""docs/exporters-frameworks.md: short examples that run, and every callback that there is.

The examples of the large frameworks run with `make test-frameworks`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from support.reported_examples import PAGE, reporting_examples, scraped_at_its_end

EXPORTER = Path(__file__).parents[2] / "exporters/slopewise_exporter"
MAX_LINES = 10
HERE = [code for code in reporting_examples() if "slopewise_exporter.sklearn" in code]


@pytest.mark.parametrize("number", range(len(reporting_examples())))
def test_an_example_has_at_most_ten_lines(number: int) -> None:
    assert len(reporting_examples()[number].splitlines()) <= MAX_LINES


@pytest.mark.processes
@pytest.mark.parametrize(("code", "steps"), list(zip(HERE, [40, 50], strict=True)), ids=["partial-fit", "stages"])
def test_an_example_reports_steps_plan_and_loss(tmp_path: Path, code: str, steps: int) -> None:
    now = scraped_at_its_end("sklearn", code, tmp_path, sys.executable, {"OMP_NUM_THREADS": "1"})
    assert now["training_steps_total"] == now["training_steps_planned"] == steps
    assert now["training_steps_planned_is_upper_bound"] == 0
    assert now['training_loss{stage="train"}'] > 0


def test_the_page_has_every_callback_that_only_reports() -> None:
    ways = re.compile(r"^(?:class|def) (Report(?:Callback|Monitor|edLoader)|SlopewiseTracker|reported)\b", re.MULTILINE)
    found = {(path.stem, name) for path in EXPORTER.glob("*.py") for name in ways.findall(path.read_text())}
    assert {module for module, _ in found} >= {"lightning", "keras", "xgboost", "sklearn", "accelerate"}
    page = PAGE.read_text()
    missing = [
        each for each in sorted(found) if not re.search(rf"slopewise_exporter\.{each[0]} import {each[1]}\b", page)
    ]
    assert missing == []
