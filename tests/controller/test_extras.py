"""Without the extras everything runs but reports, demo and checks, which name the extra that they need."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_WITHOUT = "import sys; sys.modules.update(dict.fromkeys(('jinja2', 'pandas', 'sklearn', 'hypothesis'))); "
_SCENARIO = """
apiVersion: slopewise.dev/v1alpha1
kind: Scenario
metadata: {name: tiny}
spec:
  nodes: [{name: n1, cpu: 1, memoryGiB: 8}]
  jobs: [{name: only, model: mnist-pytorch, arriveSeconds: 0}]
  policies: [fair]
  seeds: 1
"""


_IN_TURN = """
import io, json
from contextlib import redirect_stderr, redirect_stdout
from slopewise.commands.app import run_command_line
for command in json.loads(sys.argv.pop()):
    sys.argv[1:] = command.split()
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        try:
            run_command_line()
        except SystemExit as end:
            status = end.code
    print(json.dumps([status, out.getvalue(), err.getvalue()]))
"""
"""In one process, since each imports the same for a second. What one imports the next one need not have missed."""
_NEEDING = {
    "simulate tiny.yaml --report r.html": ("--report needs jinja2", "report"),
    "demo": ("the built-in trainings need scikit-learn", "demo"),
    "advise --prometheus http://127.0.0.1:9": ("slopewise advise needs pandas", "advise"),
    "policies check mine.py": ("slopewise policies check needs hypothesis", "policies"),
}
"""Commands, each with the sentence and the extra."""


def bare(code: str, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _WITHOUT + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd, check=False)


def in_turn(folder: Path, *commands: str) -> dict[str, list[Any]]:
    """The exit code, output and errors of each command, without the extras."""
    (folder / "tiny.yaml").write_text(_SCENARIO)
    ran = bare(_IN_TURN, json.dumps(commands), cwd=folder)
    assert ran.returncode == 0, ran.stderr
    return {command: json.loads(line) for command, line in zip(commands, ran.stdout.splitlines(), strict=True)}


def test_a_simulation_and_the_listing_and_beginning_of_policies_need_none(tmp_path: Path) -> None:
    commands = ("simulate tiny.yaml --workers 1", "policies new mine", "policies ./mine.py")
    for status, _, errors in in_turn(tmp_path, *commands).values():
        assert status == 0, errors


def test_a_cluster_and_run_local_need_none() -> None:
    result = bare("import slopewise.manager.replica, slopewise.local.run, slopewise.local.result")
    assert result.returncode == 0, result.stderr


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    folder = tmp_path_factory.mktemp("refused")
    found = in_turn(folder, *_NEEDING)
    assert [path.name for path in folder.iterdir()] == ["tiny.yaml"], "nothing was begun"
    return found


@pytest.mark.parametrize("command", _NEEDING)
def test_what_needs_one_says_which_before_anything_starts(command: str, refused: dict[str, list[Any]]) -> None:
    needing, extra = _NEEDING[command]
    sentence = f'{needing}, which is not installed; run `pip install "slopewise[{extra}]"`.'
    assert refused[command] == [2, "", f"slopewise: {sentence}\n"]


def test_a_report_of_the_demo_is_refused_likewise() -> None:
    code = (
        "from pathlib import Path; "
        "from slopewise.demo.command import DemoOptions, run_demo; "
        "run_demo(DemoOptions([], None, None, None, None, 1.0, 'auto', Path('r.html')), None, print)"
    )
    assert "UsageError: --report needs jinja2" in bare(code).stderr
