"""`slopewise policies check`: what keeps to the contract, and what is said of what does not."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis.strategies import just
from support.own_policy import PARAMETERS, a_file, deciding, failing

from slopewise.errors import UsageError
from slopewise.model import ClusterSnapshot, JobState, MemoryState, Node
from slopewise.own_policies import drawn_worlds, loading
from slopewise.own_policies.check import CheckResult, a_busy_world, check_file, written
from slopewise.own_policies.contract import ContractError, check_limits_add_up
from slopewise.own_policies.drawn_worlds import INTERVAL, START
from slopewise.own_policies.loading import load_file
from slopewise.own_policies.template import template
from slopewise.policies import Setting

FEW = 10

RESIZE = """\
resizes = tuple(
            Resize(job.uid, job.node, self.setting.control, has, {to}, "why")
            for job in snapshot.jobs
            if not job.state.ended and (has := job.allocation.{has}_millicores) is not None
        )
        return replace(fair, resizes=resizes) if self.setting.control == "{control}" else fair"""


def check(folder: Path, *lines: str) -> CheckResult:
    return check_file(a_file(folder, deciding(*lines)), FEW)


def test_a_policy_that_was_just_written_keeps_to_the_contract_and_nothing_is_left_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = a_file(tmp_path)
    monkeypatch.chdir(tmp_path)
    result = check_file(path, FEW)
    assert result.kept
    assert [finding.check for finding in result.findings] == [
        "what it imports and calls",
        "what it says of itself",
        "ordinary worlds",
        "worlds one after another",
        "jobs that fit nowhere",
        f"{FEW} random worlds",
        "limits that add up",
        "many jobs",
    ]
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("lines", "place", "sentence"),
    [
        (["import time", "return fair"], "what it imports and calls", "imports time; decide is pure: no clock, no"),
        (["from slopewise import model", "return fair"], "what it imports and calls", "imports slopewise, which may"),
        (["print(memory)", "return fair"], "what it imports and calls", "calls print; decide is pure: what it has"),
        (["return snapshot.jobs[0] and fair"], "ordinary worlds", "failed: IndexError: tuple index out of range"),
        (
            ["self.asked = getattr(self, 'asked', 0) + 1", "return replace(fair, policy=str(self.asked))"],
            "ordinary worlds",
            "asked twice, the same policy gives two answers for one world; keep nothing in `self`",
        ),
        (
            ["return replace(fair, reasons={u: str(i) for i, u in enumerate(fair.reasons, 1)})"],
            "ordinary worlds",
            "reasons depend on the order in which jobs and nodes come; sort them, and end ties by uid",
        ),
        (
            [RESIZE.format(to="10**6", has="limit", control="limits")],
            "ordinary worlds",
            "a limit of 1000000 millicores on a node that has",
        ),
        (
            ["return replace(fair, moves=tuple(Place(a.uid, 'n1', 'why') for a in snapshot.waiting))"],
            "jobs that fit nowhere",
            "the move of huge goes to n1, which is no node",
        ),
        (
            ["if snapshot.moving: raise ValueError('odd')", "return fair"],
            f"{FEW} random worlds",
            "failed: ValueError: odd (line ",
        ),
    ],
)
def test_what_a_policy_breaks_is_one_sentence(tmp_path: Path, lines: list[str], place: str, sentence: str) -> None:
    result = check(tmp_path, *lines)
    last = result.findings[-1]
    assert (result.kept, last.check) == (False, place)
    assert sentence in (last.mistake or "")
    assert "\n" not in (last.mistake or "")
    if "random" in place:
        assert last.world is not None
        assert last.world.count("MoveUnderWay(") == 1
        assert "Job(" not in last.world, "it is the smallest one: no job is needed for it"


def wanting(of_cores: float, *, soft: bool = False) -> str:
    """A policy that decides this part of its node for each job."""
    text = template("mine").replace("Verdict(cores[job.uid],", f"Verdict({of_cores} * node.cpu_cores,")
    return text.replace("PURPOSE", "SOFT_LIMITS = True\nPURPOSE") if soft else text


def test_shares_beyond_the_node_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one job by the whole check of one world, since smaller ones are searched for long; of all by the rule."""
    monkeypatch.setattr(drawn_worlds, "worlds", lambda: just(a_busy_world()))
    result = check_file(a_file(tmp_path, wanting(7.0, soft=True)), FEW)
    (mistake,) = [finding.mistake for finding in result.findings if finding.check == "limits that add up"]
    assert "cores for one job of a node that has" in (mistake or "")
    assert not result.kept
    for soft in (False, True):
        found = load_file(a_file(tmp_path, wanting(1.0, soft=soft)))
        make = partial(found.build, found.parameters(), Setting(INTERVAL, "limits"))
        told = (
            nullcontext() if soft else pytest.raises(ContractError, match="cores together for the jobs of a node that")
        )
        with told:
            check_limits_add_up(make, *a_busy_world(), soft=found.soft_limits)


@pytest.mark.parametrize(
    ("lines", "place"),
    [
        (["while True:", "    try: 1 / 0", "    except Exception: pass"], "ordinary worlds"),
        (["while snapshot.moving: pass", "return fair"], f"{FEW} random worlds"),
        (["while len(snapshot.jobs) > 500: pass", "return fair"], "many jobs"),
    ],
)
def test_a_policy_that_loops_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], place: str
) -> None:
    monkeypatch.setattr(loading, "LIMIT_SECONDS", 1.0)
    path = a_file(tmp_path, deciding(*lines))
    alarm = signal.getsignal(signal.SIGALRM)
    result = check_file(path, FEW)
    last = result.findings[-1]
    loop = next(number for number, text in enumerate(path.read_text().splitlines(), start=1) if "while" in text)
    assert (result.kept, last.check) == (False, place)
    (line,) = re.findall(r"decide has not ended within 1 s \(line (\d+)\)", last.mistake or "")
    assert loop <= int(line) <= loop + 2
    assert (last.world is not None) == ("random" in place)
    assert signal.getsignal(signal.SIGALRM) == alarm


def test_a_file_that_loops_cannot_be_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "LIMIT_SECONDS", 0.5)
    with pytest.raises(UsageError, match=r"cannot be loaded: it has not ended within 0.5 s \(line 1\)"):
        check_file(a_file(tmp_path, failing("while True: pass")))


def test_what_no_alarm_ends_ends_the_process(tmp_path: Path) -> None:
    """A loop in C: it returns to no line of Python."""
    path = a_file(tmp_path, deciding("return sum(iter(int, 1))"))
    code = f"""
from pathlib import Path
from slopewise.own_policies import check, loading

def named(path, name_file=check.name_file):
    found = name_file(path)
    loading.LIMIT_SECONDS = 0.5  # loading may take longer on a busy machine
    return found

check.name_file = named
check.check_file(Path({str(path)!r}), 5)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1
    assert "Timeout" in ended.stderr
    assert f'File "{path}", line' in ended.stderr


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (deciding("return fair").replace("'''A policy of a test. Source: none.'''", ""), "does not begin with a docst"),
        (deciding("return fair").replace("Source:", "From:"), "the docstring has no `Source:`"),
        (
            deciding("return fair").replace(PARAMETERS, "class Parameters(PolicyParameters):\n    x: float = 1.0\n"),
            "Parameters.x has no description, unit or source; make it with parameter(...)",
        ),
        (
            deciding("return fair").replace(
                PARAMETERS,
                "class Parameters(PolicyParameters):\n"
                "    alpha: str = parameter('low', unit='level', source='mine', description='what it is')\n",
            ),
            "Parameters.alpha is a string, and a number in shipped policies; a key has one type, so rename it",
        ),
    ],
)
def test_what_a_file_must_say_of_itself(tmp_path: Path, text: str, sentence: str) -> None:
    result = check_file(a_file(tmp_path, text), FEW)
    assert sentence in (result.findings[-1].mistake or "")


def test_a_world_is_written_as_python_would_without_what_has_its_default() -> None:
    snapshot = ClusterSnapshot(START, (Node("n1", 1.0, 10),), ())
    assert written(replace(snapshot, nodes=())) == "ClusterSnapshot(taken_at_seconds=1000000.0)"
    assert written(JobState.TRAINING) == "JobState.TRAINING"
    assert written(MemoryState()) == "MemoryState()"
    many = ClusterSnapshot(START, tuple(Node(f"n{number}", 1.0, 10) for number in range(3)), ())
    assert written(many).splitlines()[2:4] == [
        "    nodes=(",
        "        Node(name='n0', cpu_cores=1.0, memory_bytes=10),",
    ]
