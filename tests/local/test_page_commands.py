"""The commands of the README and the pages for one machine, as a user without any rights runs them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slopewise.adapters.local.prometheus_server import PrometheusBinaries

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/quick-start-data-scientist.md", "docs/local.md")
NOBODY = 65534
MAX_SECONDS = 900.0
POINTS, FEWER_POINTS = "20_000", "1_000"
"""Of each step of the example: its two trainings use 24 s of CPU with all, and a demo runs them three times."""

pytestmark = [pytest.mark.processes, pytest.mark.timeout(MAX_SECONDS + 60)]


def commands(of: str) -> list[str]:
    """Each command of the pages once that begins with `of` and names the example of a jobs file."""
    text = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)
    return sorted(set(re.findall(rf"^{of} .*--jobs examples/jobs\.yaml.*$", text, re.MULTILINE)))


def as_nobody() -> list[str]:
    """What runs a command as a user who may write no cgroup; root's Python may lie where only root can read."""
    if os.geteuid() != 0:
        return []
    of_reading = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search"]
    bounded = ["--bounding-set=-all,+dac_read_search", "--securebits=+no_setuid_fixup"]
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *of_reading, *bounded]


@pytest.fixture
def home() -> Iterator[Path]:
    """Not in tmp_path: pytest keeps that to its own user."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        shutil.copytree(ROOT / "examples", Path(name) / "examples")
        script = Path(name) / "examples/train.py"
        text = script.read_text(encoding="utf-8")
        assert text.count(POINTS) == 1
        script.write_text(text.replace(POINTS, FEWER_POINTS), encoding="utf-8")
        yield Path(name)


def run(home: Path, prometheus: PrometheusBinaries, command: str, *more: str) -> subprocess.CompletedProcess[str]:
    """The command in a folder that has the examples."""
    path = f"{Path(sys.executable).parent}:{prometheus.prometheus.parent}:{os.environ['PATH']}"
    variables = {"HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "TMPDIR": str(home), "PATH": path}
    words = [*as_nobody(), *shlex.split(command, comments=True), *more]
    return subprocess.run(
        words,
        cwd=home,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=MAX_SECONDS,
        check=False,
    )


def test_the_pages_have_one_command_of_each_kind() -> None:
    assert len(commands("slopewise run --local")) == len(commands("slopewise demo")) == 1


@pytest.mark.parametrize("command", commands("slopewise run --local"))
def test_run_needs_no_right_where_the_policy_leaves_control_out(
    command: str, home: Path, prometheus_binaries: PrometheusBinaries
) -> None:
    ran = run(home, prometheus_binaries, command, "--port", "0")
    assert ran.returncode == 0, ran.stderr
    assert os.geteuid() != 0 or "CPU is given by stop and continue" in ran.stderr
    assert re.findall(r"^(\w+) +(\w+)", ran.stdout, re.MULTILINE)[1:3] == [("tiny", "finished"), ("later", "finished")]


@pytest.mark.long
@pytest.mark.parametrize("command", commands("slopewise demo"))
def test_the_demo_of_a_jobs_file_needs_no_right(
    command: str, home: Path, prometheus_binaries: PrometheusBinaries
) -> None:
    ran = run(home, prometheus_binaries, command)
    assert ran.returncode == 0, ran.stderr
    assert (home / "mine.html").stat().st_size > 0
