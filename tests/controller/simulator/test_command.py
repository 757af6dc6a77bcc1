"""`slopewise simulate` as a user meets it: one sentence for a mistake, whole seeds after Ctrl-C."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from support.command_line import slopewise
from support.waiting import eventually, runs

SCENARIO = """
apiVersion: slopewise.dev/v1alpha1
kind: Scenario
metadata: {name: small}
spec:
  nodes: [{name: n1, cpu: 1, memoryGiB: 8}]
  jobs:
    - {name: first, model: mnist-pytorch, arriveSeconds: 0}
    - {name: second, model: mnist-tensorflow, arriveSeconds: 20}
  policies: [fair, flowcon]
  seeds: 2
"""
COMMAND = (sys.executable, "-m", "slopewise", "simulate")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(SCENARIO)
    return tmp_path


def simulate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """In this process."""
    return slopewise("simulate", "--workers", "1", *arguments, cwd=folder)


def message_of(result: subprocess.CompletedProcess[str]) -> str:
    assert (result.returncode, result.stdout) == (2, "")
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0]


# --- what it prints ---------------------------------------------------------------------------------------


def test_json_has_every_measure_with_its_interval_and_ratio_to_fair_for_any_number_of_workers(folder: Path) -> None:
    alone = simulate(folder, "small.yaml", "-o", "json").stdout
    printed = json.loads(alone)
    assert list(printed) == ["scenario", "seeds", "policies", "ratio_to_fair"]
    assert (printed["scenario"], printed["seeds"]) == ("small", 2)
    assert list(printed["policies"]) == ["fair", "flowcon"]
    makespan = printed["policies"]["fair"]["makespan_seconds"]
    assert makespan["low"] < makespan["mean"] < makespan["high"]
    assert list(printed["ratio_to_fair"]) == ["flowcon"]
    several = slopewise("simulate", "small.yaml", "-o", "json", "--workers", "2", cwd=folder)
    assert (several.stdout, several.stderr) == (alone, ""), "progress is for a terminal"


def test_the_table_says_better_and_worse_in_words_and_names_the_seeds(folder: Path) -> None:
    result = simulate(folder, "small.yaml", "--report", "report.html")
    assert "Mean completion" in result.stdout
    assert any(f" {word}" in result.stdout for word in ("better", "worse", "same", "unclear"))
    assert "Mean over 2 seeds" in result.stdout
    assert "Report: report.html" in result.stderr
    assert "Mean completion time" in (folder / "report.html").read_text()


def test_policies_of_the_command_line_replace_the_scenarios_and_csv_has_a_row_for_each_measure(folder: Path) -> None:
    arguments = ("small.yaml", "--seeds", "1", "--policy", "las", "--policy", "kube-default", "-o", "csv")
    rows = list(csv.DictReader(simulate(folder, *arguments).stdout.splitlines()))
    assert {row["policy"] for row in rows} == {"fair", "las", "kube-default"}
    (row,) = [row for row in rows if (row["policy"], row["measure"]) == ("las", "makespan_seconds")]
    assert float(row["mean"]) > 0
    assert float(row["ratio_to_fair_mean"]) > 0
    assert row["low"] == row["high"] == "", "one seed has no interval"


def test_the_shipped_scenarios_are_listed_one_a_line() -> None:
    listed = slopewise("simulate", "--list").stdout.splitlines()
    assert "flowcon-10" in listed
    assert listed == sorted(listed)


# --- what it writes ---------------------------------------------------------------------------------------


def test_the_trace_has_the_events_of_every_run_in_order_one_object_a_line(folder: Path) -> None:
    assert simulate(folder, "small.yaml", "--seeds", "2", "--trace", "trace.jsonl").returncode == 0
    events = [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]
    runs = list(dict.fromkeys((event["seed"], event["policy"]) for event in events))
    assert runs == [(1, "fair"), (1, "flowcon"), (2, "fair"), (2, "flowcon")]
    arrived = [event for event in events if event["kind"] == "arrived" and event["job"] == "second"]
    assert [event["at_seconds"] for event in arrived] == [20.0] * 4


# --- mistakes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name a scenario file or a shipped scenario"),
        (("nope",), "there is no shipped scenario 'nope'"),
        (("./nope.yaml",), "nope.yaml"),
        (("small.yaml", "--seeds", "0"), "--seeds 0 is too few; give 1 or more"),
        (("small.yaml", "--workers", "0"), "--workers 0 is too few; give 1 or more"),
        (("small.yaml", "--policy", "nope"), "there is no policy 'nope'"),
        (("small.yaml", "--report", "nowhere/r.html"), "--report nowhere/r.html: the folder"),
        (("small.yaml", "--trace", "nowhere/t.jsonl"), "--trace nowhere/t.jsonl: the folder"),
        (("small.yaml", "--trace", "."), "--trace . is a folder"),
        (("small.yaml", "--trace", "small.yaml"), "--trace small.yaml is the scenario as well; name another file."),
        (("small.yaml", "--report", "x", "--trace", "./x"), "--trace x is the file of --report as well; name another"),
    ],
)
def test_a_mistake_is_one_sentence_before_any_run(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    assert message in message_of(simulate(folder, *arguments))


# --- Ctrl-C -----------------------------------------------------------------------------------------------


@contextmanager
def a_long_sweep(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """In a session of its own, so that Ctrl-C can be sent to all of it, as a terminal does."""
    process = subprocess.Popen(
        [*COMMAND, "small.yaml", "--seeds", "2000", "--workers", "2", "-o", "json", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def of_session(session: int) -> list[int]:
    """The processes that run in it: those that ended and were not yet looked after by their parent do not count."""
    return [pid for pid in psutil.pids() if _session_of(pid) == session and runs(pid)]


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def test_ctrl_c_prints_the_seeds_that_are_whole_and_leaves_no_process(folder: Path) -> None:
    trace = folder / "trace.jsonl"
    with a_long_sweep(folder, "--trace", str(trace)) as process:
        assert eventually(lambda: trace.exists() and '"seed": 3' in trace.read_text())
        os.killpg(process.pid, signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "stopped by SIGINT" in stderr
        assert len(stderr.strip().splitlines()) == 1, stderr
        printed = json.loads(stdout)
        done = printed["partial"]["seeds_done"]
        assert printed["partial"]["seeds_asked"] == 2000
        assert printed["seeds"] == len(done)
        assert done[:2] == [1, 2]
        assert printed["policies"]["flowcon"]["makespan_seconds"]["mean"] > 0
        assert all(json.loads(line) for line in trace.read_text().splitlines())
        assert eventually(lambda: of_session(process.pid) == [])  # the interpreter's own helper ends after it


def test_workers_do_not_outlive_a_sweep_that_is_killed(folder: Path) -> None:
    with a_long_sweep(folder) as process:
        assert eventually(lambda: len(of_session(process.pid)) >= 3)
        process.kill()
        process.wait(timeout=60)
        assert eventually(lambda: of_session(process.pid) == [])
