"""docs/moves.md: every module that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/moves.md").read_text(encoding="utf-8")
MODULES = sorted(set(re.findall(r"`((?:controller/)?[\w/]+\.py)`", PAGE)))


@pytest.mark.parametrize("module", MODULES)
def test_every_module_that_is_named_exists(module: str) -> None:
    assert (ROOT / module).is_file() or (ROOT / "controller/slopewise/adapters/kube/moves" / module).is_file()
