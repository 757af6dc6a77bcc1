"""Without the extras everything runs but reports, demo and checks, which name the extra that they need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tiny.yaml").write_text(_SCENARIO)
    return tmp_path


def bare(code: str, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _WITHOUT + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd, check=False)


def slopewise(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return bare("from slopewise.__main__ import main; main()", *arguments, cwd=folder)


def test_a_simulation_the_listing_and_beginning_of_policies_a_cluster_and_run_local_need_none(folder: Path) -> None:
    commands = ("simulate tiny.yaml", "policies new mine", "policies ./mine.py")
    for result in (
        *(slopewise(folder, *command.split()) for command in commands),
        bare("import slopewise.manager.replica, slopewise.local.run, slopewise.local.result"),
    ):
        assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("command", "needing", "extra"),
    [
        ("simulate tiny.yaml --report r.html", "--report needs jinja2", "report"),
        ("demo", "the built-in trainings need scikit-learn", "demo"),
        ("advise --prometheus http://127.0.0.1:9", "slopewise advise needs pandas", "advise"),
        ("policies check mine.py", "slopewise policies check needs hypothesis", "policies"),
    ],
)
def test_what_needs_one_says_which_before_anything_starts(folder: Path, command: str, needing: str, extra: str) -> None:
    result = slopewise(folder, *command.split())
    sentence = f'{needing}, which is not installed; run `pip install "slopewise[{extra}]"`.'
    assert (result.returncode, result.stdout, result.stderr) == (2, "", f"slopewise: {sentence}\n")
    assert not (folder / "r.html").exists()


def test_a_report_of_the_demo_is_refused_likewise() -> None:
    code = (
        "from pathlib import Path; "
        "from slopewise.demo.command import DemoOptions, run_demo; "
        "run_demo(DemoOptions([], None, None, None, None, 1.0, 'auto', Path('r.html')), None, print)"
    )
    assert "UsageError: --report needs jinja2" in bare(code).stderr
