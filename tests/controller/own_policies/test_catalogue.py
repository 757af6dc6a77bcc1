"""Policies by name: shipped ones, files that were named, folders, packages; a mistake in one breaks no other."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from support.own_policy import a_file, a_name, deciding, failing

from slopewise.errors import UsageError
from slopewise.own_policies import catalogue
from slopewise.own_policies.catalogue import Unusable, find, name_file, name_of, names, own
from slopewise.policies import PolicyFile


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which policies are found."""
    monkeypatch.setenv("SLOPEWISE_POLICIES", str(tmp_path))
    return tmp_path


def mistake(name: str) -> str:
    (found,) = [each for each in own() if isinstance(each, Unusable) and each.name == name]
    return found.mistake


def test_a_policy_in_a_folder_is_found_by_its_name_like_a_shipped_one(folder: Path) -> None:
    name = a_name()
    path = a_file(folder, name=name)
    assert name in names()
    assert "flowcon" in names()
    assert find(name).file == find(name.replace("-", "_")).file == str(path)
    assert find("flowcon").file is None


def test_files_of_a_folder_that_are_no_policies_are_left_alone(folder: Path) -> None:
    (folder / "_shared.py").write_text("1 / 0")
    (folder / ".hidden.py").write_text("1 / 0")
    (folder / "notes.txt").write_text("no policy")
    assert own() == []


def test_a_policy_with_a_mistake_says_so_where_it_is_listed_and_breaks_no_other(folder: Path) -> None:
    good, bad = a_name(), a_name()
    a_file(folder, name=good)
    a_file(folder, failing("1 / 0"), name=bad)
    assert find(good).name == good
    assert find("flowcon").name == "flowcon"
    assert "ZeroDivisionError: division by zero (line 1)" in mistake(bad)
    assert [each.name for each in own() if isinstance(each, PolicyFile)] == [good]
    with pytest.raises(UsageError, match="ZeroDivisionError"):
        find(bad)


def test_a_shipped_policy_cannot_be_replaced(folder: Path) -> None:
    a_file(folder, deciding("return fair"), name="flowcon")
    assert find("flowcon").file is None
    assert "a policy that comes with slopewise is called 'flowcon'; choose another name" in mistake("flowcon")
    with pytest.raises(UsageError, match=r"flowcon\.py: a policy that comes with slopewise is called 'flowcon'"):
        name_file(folder / "flowcon.py")


def test_two_policies_of_one_name_are_refused_and_both_named(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, name = tmp_path_factory.mktemp("other"), a_name()
    first, second = a_file(folder, name=name), a_file(other, name=name)
    monkeypatch.setenv("SLOPEWISE_POLICIES", os.pathsep.join((str(folder), str(other))))
    with pytest.raises(UsageError, match=f"there are two, {first} and {second}; rename one"):
        find(name)
    with pytest.raises(UsageError, match="rename one of the two"):
        name_file(second)


def test_a_folder_that_is_not_there_is_reported_and_hides_no_policy(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = a_name()
    a_file(folder, name=name)
    monkeypatch.setenv("SLOPEWISE_POLICIES", os.pathsep.join((str(folder), str(folder / "gone"))))
    assert find(name).name == name
    assert [each.mistake for each in own() if isinstance(each, Unusable)] == ["is no folder"]


def test_a_policy_is_named_by_its_path_from_here_or_from_the_file_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    path = a_file(tmp_path / "sub")
    monkeypatch.chdir(tmp_path)
    name = name_of(f"sub/{path.name}")
    assert find(name).file == str(path)
    assert name_of(f"./{path.name}", beside=tmp_path / "sub") == name
    assert name_of("las") == "las"


def test_a_file_is_executed_once_however_often_its_policy_is_asked_for(tmp_path: Path) -> None:
    path = a_file(tmp_path)
    path.write_text(path.read_text() + f"\nwith open({str(tmp_path / 'log')!r}, 'a') as log:\n    log.write('x')\n")
    name = name_file(path).name
    for _ in range(3):
        find(name)
    assert (tmp_path / "log").read_text() == "x"


def test_a_path_is_never_taken_where_a_name_is_asked_for(tmp_path: Path) -> None:
    path = a_file(tmp_path, failing(f"open({str(tmp_path / 'log')!r}, 'w')"))
    with pytest.raises(UsageError, match=r"is a file; here a policy is named by its name"):
        find(str(path))
    assert not (tmp_path / "log").exists()


def test_an_unknown_policy_is_answered_with_all_there_are(folder: Path) -> None:
    name = a_name()
    a_file(folder, name=name)
    with pytest.raises(UsageError, match=f"there is no policy 'nope'; use one of deadline, .*{name}"):
        find("nope")


def test_policies_of_installed_packages_are_found_by_their_entry_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = a_name(), a_name()
    a_file(tmp_path, name=good)
    info = tmp_path / "acme_policies-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-policies\nVersion: 1.0\n")
    module = good.replace("-", "_")
    points = f"[slopewise.policies]\n{good} = {module}\n{bad} = not_there_at_all\n"
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(tmp_path)
    catalogue.announced.cache_clear()
    try:
        found = find(good)
        assert (found.name, found.origin, found.file) == (good, f"acme-policies ({module})", None)
        assert "imports not_there_at_all, which is not there; install it" in mistake(bad)
    finally:
        monkeypatch.undo()
        catalogue.announced.cache_clear()
        sys.modules.pop(module, None)


def test_folders_of_the_command_line_are_those_of_the_processes_that_are_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLOPEWISE_POLICIES", "")
    catalogue.use_folders([tmp_path])
    assert os.environ["SLOPEWISE_POLICIES"] == str(tmp_path)
    with pytest.raises(UsageError, match="gone: is no folder; give one that holds policies"):
        catalogue.use_folders([tmp_path / "gone"])
