"""A policy in a file of the user's: what it must hold, and one sentence for every mistake in it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.own_policy import HEAD, PARAMETERS, a_file, deciding, failing

from slopewise.errors import UsageError
from slopewise.own_policies.loading import load_file
from slopewise.policies import Setting

POLICY = "class Policy:\n    def decide(self, snapshot, memory):\n        return None\n"


def test_a_file_that_was_just_written_can_be_loaded_under_its_own_name(tmp_path: Path) -> None:
    path = a_file(tmp_path, name="best-of-all")
    policy = load_file(path)
    assert (policy.name, policy.file, policy.simulator_only) == ("best-of-all", str(path), "")
    assert policy.summary == "best-of-all: CPU to the jobs that started last, each up to what it can use."
    assert policy.purpose.startswith("an example")
    assert policy.parameters().model_dump() == {"floor_ratio": 0.05}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("def decide(:\n", "mine.py line 1: invalid syntax; a policy is a file of Python"),
        (
            failing("x = 1\ny = oops"),
            "mine.py: cannot be loaded: NameError: name 'oops' is not defined (line 2); mend it.",
        ),
        (
            failing("import nowhere_to_be_found"),
            "imports nowhere_to_be_found, which is not there; install it where slopewise",
        ),
        (failing("import sys\nsys.exit(3)"), "mine.py: cannot be loaded: SystemExit: 3 (line 2); mend it."),
        (failing("from slopewise.policy_api import Jobs"), "ImportError: cannot import name 'Jobs'"),
        ("x = '\0'\n", "mine.py"),
        ("", "mine.py: has no class Policy with a method decide(snapshot, memory); add it"),
        (failing("x = 1"), "mine.py: has no class Parameters(PolicyParameters); add one, also an empty one"),
        (HEAD + PARAMETERS + "class Policy: ...\n", "has no class Policy with a method decide(snapshot, memory)"),
        (
            HEAD + "class Parameters(PolicyParameters):\n    alpha: float\n" + POLICY,
            "mine.py: Parameters.alpha has no default, or one out of its bounds; mend it.",
        ),
    ],
)
def test_a_mistake_in_a_file_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, sentence: str
) -> None:
    monkeypatch.delitem(sys.modules, "slopewise_policy_mine", raising=False)  # of another test's file
    path = a_file(tmp_path, text, name="mine")
    with pytest.raises(UsageError) as refused:
        load_file(path)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "slopewise_policy_mine" not in sys.modules


def test_a_file_that_is_no_policy_is_not_executed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"open({str(tmp_path / 'trained')!r}, 'w')\nclass Parameters: ...\n")
    with pytest.raises(UsageError, match=r"train\.py: has no class Policy with a method decide"):
        load_file(script)
    assert not (tmp_path / "trained").exists()


def test_a_file_that_is_not_there_or_is_a_folder_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.py: cannot be read \(No such file or directory\)"):
        load_file(tmp_path / "none.py")
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(UsageError, match=r"folder\.py: cannot be read \(Is a directory\)"):
        load_file(tmp_path / "folder.py")


@pytest.mark.parametrize("stem", ["My Policy", "Mine", "-x", "1st", "a" * 64])
def test_a_file_whose_name_no_document_could_hold_is_refused(tmp_path: Path, stem: str) -> None:
    path = tmp_path / f"{stem}.py"
    path.write_text(deciding("return fair"))
    with pytest.raises(UsageError, match="cannot be the name of a policy; use small letters, digits"):
        load_file(path)


def test_a_policy_that_cannot_be_made_is_one_sentence_with_its_line(tmp_path: Path) -> None:
    text = HEAD + PARAMETERS + "class Policy:\n    def __init__(self):\n        pass\n" + POLICY.partition("\n")[2]
    policy = load_file(a_file(tmp_path, text, name="mine"))
    with pytest.raises(UsageError, match=r"mine\.py: Policy\(parameters, setting\) failed: TypeError: .*positional"):
        policy.build(policy.parameters(), Setting(20.0, "limits"))
