"""`slopewise up` and its commands: jobs are taken at any time, none is forgotten, and none runs twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from local.conftest import start_python, tiny, tiny_trainings
from support.command_line import slopewise
from support.waiting import eventually, runs

from slopewise.adapters.local.limiters.cgroup_files import own_cgroups
from slopewise.adapters.local.prometheus_server import PrometheusBinaries

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("nothing_left", "prometheus_binaries", "state_home")]

FOREVER = "600.0"
FOREVER_RUNS = tiny("forever", float(FOREVER)).command
POLICY = {
    "apiVersion": "slopewise.dev/v1alpha1",
    "kind": "TrainingPolicy",
    "metadata": {"name": "training"},
    "spec": {"mode": "Recommend", "behaviour": {"intervalSeconds": 4}},
}


@dataclass
class Up:
    """One `slopewise up`, and what it has said so far."""

    process: subprocess.Popen[str]
    log: Path

    @property
    def said(self) -> str:
        return self.log.read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=60)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=180)
        return self.process.returncode


@contextmanager
def up(folder: Path, *options: str) -> Iterator[Up]:
    """A session that answers; at its end every job is cancelled and it is stopped."""
    log = folder / f"{len(list(folder.glob('*.err')))}.err"
    with log.open("w") as err:
        process = start_python("-m", "slopewise", "up", "--port", "0", *options, stderr=err)
    session = Up(process, log)
    try:
        assert eventually(lambda: slopewise("jobs").returncode == 0), session.said
        yield session
    finally:
        if process.poll() is None:
            slopewise("cancel", "--all")
            eventually(lambda: not [each for each in jobs().values() if each["finished_at_seconds"] is None])
            session.stop()


def jobs() -> dict[str, dict[str, Any]]:
    listed = slopewise("jobs", "-o", "json")
    return {job["name"]: job for job in json.loads(listed.stdout)}


def states() -> dict[str, str]:
    return {name: job["state"] for name, job in jobs().items()}


def submit(*options: str, command: list[str]) -> list[str]:
    done = slopewise("submit", "-o", "json", *options, "--", *command)
    assert done.returncode == 0, done.stderr
    names: list[str] = json.loads(done.stdout)["submitted"]
    return names


def come_to(wanted: dict[str, str]) -> None:
    assert eventually(lambda: wanted.items() <= states().items()), states()


def trainings() -> list[psutil.Process]:
    """Those that run until they are ended."""
    return [each for each in tiny_trainings() if each.cmdline()[2] == FOREVER]


def test_jobs_are_taken_at_any_time_and_run_in_their_order_with_their_terminals_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OF_UP", "what the session alone has")
    with up(tmp_path, "--max-running", "1") as session:
        monkeypatch.setenv("GREETING", "hello")
        monkeypatch.delenv("OF_UP")
        assert submit("--name", "first", command=["sh", "-c", "echo $GREETING$OF_UP from $PWD"]) == ["first"]
        assert submit("--after", "first", "--name", "second", command=tiny("a", 1).command) == ["second"]
        assert submit(command=FOREVER_RUNS) == ["tiny-training"]
        assert submit(command=FOREVER_RUNS) == ["tiny-training-2"]
        come_to({"first": "finished", "second": "finished"})
        assert eventually(lambda: len(trainings()) == 1)
        assert jobs()["tiny-training-2"]["reason"] == "waits for a place: 1 of 1 run"
        assert slopewise("logs", "first").stdout == f"hello from {tmp_path}\n"

        again = slopewise("submit", "--name", "tiny-training", "--", "true")
        assert (again.returncode, again.stdout) == (2, "")
        assert "submit: tiny-training is running already; cancel it, or give another name." in again.stderr
        missing = slopewise("submit", "--", "no-such-program")
        assert (missing.returncode, "no-such-program: its command" in missing.stderr) == (2, True)

        assert slopewise("cancel", "tiny-training", "tiny-training-2").stdout.startswith("cancelled: tiny-training, ")
        come_to({"tiny-training": "cancelled", "tiny-training-2": "cancelled"})
        assert eventually(lambda: not trainings())
        assert session.process.poll() is None


def test_after_a_kill_nothing_is_forgotten_and_nothing_runs_twice(tmp_path: Path) -> None:
    until_told = ["sh", "-c", f"while [ ! -e {tmp_path}/told ]; do sleep 0.2; done"]
    with up(tmp_path, "--max-running", "3") as first:
        submit("--name", "runs", command=FOREVER_RUNS)
        submit("--name", "done", command=["true"])
        submit("--name", "later", "--after", "runs", command=["true"])
        submit("--name", "told", command=until_told)
        submit("--name", "next", "--after", "told", command=["true"])
        come_to({"done": "finished"})
        assert eventually(lambda: len(trainings()) == 1)
        first.kill()
    (running,) = trainings()
    lost = slopewise("jobs")
    assert (lost.returncode, "no session runs here; start one with `slopewise up`." in lost.stderr) == (4, True)
    with up(tmp_path, "--max-running", "3") as second:
        come_to({"runs": "training", "done": "finished", "later": "waiting"})
        assert [each.pid for each in trainings()] == [running.pid]
        assert "runs: job taken over" in second.said
        assert "done: job started" not in second.said
        assert submit("--name", "done", command=["true"]) == ["done"]  # a name whose job has ended is free
        come_to({"done": "finished"})
        (tmp_path / "told").touch()
        come_to({"told": "ended", "next": "finished"})  # how it ended is not known, and what follows is started


def test_a_stopped_session_leaves_its_jobs_to_the_next_one_and_the_mode_too(tmp_path: Path) -> None:
    with up(tmp_path) as first:
        submit("--name", "runs", command=FOREVER_RUNS)
        assert slopewise("mode", "auto").stdout == "mode is Auto\n"
        assert "policy changed, mode Auto\n" in first.said
        assert eventually(lambda: len(trainings()) == 1)
        assert first.stop() == 128 + signal.SIGTERM
    (running,) = trainings()
    with up(tmp_path) as second:
        assert "; mode is Auto." in second.said
        come_to({"runs": "training"})
        assert [each.pid for each in trainings()] == [running.pid]
        assert slopewise("mode", "nonsense").returncode == 2
        assert "mode Auto" in slopewise("status", "--local").stdout
    assert not runs(running.pid)


def test_a_job_is_started_again_after_a_failure_as_often_as_its_owner_says(tmp_path: Path) -> None:
    with up(tmp_path):
        submit("--name", "bad", "--restart", "1", command=["sh", "-c", "echo try; exit 3"])
        submit("--name", "next", "--after", "bad", command=["true"])
        come_to({"bad": "failed", "next": "failed"})
        found = jobs()
        assert (found["bad"]["attempt"], found["bad"]["exit_status"]) == (1, 3)
        assert found["next"]["reason"] == "not started: bad, after which it comes, has failed"
        assert slopewise("logs", "bad").stdout == "try\ntry\n"


def test_a_changed_policy_file_is_followed_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump(POLICY))
    with up(tmp_path, "--policy-file", str(path)) as session:
        path.write_text(yaml.safe_dump({**POLICY, "spec": {**POLICY["spec"], "mode": "Auto"}}))  # type: ignore[dict-item]
        assert eventually(lambda: "mode Auto" in slopewise("status", "--local").stdout), session.said
        path.write_text("spec: {mode: Autox}")
        assert eventually(lambda: "Nothing is changed until the file can be used." in session.said)
        path.write_text(yaml.safe_dump({**POLICY, "spec": {**POLICY["spec"], "behaviour": {"intervalSeconds": 1}}}))  # type: ignore[dict-item]
        assert eventually(lambda: session.said.count("Nothing is changed until the file can be used.") == 2)
        assert "mode Auto" in slopewise("status", "--local").stdout


def test_a_policy_file_that_changes_while_the_session_starts_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prometheus_binaries: PrometheusBinaries
) -> None:
    """The first run brings a Prometheus, which takes a minute."""
    path, program = tmp_path / "policy.yaml", tmp_path / "bin" / "prometheus"
    path.write_text(yaml.safe_dump(POLICY))
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nsed -i s/Recommend/Auto/ {path}\nexec {prometheus_binaries.prometheus} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    with up(tmp_path, "--policy-file", str(path)) as session:
        assert "; mode is Recommend." in session.said
        assert eventually(lambda: "mode Auto" in slopewise("status", "--local").stdout), session.said


def test_a_metric_that_a_job_names_itself_is_read_by_the_next_session_too_and_of_no_other_job_of_its_name(
    tmp_path: Path,
) -> None:
    policy, path = tmp_path / "policy.yaml", tmp_path / "jobs.yaml"
    policy.write_text(yaml.safe_dump(POLICY))
    named = {"name": "own", "command": tiny("own", 600, "my-metric").command, "evaluation": {"metric": "my_val_loss"}}
    path.write_text(yaml.safe_dump([{**named, "port": 20_988}]))
    with up(tmp_path, "--policy-file", str(policy)) as first:
        assert slopewise("submit", str(path)).returncode == 0
        assert eventually(lambda: jobs()["own"]["loss_last"] is not None), first.said
        first.kill()
    with up(tmp_path, "--policy-file", str(policy)) as second:
        assert eventually(lambda: jobs()["own"]["loss_last"] is not None), second.said
        slopewise("cancel", "own")
        come_to({"own": "cancelled"})
        submit("--name", "own", command=tiny("own", 600, light=True).command)
        assert eventually(lambda: jobs()["own"]["loss_last"] is not None), second.said


def test_the_losses_of_a_job_are_not_those_of_the_one_before_of_its_name(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(yaml.safe_dump(POLICY))
    with up(tmp_path, "--policy-file", str(policy)):
        submit("--name", "a", command=tiny("a", 6, light=True).command)
        come_to({"a": "finished"})
        assert jobs()["a"]["loss_last"] < 0.1
        submit("--name", "a", command=tiny("a", float(FOREVER), light=True).command)
        assert eventually(lambda: jobs()["a"]["loss_last"] is not None)
        assert jobs()["a"]["loss_first"] > 0.9


def test_the_jobs_of_a_file_are_waited_for_and_ctrl_c_ends_the_waiting_alone(tmp_path: Path) -> None:
    path = tmp_path / "jobs.yaml"
    entries = [{"name": "sweep", "command": "sh -c 'exit {status}'", "matrix": {"status": [0, 1]}}]
    path.write_text(yaml.safe_dump(entries))
    with up(tmp_path) as session:
        waited = slopewise("submit", str(path), "--wait", "-o", "json")
        assert waited.returncode == 1, waited.stderr
        assert {job["name"]: job["state"] for job in json.loads(waited.stdout)} == {
            "sweep-1": "finished",
            "sweep-2": "failed",
        }
        command = ["submit", "--name", "long", "--wait", "--", *FOREVER_RUNS]
        waiting = subprocess.Popen([sys.executable, "-m", "slopewise", *command], stderr=subprocess.PIPE, text=True)
        come_to({"long": "training"})
        waiting.send_signal(signal.SIGINT)
        assert "still there: long" in waiting.communicate(timeout=180)[1]
        assert waiting.returncode == 128 + signal.SIGINT
        assert (len(trainings()), session.process.poll()) == (1, None)


def test_a_second_one_of_the_same_user_says_so_in_one_sentence(tmp_path: Path) -> None:
    with up(tmp_path) as session:
        second = subprocess.run(
            [sys.executable, "-m", "slopewise", "up", "--port", "0"], capture_output=True, text=True, timeout=180,
            check=False, env=dict(os.environ),
        )  # fmt: skip
        sentence = f"slopewise up (process {session.process.pid}) has the jobs of this user already; "
        assert (second.returncode, second.stderr) == (1, f"slopewise: {sentence}`slopewise jobs` lists them.\n")


@pytest.mark.cgroups
def test_a_running_process_is_attached_found_again_after_a_kill_and_put_back(tmp_path: Path) -> None:
    if not os.access(own_cgroups().get("cpu", "/nonexistent"), os.W_OK):
        pytest.skip("needs the right to create cgroups")
    process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], start_new_session=True)
    try:
        before = cgroup_of(process)
        with up(tmp_path, "--actuator", "cgroup") as first:
            refused = slopewise("attach", str(first.process.pid))
            assert (refused.returncode, "is this session, or has started it" in refused.stderr) == (2, True)
            done = slopewise("attach", str(process.pid), "--name", "mine")
            assert done.stdout == "attached: mine; it serves no metrics, and keeps its share\n", done.stderr
            assert cgroup_of(process).name == "1-mine"
            assert slopewise("logs", "mine").stdout.startswith("mine was attached and has no log here")
            assert eventually(lambda: "it was attached and serves no metrics" in jobs()["mine"]["reason"])
            first.kill()
        with up(tmp_path, "--actuator", "cgroup") as second:
            found = jobs()["mine"]
            assert (found["pid"], found["finished_at_seconds"]) == (process.pid, None)
            assert cgroup_of(process).name == "1-mine"
            second.stop()
            assert cgroup_of(process) == before
        with up(tmp_path, "--actuator", "cgroup"):
            assert cgroup_of(process).name == "1-mine"
            assert slopewise("cancel", "mine").stdout == "cancelled: mine\n"
            assert cgroup_of(process) == before
            assert (states()["mine"], process.poll()) == ("cancelled", None)
    finally:
        process.kill()
        process.wait()


def cgroup_of(process: subprocess.Popen[bytes]) -> Path:
    return own_cgroups(process=Path(f"/proc/{process.pid}")).get("cpu", Path())
