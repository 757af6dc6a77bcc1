"""CI's stages: every test is in one of them, whatever its marks."""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import product
from pathlib import Path

from _pytest.mark.expression import Expression

ROOT = Path(__file__).parents[2]
REAL = ({"processes"}, {"cgroups"}, {"processes", "cgroups"})
MARKS: list[set[str]] = [set(), {"image"}, *(real | more for real, more in product(REAL, (set(), {"alone"}, {"long"})))]
"""What a test may be marked with."""


def stages() -> list[Expression]:
    """What each stage of pytest selects, in `make test` and in `make test-long`."""
    script = (ROOT / ".ci/test").read_text()
    (real,) = re.findall(r'^real="(.+)"$', script, re.MULTILINE)
    written = re.findall(r'^stage "pytest.* -m "?([^"]+?)"? ["-]', script, re.MULTILINE)
    written += re.findall(r'^test-long:.*\n.* -m "(.+?)"', (ROOT / "Makefile").read_text(), re.MULTILINE)
    return [Expression.compile(each.replace("$real", real)) for each in written]


def selects(stage: Expression, marks: Collection[str]) -> bool:
    return stage.evaluate(lambda name, /, **_: name in marks)


def test_each_test_is_in_one_stage_whatever_its_marks() -> None:
    assert len(stages()) == 4
    for marks in MARKS:
        assert sum(selects(stage, marks) for stage in stages()) == 1, marks
