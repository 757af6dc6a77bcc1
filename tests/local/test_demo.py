"""`slopewise demo` and `slopewise run --local` as whole processes: what they print, and that they leave nothing."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from local.conftest import (
    jobs_file,
    leaked_cgroups,
    leaked_folders,
    marked_processes,
    start_python,
    tiny,
    tiny_trainings,
)
from support.own_policy import a_file, deciding
from support.terminals import on_a_terminal
from support.waiting import eventually

from slopewise.adapters.local.prometheus_server import PrometheusBinaries, PrometheusServer
from slopewise.adapters.prometheus.reader import PrometheusReader
from slopewise.config.training_policy import EvaluationSettings

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("nothing_left", "prometheus_binaries", "state_home")]

FIGURES = {"jobs", "makespan_seconds", "jct_mean_seconds", "time_to_90_mean_seconds", "passes", "resizes_applied"}
JOB_FIGURES = {
    "name", "arrived_seconds", "finished_seconds", "jct_seconds", "time_to_90_seconds", "steps", "loss_first",
    "loss_last", "cpu_seconds", "state", "node",
}  # fmt: skip


THREADS_STEPS = {
    "trees-long": 6, "products-longest": 15, "products-short": 5, "trees-short": 3, "products-long": 10,
    "products-shortest": 4,
}  # fmt: skip
"""At a hundredth of the usual length."""


def start(*arguments: str, **more: object) -> subprocess.Popen[str]:
    return start_python("-m", "slopewise", *arguments, **{"stderr": subprocess.PIPE, **more})


def finish(process: subprocess.Popen[str], seconds: float = 600) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err


@pytest.fixture
def busy_and_idle(tmp_path: Path) -> Path:
    return jobs_file(tmp_path, tiny("busy", 2, busy=True), tiny("idle", 2))


def test_a_demo_of_my_own_commands_prints_one_json_object_and_writes_the_report_also_without_cgroups(
    busy_and_idle: Path,
) -> None:
    report = busy_and_idle.with_name("report.html")
    own = ("--jobs", str(busy_and_idle), "--actuator", "duty-cycle")
    code, out, err = finish(start("demo", "--policy", "marginal", *own, "--report", str(report), "-o", "json"))
    assert code == 0, err
    result = json.loads(out)
    assert list(result["policy_runs"]) == ["fair", "marginal"]
    for run in result["policy_runs"].values():
        assert set(run) >= {*FIGURES, "withheld"}
        assert 0 <= run["other_cpu_cores"] < result["node_cores"]
        assert run["fair_seconds"].keys() == {"busy", "idle"}
        assert run["fair_seconds"]["busy"] > 1.6 / result["node_cores"]  # its CPU-seconds on all cores, at the least
        for job in run["jobs"]:
            assert set(job) >= JOB_FIGURES
            assert job["state"] == "finished"
            assert job["steps"] == 100
            assert job["cpu_seconds"] > (1.6 if job["name"] == "busy" else 0)
            assert job["loss_last"] < 0.5 * job["loss_first"]
    assert result["prometheus_version"][0].isdigit()
    assert "busy</" in report.read_text()
    for text in (result["actuator"], err, report.read_text()):
        assert "stop and continue" in text


@pytest.mark.long
def test_scripts_with_default_threads_run_as_they_are_and_then_with_threads_that_follow(tmp_path: Path) -> None:
    report = tmp_path / "threads.html"
    threads = ("--workload", "threads", "--policy", "fair", "--scale", "0.01")
    code, out, err = finish(start("demo", *threads, "--report", str(report), "-o", "json"))
    assert code == 0, err
    result = json.loads(out)
    assert list(result["policy_runs"]) == ["fair-default-threads", "fair"]
    for run in result["policy_runs"].values():
        steps = {job["name"]: job["steps"] for job in run["jobs"] if job["steps"] is not None}
        assert steps, "no scrape has seen the end of any job, though a busy machine may miss that of some"
        assert steps.items() <= THREADS_STEPS.items()
        assert {job["state"] for job in run["jobs"]} == {"finished"}
        assert run["cpu_seconds_per_1000_steps_mean"] > 1
    assert "CPU-seconds of 1,000 steps" in report.read_text()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two nodes need two cores")
def test_a_placing_policy_says_on_which_of_two_nodes_each_job_starts(tmp_path: Path) -> None:
    # Long enough that both still run when the first pass places them, also on a busy machine.
    jobs = jobs_file(tmp_path, tiny("a", 4), tiny("b", 4))
    code, out, err = finish(start("demo", "--policy", "draps", "--jobs", str(jobs), "-o", "json"))
    assert code == 0, err
    result = json.loads(out)
    fair, placing = result["policy_runs"]["fair"], result["policy_runs"]["draps"]
    assert (result["nodes"], result["workload"]) == (2, "own")
    assert (fair["moves_applied"], placing["moves_applied"]) == (0, 2)
    for run in (fair, placing):
        assert {job["node"] for job in run["jobs"]} == {"node-1", "node-2"}
        assert {job["state"] for job in run["jobs"]} == {"finished"}


@pytest.mark.alone
def test_dqoes_serves_real_models_and_compares_response_times_with_their_objectives() -> None:
    code, out, err = finish(start("demo", "--policy", "dqoes", "--scale", "0.2", "--interval", "4", "-o", "json"))
    assert code == 0, err
    assert "served models with response-time objectives, which fit dqoes" in err
    result = json.loads(out)
    assert result["workload"] == "served"
    for run in result["policy_runs"].values():
        assert run["qoe_satisfied"]["of"] == len(run["jobs"]) == 4 * max(1, len(os.sched_getaffinity(0)) // 2)
        assert run["qoe_satisfied"]["met"] == sum(job["qoe_satisfied"] for job in run["jobs"])
        for job in run["jobs"]:
            assert job["state"] == "finished"
            if job["pace_seconds"] is None:  # nothing answered in its time, which is an outcome
                assert not job["qoe_satisfied"]
            assert job["cpu_seconds"] > 1
    assert result["policy_runs"]["dqoes"]["resizes_applied"] > 0


def test_a_job_that_fails_under_a_policy_of_the_users_is_in_every_round_which_compares_nothing_and_exits_1(
    tmp_path: Path,
) -> None:
    jobs = jobs_file(tmp_path, tiny("bad", 0.4, "crash"), tiny("good", 1))
    mine = a_file(tmp_path, name="newest-first")
    code, out, err = finish(start("demo", "--policy", str(mine), "--jobs", str(jobs), "--repeat", "2", "-o", "json"))
    assert code == 1, err
    result = json.loads(out)
    for of_round in result["rounds"]:
        states = {job["name"]: job["state"] for job in of_round["fair"]["jobs"]}
        assert states == {"bad": "failed", "good": "finished"}
    assert "fair: bad failed with status 1: RuntimeError: the data ran out of the window" in err
    said = result["comparison"]["newest-first"]
    assert (said["rounds"], said["rounds_compared"], said["rounds_not_compared"]) == (2, 0, [1, 2])
    assert {each.split(":")[0] for each in said["not_compared_because"]} == {"Round 1 of 2", "Round 2 of 2"}
    assert set(said["measures"].values()) == {None}
    order = [line for line in err.splitlines() if line.startswith("Round ")]
    assert [line.split()[-1] for line in order] == ["fair", "newest-first", "newest-first", "fair"]


def test_run_local_beside_a_prometheus_that_runs_already_with_json_logs_and_a_policy_of_the_users_that_recommends(
    busy_and_idle: Path, tmp_path: Path, prometheus_binaries: PrometheusBinaries
) -> None:
    mine, policy = a_file(tmp_path, name="newest-first"), tmp_path / "policy.yaml"
    policy.write_text(f"spec: {{mode: Recommend, policy: {{name: {mine}}}, behaviour: {{intervalSeconds: 4}}}}")
    command = ("run", "--local", "--jobs", str(busy_and_idle), "--policy-file", str(policy), "--port", "0")
    with PrometheusServer(prometheus_binaries, tmp_path / "data") as theirs:
        file = tmp_path / "data" / "targets.json"  # what its configuration names
        given = ("--prometheus-url", theirs.url, "--scrape-interval", "1", "--targets-file", str(file))
        code, out, err = finish(start(*command, *given, "--json-logs"))
        assert code == 0, err
        assert theirs.pid is not None
        assert not file.exists()
        with PrometheusReader(theirs.url, {"namespace": "local"}, 1.0, [EvaluationSettings()], 60.0) as reader:
            assert set(reader.last_values("training_loss", time.time(), 60.0)) == {"busy", "idle"}
    lines = [json.loads(line) for line in err.splitlines()]
    passes = [line for line in lines if line["event"] == "pass completed"]
    assert passes
    assert {(line["policy"], line["applied"]) for line in passes} == {("newest-first", 0)}
    assert any(line["event"] == "notice given" and "mode is Recommend" in line["message"] for line in lines)
    ended = lines[-1]
    assert (ended["event"], ended["mode"], ended["resizes_applied"]) == ("run ended", "Recommend", 0)
    for job in ended["jobs"]:
        assert (job["state"], job["exit_status"], job["steps"]) == ("finished", 0, 100)
        assert 0 < job["loss_last"] <= job["loss_first"]  # equal where a busy machine scraped it once
        assert job["cpu_seconds"] > (1.6 if job["name"] == "busy" else 0)
    assert out == ""


def test_run_local_under_nohup_outlives_its_terminal_and_prints_short_lines_and_a_table_at_the_end(
    tmp_path: Path,
) -> None:
    jobs = jobs_file(tmp_path, tiny("bad", 0.4, "crash"), tiny("good", 4))
    process = start(
        "run", "--local", "--jobs", str(jobs), "--port", "0",
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )  # fmt: skip
    assert eventually(tiny_trainings)
    process.send_signal(signal.SIGHUP)
    code, out, err = finish(process)
    assert code == 1, err
    assert [line.split()[:2] for line in out.splitlines()[:3]] == [
        ["JOB", "STATE"],
        ["bad", "failed"],
        ["good", "finished"],
    ]
    assert "bad: ended with status 1: RuntimeError: the data ran out of the window" in out
    assert "Nothing was changed; `mode: Auto` in the policy file has it act." in " ".join(out.split())
    events = [line.split("Z ", 1)[1] for line in err.splitlines() if line[:2] == "20"]
    assert {"bad: job started", "good: job started", "good: job ended, status 0"} <= set(events)
    assert not [line for line in err.splitlines() if "pass " in line]


def test_run_local_on_a_terminal_shows_the_live_table_with_the_names_in_full(tmp_path: Path) -> None:
    name = "a-job-with-a-long-name"[:20]
    jobs = jobs_file(tmp_path, tiny(name, 4))
    code, shown = on_a_terminal(("run", "--local", "--jobs", str(jobs), "--port", "0", "-o", "json"), width=60)
    assert code == 0, shown
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown).replace("\r", "\n")
    table, brace, rest = text.partition("{")
    assert json.loads(brace + rest)["jobs"][0]["state"] == "finished"
    lines = [line.split() for line in table.splitlines()]
    assert ["JOB", "STATE"] in [line[:2] for line in lines]
    assert name in [line[0] for line in lines if line]
    assert "marginal, mode Recommend" in table
    assert "job started" not in table


def test_a_policy_of_the_users_that_fails_ends_the_demo_with_its_sentence(tmp_path: Path) -> None:
    jobs = jobs_file(tmp_path, tiny("a", 2), tiny("b", 2))
    bad = a_file(tmp_path, deciding("return 1 / 0 if snapshot.jobs else fair"), name="raises")
    code, out, err = finish(start("demo", "--jobs", str(jobs), "--policy", str(bad), "-o", "json"))
    assert (code, out) == (1, ""), err
    assert err.splitlines()[-1].startswith(
        "slopewise: policy raises failed: ZeroDivisionError: division by zero (line "
    )


@pytest.mark.parametrize(
    ("after_seconds", "number", "times"),
    [(0.9, signal.SIGTERM, 1), (1.8, signal.SIGINT, 1), (None, signal.SIGINT, 3)],
)
def test_stopped_at_any_moment_it_leaves_nothing_behind_and_further_ctrl_c_do_not_disturb_that(
    tmp_path: Path, after_seconds: float | None, number: signal.Signals, times: int
) -> None:
    process = start("demo", "--jobs", str(jobs_file(tmp_path, tiny("a", 600), tiny("b", 600))))
    if after_seconds is None:  # it trains
        assert eventually(tiny_trainings)
        after_seconds = 1.0
    time.sleep(after_seconds * random.uniform(0.8, 1.2))
    for _ in range(times):
        process.send_signal(number)
        time.sleep(0.05)
    code, out, err = finish(process)
    assert out == ""
    if "CPU is given by" in err:  # before that it is Python itself that is stopped while it imports
        assert code == 128 + number, err
        assert "Traceback" not in err
    else:
        assert code != 0


def test_what_a_killed_controller_left_the_next_start_cleans_up_and_users_commands_go_on_unlimited(
    tmp_path: Path,
) -> None:
    before = leaked_cgroups(), leaked_folders()
    jobs = jobs_file(tmp_path, tiny("a", 600), tiny("b", 600))
    process = start("demo", "--jobs", str(jobs), "--actuator", "duty-cycle")
    assert eventually(lambda: len(tiny_trainings()) >= 2)
    time.sleep(2)
    process.kill()
    finish(process)
    left = marked_processes()
    assert len(tiny_trainings()) == 2
    try:
        short = jobs_file(tmp_path, tiny("c", 0.5))
        code, _, err = finish(start("run", "--local", "--jobs", str(short), "--port", "0"))
        assert code == 0, err
        assert (leaked_cgroups(), leaked_folders()) == before
        survivors = tiny_trainings()
        assert len(survivors) == 2  # they are the user's: released, not ended
        assert all(each.status() != "stopped" for each in survivors)
        assert "Cleaned up after run" in err
    finally:
        for each in left:
            if each.is_running():
                os.kill(each.pid, signal.SIGKILL)
        assert eventually(lambda: not tiny_trainings())
