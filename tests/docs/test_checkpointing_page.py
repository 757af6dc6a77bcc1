"""docs/checkpointing.md: its examples survive being moved, and it names everything there is."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest
from support.page_examples import PAGE, check_that_it_is_moved, examples

from slopewise_exporter import Checkpoints
from slopewise_exporter.termination import EXIT_CODE

FRAMEWORKS = ("torch", "lightning", "transformers", "keras")
HERE = [code for code in examples() if not any(f"import {name}" in code for name in FRAMEWORKS)]


@pytest.mark.processes
@pytest.mark.parametrize("code", HERE, ids=["plain", "scikit-learn"])
def test_an_example_goes_on_where_sigterm_has_ended_it(tmp_path: Path, code: str) -> None:
    check_that_it_is_moved(code, tmp_path, sys.executable, {"OMP_NUM_THREADS": "1"})


def test_the_page_names_every_argument() -> None:
    page = PAGE.read_text()
    assert [name for name in inspect.signature(Checkpoints).parameters if f"`{name}`" not in page] == []


def test_the_page_names_the_exit_code() -> None:
    assert f"| {EXIT_CODE} " in PAGE.read_text()
