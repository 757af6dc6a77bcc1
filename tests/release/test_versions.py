"""The version stands in one file; the files that repeat it are known, and are written together."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from release import versions
from slopewise.errors import UsageError

SOURCE = tomllib.loads((versions.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["version"][
    "path"
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("pyproject.toml", SOURCE, *versions.REPEATED):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(versions.ROOT / name, tmp_path / name)
    return tmp_path


def test_all_files_repeat_the_version_that_there_is() -> None:
    assert versions.outdated() == {}


def test_a_new_version_is_written_into_each_of_them_wherever_it_stands(tree: Path) -> None:
    former = versions.current(tree)
    (tree / SOURCE).write_text('__version__ = "7.11.13rc1"\n')
    found = versions.outdated(tree)
    assert set(found) == {tree / name for name in versions.REPEATED}
    assert not [path for path, text in found.items() if re.search(rf"(?<!v){re.escape(former)}", text)]
    for path, text in found.items():
        path.write_text(text)
    assert versions.outdated(tree) == {}


def test_a_file_that_repeats_none_any_more_is_named(tree: Path) -> None:
    (tree / versions.REPEATED[0]).write_text("nothing\n")
    with pytest.raises(UsageError, match=f"{versions.REPEATED[0]} repeats no version"):
        versions.outdated(tree)


def test_no_other_file_of_the_repository_repeats_it() -> None:
    stated = rf"(__version__ = \"|newTag: |tag v|[a-zA-Z][:=]){re.escape(versions.current())}"
    command = ["git", "grep", "-lE", stated, "--", ":!tests", ":!CHANGELOG.md"]
    named = subprocess.run(command, cwd=versions.ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert sorted(named) == sorted([SOURCE, *versions.REPEATED])
