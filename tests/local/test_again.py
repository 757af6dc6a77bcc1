"""`slopewise run --local` after its controller was killed: what still runs is taken over, and nothing starts twice."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from local.conftest import Running, jobs_file, start_python, tiny, tiny_trainings
from support.waiting import eventually, runs

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("nothing_left", "prometheus_binaries", "state_home")]

ENDS = 128 + signal.SIGTERM


@contextmanager
def controller(jobs: Path, *options: str) -> Iterator[Running]:
    log = jobs.with_name(f"{len(list(jobs.parent.glob('*.err')))}.err")
    with log.open("w") as err:
        command = ("-m", "slopewise", "run", "--local", "--jobs", str(jobs), "--port", "0", *options)
        process = start_python(*command, stderr=err)
    try:
        yield Running(process, log)
    finally:
        if process.poll() is None:
            process.terminate()
            process.communicate(timeout=180)


def trainings(seconds: str) -> list[psutil.Process]:
    """The tiny trainings of so many seconds: their second argument."""
    return [each for each in tiny_trainings() if each.cmdline()[2] == seconds]


@pytest.mark.parametrize("actuator", ["auto", "duty-cycle"])
def test_a_killed_controllers_jobs_are_taken_over_by_the_same_command_and_none_runs_twice(
    tmp_path: Path, actuator: str
) -> None:
    jobs = jobs_file(tmp_path, tiny("runs", 601), tiny("done", 0.3), tiny("gone", 602), tiny("later", 603, arrive=12))
    with controller(jobs, "--actuator", actuator) as first:
        assert eventually(lambda: len(trainings("601")) == 1 and len(trainings("602")) == 1)
        assert eventually(lambda: "done: job ended" in first.said)
        first.kill()
    (running,), (gone,) = trainings("601"), trainings("602")
    gone.kill()
    with controller(jobs, "--actuator", actuator, "-o", "json") as second:
        # On a busy machine the first controller has started the last job, too, before it was killed.
        assert eventually(lambda: "runs: job taken over" in second.said and len(trainings("603")) == 1)
        assert f"runs (process {running.pid}, " in second.said
        assert [each.pid for each in trainings("601")] == [running.pid]
        assert trainings("602") == []
        if actuator == "auto" and os.geteuid() == 0:
            assert f"-{second.process.pid}/" in Path(f"/proc/{running.pid}/cgroup").read_text()
        out = second.stop()
    assert second.process.returncode == ENDS, second.said
    assert not runs(running.pid)
    found = {job["name"]: job for job in json.loads(out)["jobs"]}
    assert {name: job["state"] for name, job in found.items()} == {
        "runs": "stopped",
        "done": "finished",
        "gone": "ended",
        "later": "stopped",
    }
    assert found["runs"]["jct_seconds"] > 12
    assert found["runs"]["cpu_seconds"] > 0
    assert "how it ended is not known" in found["gone"]["note"]
