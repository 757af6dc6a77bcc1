"""The examples of docs/checkpointing.md that need a framework."""

from __future__ import annotations

import pytest
from support.page_examples import check_that_it_is_moved, examples

SECTIONS = {
    "pytorch": "slopewise_exporter.pytorch",
    "lightning": "slopewise_exporter.lightning",
    "transformers": "slopewise_exporter.transformers",
    "keras": "slopewise_exporter.keras",
}


@pytest.mark.parametrize("name", SECTIONS)
def test_an_example_goes_on_where_sigterm_has_ended_it(tmp_path, python, environment, name):
    (code,) = [code for code in examples() if f"from {SECTIONS[name]} import" in code]
    check_that_it_is_moved(code, tmp_path, python, environment)
