"""What is refused before anything of a release is built, each in one sentence with what is to be done."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from release import readiness, versions
from slopewise.errors import UsageError

CHANGELOG = "# Changelog\n\n## 7.11.13 - 2030-01-02\n"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository that is ready: all is committed, tagged and dated."""
    monkeypatch.setattr(versions, "REPEATED", ("page.md",))
    (tmp_path / "pyproject.toml").write_text('[tool.hatch.version]\npath = "version.py"\n')
    (tmp_path / "version.py").write_text('__version__ = "7.11.13"\n')
    (tmp_path / "page.md").write_text("newTag: 7.11.13\n")
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    git(tmp_path, "tag", "v7.11.13")
    return tmp_path


def git(tree: Path, *arguments: str) -> None:
    somebody = {f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    none = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    subprocess.run(["git", *arguments], cwd=tree, env={**os.environ, **somebody, **none}, check=True)


def commit(tree: Path) -> None:
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--message", "x")


def refusal(tree: Path) -> str:
    with pytest.raises(UsageError) as refused:
        readiness.refuse_unreproducible(tree)
    assert refused.value.exit_code == 2
    return str(refused.value)


def test_a_clean_tagged_and_dated_tree_is_released(tree: Path) -> None:
    assert readiness.refuse_unreproducible(tree) == "7.11.13"


def test_a_file_that_git_does_not_know_makes_a_tree_unclean(tree: Path) -> None:
    (tree / "new.py").touch()
    assert refusal(tree) == "the tree is not clean (?? new.py, 1 in all); commit, or remove, that."


def test_a_version_that_is_repeated_wrongly(tree: Path) -> None:
    (tree / "page.md").write_text("newTag: 7.11.12\n")
    commit(tree)
    assert "page.md repeats another version than 7.11.13; run make generate" in refusal(tree)


@pytest.mark.parametrize("heading", ["## 7.11.13 - unreleased", "## 7.11.12 - 2030-01-02", "## Unreleased"])
def test_a_changelog_without_a_date_for_it(tree: Path, heading: str) -> None:
    (tree / "CHANGELOG.md").write_text(f"# Changelog\n\n{heading}\n")
    commit(tree)
    assert refusal(tree) == "CHANGELOG.md has no date for 7.11.13; write `## 7.11.13 - YYYY-MM-DD`, and commit."


def test_a_commit_without_a_tag(tree: Path) -> None:
    git(tree, "tag", "--delete", "v7.11.13")
    assert refusal(tree) == "the version is 7.11.13, and this commit has no tag; git tag v7.11.13 names it so."


def test_a_tag_of_another_version(tree: Path) -> None:
    git(tree, "tag", "v7.12.0")
    assert readiness.refuse_unreproducible(tree)
    git(tree, "tag", "--delete", "v7.11.13")
    assert "this commit is tagged v7.12.0; git tag v7.11.13" in refusal(tree)


def test_programs_that_are_missing_are_all_named_with_their_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("git", "debootstrap"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"^not on the PATH: buildah, kubectl; .*apt-get install buildah kubernetes-"):
        readiness.refuse_without_tools()
