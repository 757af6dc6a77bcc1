"""CI's stages: every test is in one of them, whatever its marks; all run, and the end lists what failed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Collection
from itertools import product
from pathlib import Path

from _pytest.mark.expression import Expression
from support.waiting import eventually

ROOT = Path(__file__).parents[2]
REAL = ({"processes"}, {"cgroups"}, {"processes", "cgroups"})
MARKS: list[set[str]] = [
    set(),
    {"image"},
    {"long"},
    *(real | more for real, more in product(REAL, (set(), {"alone"}, {"long"}))),
]
"""What a test may be marked with."""
FIVE_STAGES = """
set -euo pipefail
. .ci/stages.sh
fails() { echo ".venv/bin/pytest 'tests/a.py::b'" >>"$STAGES_FAILED"; return 3; }
short() { stage "three: a" fails; stage "three: b" echo said; }
stages_wanted=("$@")
stage "one" true
beside short
stage "two: a" fails
stage "two: b" true
rejoin
stage_times
"""

TWO_AT_ONCE = """
set -euo pipefail
. .ci/stages.sh
beside_it() { stage "beside" sleep 60; }
beside beside_it
stage "here" sleep 60
rejoin
"""


def stages(*, of_unit: bool) -> list[Expression]:
    """What each stage of pytest selects in `make test`, `make test-long` and `make test-shares`.

    Of the folders of `make unit`, which are left out of a later stage, or of all others.
    """
    script = (ROOT / ".ci/test").read_text()
    (real,) = re.findall(r'^real="(.+)"$', script, re.MULTILINE)
    written = re.findall(r'^ *stage "(.*pytest.*)" pytest .*?-m "(.+?)"(.*)$', script, re.MULTILINE)
    assert len(written) == 3
    selecting = [
        expression
        for name, expression, rest in written
        if (name == "unit: pytest") <= of_unit and ("--ignore=" in rest) <= (not of_unit)
    ]
    selecting += re.findall(
        r'^test-(?:long|shares):.*\n.* -m "?([a-z ]+?)"? tests', (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    return [Expression.compile(each.replace("$real", real)) for each in selecting]


def selects(stage: Expression, marks: Collection[str]) -> bool:
    return stage.evaluate(lambda name, /, **_: name in marks)


def test_each_test_is_in_one_stage_whatever_its_marks() -> None:
    for of_unit in (True, False):
        found = stages(of_unit=of_unit)
        assert len(found) == 4
        for marks in MARKS:
            assert sum(selects(stage, marks) for stage in found) == 1, (of_unit, marks)


def run_stages(*names: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "STAGES_FAILED"}
    return subprocess.run(
        ["bash", "-c", FIVE_STAGES, ".ci/test", *names],
        check=False,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )


def test_all_stages_run_and_the_end_lists_what_failed_with_the_command_that_repeats_it() -> None:
    ran = run_stages()
    assert ran.returncode == 1
    names = ["one", "two: a", "two: b", "three: a", "three: b"]
    assert re.findall(r"^=== (\S+(?: \w)?)$", ran.stdout, re.MULTILINE) == names
    assert re.findall(r"^ +\d+  (.+)$", ran.stdout, re.MULTILINE) == names
    assert "\nsaid\n" in ran.stdout
    end = ran.stdout.split("Failed; to repeat each:\n")[1]
    assert sorted(end.splitlines()) == [
        *[".venv/bin/pytest 'tests/a.py::b'"] * 2,
        *(f'bash .ci/test "{name}"' for name in ("three: a", "two: a")),
    ]


def test_named_stages_run_alone() -> None:
    ran = run_stages("one", "two: b")
    assert (ran.returncode, re.findall(r"^=== (.+)$", ran.stdout, re.MULTILINE)) == (0, ["one", "two: b"])
    assert "Failed" not in ran.stdout


def test_ctrl_c_ends_what_runs_beside_a_stage_too_and_leaves_no_file(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "STAGES_FAILED"}
    # A shell that a background job starts has SIGINT ignored, and cannot trap it.
    command = ("env", "--default-signal=INT", "bash", "-c", TWO_AT_ONCE, ".ci/test")
    with subprocess.Popen(
        command, cwd=ROOT, env={**environment, "TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert eventually(lambda: any("beside" in each.read_text() for each in tmp_path.glob("*/output")))
        assert [process.stdout.readline() for _ in range(2)][1] == b"=== here\n"
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=180) == 130
    assert list(tmp_path.iterdir()) == []
