"""pytest's fixture `policy_contract`, as the tests of a user's policy take it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.own_policy import a_file, deciding

TEST = "def test_contract(policy_contract): policy_contract({}, worlds=5)"


def test_a_policy_is_held_to_the_contract_by_a_test_of_one_line(tmp_path: Path) -> None:
    kept, broken = a_file(tmp_path), a_file(tmp_path, deciding("return None"))
    for path in (kept, broken):
        path.with_name(f"test_{path.stem}.py").write_text(TEST.format(repr(str(path))))
    plugin = ("-p", "slopewise.own_policies.pytest_plugin")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
        *plugin,
        str(tmp_path),
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False)
    assert "1 failed, 1 passed" in result.stdout, result.stdout + result.stderr
    assert f"{broken}: ordinary worlds: " in result.stdout
    assert "decide returned None, and not Decisions" in result.stdout
