"""`slopewise policies new NAME`: a file that works, and imports what is public and nothing else of ours."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from slopewise import policy_api
from slopewise.errors import UsageError
from slopewise.own_policies.loading import load_file
from slopewise.own_policies.template import template, write_new


@pytest.mark.parametrize("name", ["shortest_first", "shortest_first.py", "shortest-first"])
def test_a_new_policy_has_its_name_everywhere_however_it_is_written_and_can_be_loaded(
    tmp_path: Path, name: str
) -> None:
    path = write_new(name, tmp_path)
    assert path == tmp_path / "shortest_first.py"
    assert load_file(path).name == "shortest-first"
    assert "__NAME__" not in path.read_text()


def test_it_imports_only_what_is_public() -> None:
    imports = [node for node in ast.walk(ast.parse(template("mine"))) if isinstance(node, ast.ImportFrom | ast.Import)]
    modules = {node.module for node in imports if isinstance(node, ast.ImportFrom)}
    (ours,) = [node for node in imports if isinstance(node, ast.ImportFrom) and node.module == policy_api.__name__]
    assert modules == {"__future__", "collections.abc", "slopewise.policy_api"}
    assert {alias.name for alias in ours.names} <= set(policy_api.__all__)
    assert not [node for node in imports if isinstance(node, ast.Import)]


def test_what_is_public_is_there_and_in_order() -> None:
    assert policy_api.__all__ == sorted(policy_api.__all__)
    assert [name for name in policy_api.__all__ if not hasattr(policy_api, name)] == []


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("My Policy", "slopewise policies new: 'My Policy' cannot be the name of a policy; use small letters"),
        ("flowcon", "a policy that comes with slopewise is called 'flowcon'; choose another name."),
        ("there", "there.py: is there already; give another name, or remove it first."),
    ],
)
def test_a_name_that_cannot_be_is_one_sentence_and_overwrites_nothing(tmp_path: Path, name: str, sentence: str) -> None:
    (tmp_path / "there.py").write_text("mine")
    with pytest.raises(UsageError) as refused:
        write_new(name, tmp_path)
    assert sentence in str(refused.value)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("there.py", "mine")]
    with pytest.raises(UsageError, match=r"mine\.py: cannot be written \(No such file or directory\); name another"):
        write_new("mine", tmp_path / "gone")
