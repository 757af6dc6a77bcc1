"""Property tests: the same examples in every `make test`, and a search of its own for new ones."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from support.searching import FIXED, SEARCH

ROOT = Path(__file__).parents[2]


def drawn(profile: str) -> list[float]:
    """What a property is tried with under this profile, in order."""
    seen: list[float] = []

    @settings(settings.get_profile(profile), database=None)
    @given(st.floats(0, 1))
    def a_property(value: float) -> None:
        seen.append(value)

    a_property()
    return seen


def test_make_test_tries_the_same_examples_every_time_and_the_search_tries_more_and_others() -> None:
    fixed, searched = drawn(FIXED), drawn(SEARCH)
    assert fixed == drawn(FIXED)
    assert searched != drawn(SEARCH)
    assert len(searched) > 2 * len(fixed)


def test_no_example_fails_because_the_machine_is_busy() -> None:
    assert [settings.get_profile(name).deadline for name in (FIXED, SEARCH)] == [None, None]


def test_no_test_chooses_its_examples_itself() -> None:
    files = subprocess.run(
        ["git", "ls-files", "tests/*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    of_their_own = {name for name in files if re.search(r"^\s*@settings\(", (ROOT / name).read_text(), re.MULTILINE)}
    assert of_their_own <= {"tests/docs/test_searching.py"}


def test_the_search_is_a_command_of_its_own_which_no_change_waits_for() -> None:
    for script in (".ci/run", ".ci/test"):
        assert "hypothesis-profile" not in (ROOT / script).read_text()
        assert "make search" not in (ROOT / script).read_text()
    (recipe,) = re.findall(r"^search:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert "--hypothesis-profile=search" in recipe
    assert "-m hypothesis" in recipe
