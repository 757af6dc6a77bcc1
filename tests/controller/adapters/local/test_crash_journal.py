"""The journal: what a run leaves is cleaned up, by its end or by the next start; what is not ours is not touched."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from support.pipes import piped
from support.waiting import eventually, runs

from slopewise.adapters.local.cleanup import RUN_VARIABLE, MadeCgroup, StartedProcess, current_boot_id
from slopewise.adapters.local.crash_journal import (
    Journal,
    clean_up_after_killed,
    default_state_dir,
    journal_path,
)
from slopewise.adapters.local.limiters.identity import identify
from slopewise.errors import SlopewiseError

ASLEEP = "import time; time.sleep(600)"


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def run_id(tmp_path: Path) -> str:
    return f"{os.getpid()}-{tmp_path.name}"


def dead_runs_journal(state_dir: Path, run_id: str, *entries: dict[str, object] | str) -> Path:
    """A journal that no process holds."""
    state_dir.mkdir(parents=True, exist_ok=True)
    path = journal_path(state_dir, run_id)
    path.write_text("".join(f"{e if isinstance(e, str) else json.dumps(e)}\n" for e in entries))
    return path


def process_entry(pid: int, ticks: int, *, ours: bool = True, boot_id: str | None = None) -> dict[str, object]:
    boot_id = boot_id or current_boot_id()
    return {"kind": "process", "name": "job", "pid": pid, "started_ticks": ticks, "boot_id": boot_id, "ours": ours}


def test_an_ordinary_end_with_nothing_left_says_nothing_and_removes_the_journal(state_dir: Path, run_id: str) -> None:
    journal = Journal.open(state_dir, run_id)
    assert journal_path(state_dir, run_id).exists()
    assert journal.close() == []
    assert journal.close() == []
    assert list(state_dir.iterdir()) == []


def test_the_end_of_a_run_cleans_up_the_rest(state_dir: Path, run_id: str, sleeper: subprocess.Popen[bytes]) -> None:
    journal = Journal.open(state_dir, run_id)
    folder = journal.make_folder("prometheus")
    (folder / "wal").mkdir()
    journal.record_process("job", sleeper.pid, ours=True)
    messages = journal.close()
    assert messages == [
        f"Cleaned up after run {run_id}: ended 'job' (process group {sleeper.pid}).",
        f"Cleaned up after run {run_id}: removed the folder {folder}.",
    ]
    assert sleeper.wait() == -signal.SIGKILL
    assert not folder.exists()


def test_a_live_run_is_never_touched(state_dir: Path, run_id: str, sleeper: subprocess.Popen[bytes]) -> None:
    journal = Journal.open(state_dir, run_id)
    folder = journal.make_folder("data")
    journal.record_process("job", sleeper.pid, ours=True)
    assert clean_up_after_killed(state_dir) == []
    assert sleeper.poll() is None
    assert folder.is_dir()
    sleeper.kill()
    journal.close()


@pytest.mark.parametrize(("earlier_ticks", "boot_id"), [(1, None), (0, "another")], ids=["reused pid", "old boot"])
def test_the_process_of_another_start_or_boot_is_not_ended(
    state_dir: Path, run_id: str, sleeper: subprocess.Popen[bytes], earlier_ticks: int, boot_id: str | None
) -> None:
    ticks = identify(sleeper.pid).started_ticks - earlier_ticks
    path = dead_runs_journal(state_dir, run_id, process_entry(sleeper.pid, ticks, boot_id=boot_id))
    assert clean_up_after_killed(state_dir) == []
    assert sleeper.poll() is None
    assert not path.exists()


def test_a_users_process_is_left_running(state_dir: Path, run_id: str, sleeper: subprocess.Popen[bytes]) -> None:
    ticks = identify(sleeper.pid).started_ticks
    sleeper.send_signal(signal.SIGSTOP)
    assert eventually(lambda: psutil.Process(sleeper.pid).status() == psutil.STATUS_STOPPED)
    dead_runs_journal(state_dir, run_id, process_entry(sleeper.pid, ticks, ours=False))
    messages = clean_up_after_killed(state_dir)
    assert messages == [
        f"Cleaned up after run {run_id}: let 'job' (process group {sleeper.pid}) run on without limits."
    ]
    assert eventually(lambda: psutil.Process(sleeper.pid).status() == psutil.STATUS_SLEEPING)


@pytest.mark.parametrize(("mark", "ended"), [("", False), ("the run", True)])
def test_children_of_an_ended_leader_have_its_mark(state_dir: Path, run_id: str, mark: str, ended: bool) -> None:
    code = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-S', '-c', {ASLEEP!r}]).pid)"
    environment = {**os.environ, "SLOPEWISE_RUN_ID": run_id if mark else ""}
    with subprocess.Popen(
        [sys.executable, "-S", "-c", code], env=environment, start_new_session=True, stdout=subprocess.PIPE
    ) as leader:
        ticks = identify(leader.pid).started_ticks
        child = int(piped(leader.stdout).readline())
    try:
        dead_runs_journal(state_dir, run_id, process_entry(leader.pid, ticks))
        clean_up_after_killed(state_dir)
        # A process is there for a moment after the signal that ends it.
        assert eventually(lambda: not runs(child), 30.0 if ended else 0.0) is ended
    finally:
        if runs(child):
            os.kill(child, signal.SIGKILL)


def test_a_process_that_has_just_started_carries_its_mark(run_id: str) -> None:
    """The kernel shows the environment of a program a moment after `Popen` has returned."""
    environment = {**os.environ, RUN_VARIABLE: run_id}
    for _ in range(20):
        with subprocess.Popen([sys.executable, "-S", "-c", ASLEEP], env=environment, start_new_session=True) as leader:
            try:
                entry = StartedProcess(
                    name="job", pid=leader.pid, started_ticks=0, boot_id=current_boot_id(), ours=True
                )
                assert entry.members(run_id) == [leader.pid]
            finally:
                leader.kill()


@pytest.mark.parametrize(
    ("kind", "name"), [("folder", "precious"), ("folder", "slopewise-of-another-run"), ("cgroup", "slopewise-other")]
)
def test_what_is_of_another_run_is_kept(state_dir: Path, run_id: str, tmp_path: Path, kind: str, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "cgroup.procs").touch()
    dead_runs_journal(state_dir, run_id, {"kind": kind, "path": str(folder)})
    assert clean_up_after_killed(state_dir) == []
    assert folder.is_dir()


def test_a_link_in_the_place_of_a_folder_is_not_followed(state_dir: Path, run_id: str, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    link = tmp_path / f"slopewise-data-{run_id}"
    link.symlink_to(precious)
    dead_runs_journal(state_dir, run_id, {"kind": "folder", "path": str(link)})
    assert clean_up_after_killed(state_dir) == []
    assert precious.is_dir()


@pytest.mark.parametrize("broken", ['{"kind": "folder", "pa', '{"kind": "novelty"}', "\x00\x00"])
def test_an_unreadable_line_stops_nothing(state_dir: Path, run_id: str, tmp_path: Path, broken: str) -> None:
    folder = tmp_path / f"slopewise-data-{run_id}"
    folder.mkdir()
    dead_runs_journal(state_dir, run_id, {"kind": "folder", "path": str(folder)}, broken)
    assert clean_up_after_killed(state_dir) == [f"Cleaned up after run {run_id}: removed the folder {folder}."]
    assert clean_up_after_killed(state_dir) == []


def test_what_cannot_be_cleaned_up_is_reported_and_tried_again(state_dir: Path, run_id: str, tmp_path: Path) -> None:
    cgroup = tmp_path / f"slopewise-{run_id}"  # its removal fails: plain files cannot be moved out of it
    (cgroup / "1-job").mkdir(parents=True)
    (cgroup / "cgroup.procs").touch()
    path = dead_runs_journal(state_dir, run_id, {"kind": "cgroup", "path": str(cgroup)})
    for _ in range(2):
        [message] = clean_up_after_killed(state_dir)
        assert f"the cgroup {cgroup} cannot be cleaned up" in message
        assert path.exists()


def test_a_state_folder_that_cannot_be_written_is_reported_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SlopewiseError, match="the journal of this run cannot be written"):
        Journal.open(tmp_path / "file", "run")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk that is always full")
def test_a_full_disk_is_reported_before_anything_is_made(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "run.journal", os.open("/dev/full", os.O_WRONLY))
    with pytest.raises(SlopewiseError, match="No space left on device"):
        journal.make_folder("data")
    journal.close()


def test_a_line_cut_by_a_full_disk_is_taken_back_before_the_next(state_dir: Path, run_id: str, tmp_path: Path) -> None:
    journal = Journal.open(state_dir, run_id)
    folder = journal.make_folder("data")
    before = journal_path(state_dir, run_id).read_text()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, limits[1]))  # ten bytes more, then it is full
    try:
        with pytest.raises(SlopewiseError, match="the disk is full"):
            journal.record(MadeCgroup(path=tmp_path / "slopewise-none"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert journal_path(state_dir, run_id).read_text() == before
    assert journal.close() == [f"Cleaned up after run {run_id}: removed the folder {folder}."]


def test_a_journal_of_another_machine_in_a_shared_home_is_left(state_dir: Path, run_id: str, tmp_path: Path) -> None:
    folder = tmp_path / f"slopewise-data-{run_id}"
    folder.mkdir()
    ours = dead_runs_journal(state_dir, run_id, {"kind": "folder", "path": str(folder)})
    theirs = ours.rename(state_dir / f"{run_id}@0123456789ab.journal")
    assert clean_up_after_killed(state_dir) == []
    assert theirs.exists()
    assert folder.is_dir()


@pytest.mark.parametrize(("age_seconds", "left"), [(3600, False), (0, True)])
def test_an_old_journal_without_a_run_is_removed(state_dir: Path, run_id: str, age_seconds: int, left: bool) -> None:
    state_dir.mkdir()
    unseen = journal_path(state_dir, run_id).with_suffix(".new")
    unseen.touch()
    os.utime(unseen, (time.time() - age_seconds,) * 2)
    assert clean_up_after_killed(state_dir) == []
    assert unseen.exists() is left


def test_the_state_folder_is_the_users_own_and_nobody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_state_dir() == tmp_path / "xdg" / "slopewise"
    (tmp_path / "xdg" / "slopewise").rename(tmp_path / "elsewhere")
    (tmp_path / "xdg" / "slopewise").symlink_to(tmp_path / "elsewhere")
    assert default_state_dir() == tmp_path / "home" / ".local" / "state" / "slopewise"
    monkeypatch.delenv("XDG_STATE_HOME")
    assert default_state_dir() == tmp_path / "home" / ".local" / "state" / "slopewise"
