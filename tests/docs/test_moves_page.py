"""docs/moves.md: every module that it names exists, and every constant has the value that it prints."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/moves.md").read_text(encoding="utf-8")
MODULES = sorted(set(re.findall(r"`((?:controller/)?[\w/]+\.py)`", PAGE)))
CONSTANTS = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| `controller/([\w/]+)\.py` \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("module", MODULES)
def test_every_module_that_is_named_exists(module: str) -> None:
    assert (ROOT / module).is_file() or (ROOT / "controller/slopewise/adapters/kube/moves" / module).is_file()


@pytest.mark.parametrize(("name", "seconds", "module"), CONSTANTS)
def test_every_constant_has_the_value_of_the_code(name: str, seconds: str, module: str) -> None:
    assert getattr(importlib.import_module(module.replace("/", ".")), name) == float(seconds)
