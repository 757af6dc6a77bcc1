"""The locks for each purpose agree, and no image has what is another purpose's."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
LIBRARIES = sorted(each for of_extra in EXTRAS.values() for each in of_extra if not each.startswith("slopewise"))


def locked(name: str) -> dict[str, list[str]]:
    """Each project's versions; it has several where they differ by Python version."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / name).read_text(encoding="utf-8").splitlines():
        if match := re.match(r"([a-z][^=\s]*)==(.*?) \\$", line):
            found.setdefault(match[1], []).append(match[2])
    return found


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-build.lock"])
def test_what_is_tested_are_the_versions_that_the_image_has(lock: str) -> None:
    assert locked(lock).items() <= locked("requirements-dev.lock").items()


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_libraries_of_the_extras_are_tested_and_not_in_the_image(library: str) -> None:
    name = Requirement(library).name
    assert name in locked("requirements-dev.lock")
    assert name not in locked("requirements.lock")


def test_the_trainers_image_adds_what_scikit_learn_needs_and_the_controllers_lacks() -> None:
    dockerfile = (ROOT / "tests/cluster/trainer/Dockerfile").read_text(encoding="utf-8")
    (added,) = re.findall(r"--root /added (.*)", dockerfile)
    assert set(added.split()) == needed("scikit-learn") - set(locked("requirements.lock"))


def needed(name: str) -> set[str]:
    """The project and all that it needs, as the installed versions say."""
    reached: set[str] = set()
    pending = {name}
    while pending:
        reached.add(project := pending.pop())
        wanted = [
            each
            for each in map(Requirement, requires(project) or [])
            if not each.marker or each.marker.evaluate({"extra": ""})
        ]
        pending |= {canonicalize_name(each.name) for each in wanted} - reached
    return reached
