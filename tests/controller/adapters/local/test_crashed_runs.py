"""What is made of a killed run's jobs: what runs is gone on with, what is over stays over, the rest is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.waiting import eventually

from slopewise.adapters.local import crashed_runs
from slopewise.adapters.local.cleanup import (
    EndedJob,
    MadeCgroup,
    RunOf,
    StartedCommand,
    StartedProcess,
    current_boot_id,
)
from slopewise.adapters.local.crash_journal import (
    CRASHED_SUFFIX,
    MEMORY_SUFFIX,
    Journal,
    clean_up_after_killed,
    journal_path,
)
from slopewise.adapters.local.crashed_runs import (
    RETENTION_SECONDS,
    check_goes_on,
    check_not_running,
    descriptions,
    earlier_run,
    prune_logs,
    refuse_running,
)
from slopewise.adapters.local.job_processes import LAST_LOSSES
from slopewise.adapters.local.launcher import AdoptedProcess, terminate_all
from slopewise.adapters.local.limiters.identity import identify
from slopewise.config.jobs_file import JobSpec, identity_of
from slopewise.errors import SlopewiseError
from slopewise.local.run import LocalRunOptions, earlier_jobs

JOBS = "/home/me/jobs.yaml"
ASLEEP = "import time; time.sleep(600)"
DEAD = 2**22 - 7
"""No process has this number: it is the largest that there can be, nearly."""


def command(*arguments: str, port: int = 20_001) -> StartedCommand:
    return StartedCommand(
        arguments=arguments or ("python", "a.py"),
        working_directory=Path("/home/me"),
        log_path=Path("/logs/a.log"),
        port=port,
        arrived_at_seconds=10.0,
        started_at_seconds=11.0,
    )


def started(name: str, pid: int = DEAD, *, boot: str | None = None, **more: object) -> StartedProcess:
    ticks = identify(pid).started_ticks if pid != DEAD else 1
    return StartedProcess(
        name=name,
        pid=pid,
        started_ticks=ticks,
        boot_id=boot or current_boot_id(),
        ours=False,
        **{"command": command(), **more},
    )


def ended(name: str, status: int | None = 0) -> EndedJob:
    boot_id = current_boot_id()
    return EndedJob(
        name=name, boot_id=boot_id, status=status, at_seconds=20.0, arrived_at_seconds=10.0, cpu_seconds=3.0
    )


def killed(
    state: Path,
    run_id: str,
    *entries: StartedProcess | EndedJob | MadeCgroup,
    jobs: str = JOBS,
    memory: Path | None = None,
) -> Path:
    """The journal of a killed run, cleaned up after as the next start does."""
    state.mkdir(exist_ok=True)
    path = journal_path(state, run_id)
    run = RunOf(jobs=jobs, started_at_seconds=5.0, memory=memory)
    path.write_text("".join(entry.model_dump_json() + "\n" for entry in (run, *entries)))
    clean_up_after_killed(state)
    return path.with_suffix(CRASHED_SUFFIX)


def a_job(name: str, *arguments: str, port: int | None = None) -> JobSpec:
    return JobSpec(name, list(arguments or ("python", "a.py")), 0.0, port=port, working_directory=Path("/home/me"))


def test_what_runs_is_found_again_and_what_is_over_is_known(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    before = (started("a"), ended("a"))  # of a job that ran several times the last counts
    entries = (*before, started("a", sleeper.pid), started("b"), ended("b"), started("c"), ended("c", 3), started("d"))
    killed(tmp_path, "run-1", *entries)
    assert clean_up_after_killed(tmp_path) == [], "it is reported once, and not with every later start"
    earlier = earlier_run(tmp_path, JOBS)
    assert {name: job.runs for name, job in earlier.jobs.items()} == {"a": True, "b": False, "c": False, "d": False}
    assert earlier.started_at_seconds == 5.0
    assert descriptions(earlier, [a_job(name) for name in "abcde"]) == [
        f"a (process {sleeper.pid}, output /logs/a.log) is taken over",
        "b had finished and is not started again",
        "c had ended with status 3 and is not started again",
        "d ended while no controller ran and is not started again",
    ]
    check_goes_on(earlier, [a_job(name) for name in "abcde"], where="jobs.yaml")
    assert earlier_run(tmp_path, "/home/me/other.yaml").jobs == {}


def test_what_runs_is_found_again_where_its_cgroup_could_not_be_removed(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(entry: MadeCgroup, run_id: str) -> None:
        raise OSError("busy")

    monkeypatch.setattr(MadeCgroup, "clean_up", busy)
    killed(tmp_path, "run-1", MadeCgroup(path=tmp_path / "slopewise-run-1"), started("a", sleeper.pid))
    earlier = earlier_run(tmp_path, JOBS)
    assert earlier.jobs["a"].runs
    assert journal_path(tmp_path, "run-1").exists()  # for the next start to try again


def test_once_settled_the_next_run_remembers_it(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    path = killed(tmp_path, "run-1", started("a", sleeper.pid), started("b"), ended("b"))
    journal = Journal.open(tmp_path, "run-2")
    journal.record(RunOf(jobs=JOBS, started_at_seconds=5.0))
    earlier_run(tmp_path, JOBS).settle(journal)
    assert not path.exists()
    entries = journal_path(tmp_path, "run-2").read_bytes()
    journal.close()
    journal_path(tmp_path, "run-3").write_bytes(entries)
    assert clean_up_after_killed(tmp_path) == [
        f"Cleaned up after run run-3: let 'a' (process group {sleeper.pid}) run on without limits."
    ]
    again = earlier_run(tmp_path, JOBS)
    assert (again.jobs["a"].runs, again.jobs["a"].mark, again.jobs["b"].ended) == (True, "run-1", ended("b"))


def test_the_memory_of_passes_is_kept_beside_the_journal(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    (tmp_path / "memory.json").write_text("{}")
    path = killed(tmp_path / "state", "run-1", started("a", sleeper.pid), memory=tmp_path / "memory.json")
    assert earlier_run(tmp_path / "state", JOBS).memory == path.with_suffix(MEMORY_SUFFIX)
    earlier_run(tmp_path / "state", JOBS).forget()
    assert list((tmp_path / "state").iterdir()) == []


@pytest.mark.parametrize(
    "spec",
    [
        a_job("a", "python", "b.py"),
        JobSpec("a", ["python", "a.py"], 0.0, working_directory=Path("/srv")),
        a_job("a", port=9500),
    ],
)
def test_a_changed_job_is_refused(tmp_path: Path, sleeper: subprocess.Popen[bytes], spec: JobSpec) -> None:
    killed(tmp_path, "run-1", started("a", sleeper.pid))
    with pytest.raises(SlopewiseError) as refused:
        check_goes_on(earlier_run(tmp_path, JOBS), [spec], where="jobs.yaml")
    assert str(refused.value) == (
        f"jobs.yaml: a still runs from before its controller was killed (process {sleeper.pid}), with another command, "
        f"folder or port; end it (kill {sleeper.pid}), or start it a second time with --again."
    )


def test_when_all_are_over_nothing_is_started_again_unasked(tmp_path: Path) -> None:
    killed(tmp_path, "run-1", started("a"), ended("a"), started("b"))
    earlier = earlier_run(tmp_path, JOBS)
    with pytest.raises(
        SlopewiseError, match=r"all of its jobs are over \(a had finished; b ended while no controller ran"
    ):
        check_goes_on(earlier, [a_job("a"), a_job("b")], where="jobs.yaml")
    check_goes_on(earlier, [a_job("a"), a_job("b"), a_job("new")], where="jobs.yaml")
    earlier.forget()
    assert earlier_run(tmp_path, JOBS).jobs == {}


def test_a_comparison_cannot_go_on_with_a_job_and_says_so(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    path = killed(tmp_path, "run-1", started("a", sleeper.pid), started("b"))
    with pytest.raises(SlopewiseError, match=rf"killed: a; end them first \(kill {sleeper.pid}\)"):
        refuse_running(tmp_path, JOBS, [a_job("a"), a_job("b")], where="jobs.yaml")
    assert path.exists()
    sleeper.kill()
    sleeper.wait()
    refuse_running(tmp_path, JOBS, [a_job("a"), a_job("b")], where="jobs.yaml")
    assert not path.exists()


def test_jobs_that_a_controller_has_now_are_refused(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, "20260101-000000-4711")
    check_not_running(tmp_path, JOBS, where="jobs.yaml")
    journal.record(RunOf(jobs=JOBS, started_at_seconds=5.0))
    with pytest.raises(
        SlopewiseError, match=r"run 20260101-000000-4711 has these jobs now; stop it first \(kill 4711\)"
    ):
        check_not_running(tmp_path, JOBS, where="jobs.yaml")
    check_not_running(tmp_path, "/home/me/other.yaml", where="other.yaml")
    journal.close()
    check_not_running(tmp_path, JOBS, where="jobs.yaml")


def test_an_old_run_is_forgotten_unless_something_runs(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    old, long = killed(tmp_path, "run-1", started("a")), killed(tmp_path, "run-2", started("b", sleeper.pid), jobs="b")
    week_ago = time.time() - RETENTION_SECONDS - 60
    for path in (old, long):
        os.utime(path, (week_ago, week_ago))
    assert earlier_run(tmp_path, JOBS).jobs == {}
    assert (old.exists(), long.exists()) == (False, True)
    before_a_restart = killed(tmp_path, "run-3", started("a", boot="another boot"), ended("a"), jobs="c")
    assert not before_a_restart.exists(), "after a restart of the machine everything starts again"
    assert earlier_run(tmp_path, "c").jobs == {}


# --- a process that is not ours --------------------------------------------------------------------------------


def test_an_adopted_process_is_ended_with_its_group_and_its_status_is_never_known(tmp_path: Path) -> None:
    child = f"subprocess.Popen([sys.executable, '-S', '-c', {ASLEEP!r}])"
    code = f"import subprocess, sys, time; {child}; time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=True)
    adopted = AdoptedProcess(started("a", process.pid), "run-1", tmp_path / "a.log")
    assert eventually(lambda: len(adopted.running_members({})) == 2)
    assert (adopted.has_ended(), adopted.poll(), adopted.is_over()) == (False, None, False)
    terminate_all([adopted], 5.0)
    process.wait()
    assert (adopted.has_ended(), adopted.poll(), adopted.is_over(), adopted.is_collected) == (True, None, True, True)


def test_an_adopted_process_is_never_mistaken_for_a_stranger(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    stranger = started("a", sleeper.pid).model_copy(update={"started_ticks": 1})
    adopted = AdoptedProcess(stranger, "run-1", tmp_path / "a.log")
    assert adopted.has_ended()
    adopted.ask_to_end()
    terminate_all([adopted], 5.0)
    assert sleeper.poll() is None


@pytest.mark.parametrize("again", [False, True])
def test_again_starts_every_job_and_forgets_old(tmp_path: Path, sleeper: subprocess.Popen[bytes], again: bool) -> None:
    options = LocalRunOptions(Path("/home/me/jobs.yaml"), None, "auto", 0, False, again=again)
    path = killed(tmp_path, "run-1", started("a", sleeper.pid))
    reported: list[str] = []
    identity = identity_of(options.jobs_file, [a_job("a")])
    earlier = earlier_jobs(tmp_path, identity, options, [a_job("a")], reported.append)
    assert (set(earlier.jobs), path.exists(), len(reported)) == (set() if again else {"a"}, not again, 1)
    assert f"a (process {sleeper.pid}" in reported[0]
    assert ("runs on beside it" if again else "is taken over") in reported[0]


class TestLogs:
    """Those of jobs that have ended are bounded; those that may be written to are left alone."""

    def a_log(self, state_dir: Path, run: str, name: str, age_seconds: float) -> Path:
        path = state_dir / "logs" / run / "local" / f"{name}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("epoch 1")
        os.utime(path, (1e9 - age_seconds, 1e9 - age_seconds))
        return path

    def test_the_oldest_go_with_their_empty_folders(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(crashed_runs, "MAX_LOGS", 2)
        old, first = self.a_log(tmp_path, "old", "a", 30), self.a_log(tmp_path, "own", "a", 20)
        old.with_suffix(LAST_LOSSES).write_text("train 0.1")  # no session ran to read it
        kept = [self.a_log(tmp_path, "own", "b", 10), self.a_log(tmp_path, "other", "c", 5)]
        prune_logs(tmp_path, "own", [])
        assert ([path.exists() for path in (old, first, *kept)]) == [False, False, True, True]
        assert sorted(each.name for each in (tmp_path / "logs").iterdir()) == ["other", "own"]

    @pytest.mark.parametrize("suffix", ["@another-machine.journal", "@0123456789ab.crashed"])
    def test_none_in_use_or_a_journal_goes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
        monkeypatch.setattr(crashed_runs, "MAX_LOGS", 1)
        used, others = self.a_log(tmp_path, "own", "a", 30), self.a_log(tmp_path, "20260514-1", "a", 20)
        (tmp_path / f"20260514-1{suffix}").touch()
        gone, kept = self.a_log(tmp_path, "own", "b", 10), self.a_log(tmp_path, "own", "c", 5)
        prune_logs(tmp_path, "own", [used])
        assert [path.exists() for path in (used, others, gone, kept)] == [True, True, False, True]

    def test_none_that_another_session_took_over_goes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(crashed_runs, "MAX_LOGS", 1)
        taken, gone, kept = (self.a_log(tmp_path, "before", name, age) for name, age in (("a", 9), ("b", 8), ("c", 7)))
        entry = started("a", command=command().model_copy(update={"log_path": taken}))
        (tmp_path / "up@another-machine.journal").write_text(entry.model_dump_json())
        prune_logs(tmp_path, "own", [])
        assert [path.exists() for path in (taken, gone, kept)] == [True, False, True]

    def test_a_folder_removed_by_another_session_is_fine(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        logs, stat = [self.a_log(tmp_path, run, "a", 30) for run in ("one", "two")], Path.stat

        def removes_the_other(path: Path, **more: bool) -> os.stat_result:
            for other in logs if path in logs else ():
                if other != path:
                    shutil.rmtree(other.parents[1])
            return stat(path, **more)

        monkeypatch.setattr(Path, "stat", removes_the_other)
        prune_logs(tmp_path, "own", [])
        monkeypatch.undo()
        assert sum(path.exists() for path in logs) == 1
