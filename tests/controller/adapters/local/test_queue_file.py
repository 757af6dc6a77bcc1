"""The stored queue: what is remembered of jobs, and for how long."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from slopewise.adapters.local.job_record import CANCELLED, JobRecord
from slopewise.adapters.local.queue_file import QueueFile, StoredEnd, StoredJob
from slopewise.config.jobs_file import JobSpec
from slopewise.errors import SlopewiseError

WAITING = StoredJob(1, "a", {"name": "a", "command": ["true"]}, "/home/me", {"TOKEN": "secret"}, 100.0)


def test_what_was_saved_is_loaded_in_its_order_and_no_other_user_can_read_it(tmp_path: Path) -> None:
    file = QueueFile(tmp_path / "queue.json")
    jobs = {name: replace(WAITING, name=name, number=number) for number, name in enumerate(("b", "a"))}
    file.save(jobs.values())
    assert list(QueueFile(tmp_path / "queue.json").load().items()) == list(jobs.items())
    assert (tmp_path / "queue.json").stat().st_mode & 0o077 == 0


def test_without_a_file_there_are_no_jobs_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "queue.json"
    assert QueueFile(path).load() == {}
    path.write_text("[{")
    with pytest.raises(SlopewiseError, match=rf"{path}: the queue cannot be read .*remove it"):
        QueueFile(path).load()


@pytest.mark.parametrize(
    ("ended", "state"),
    [({"exit_status": 0}, "finished"), ({"exit_status": 3}, "failed"), ({"stopped_at_target": CANCELLED}, CANCELLED)],
)
def test_a_job_that_has_ended_is_in_the_same_state_again(ended: dict[str, object], state: str) -> None:
    record = JobRecord(JobSpec("a", ["true"], 0.0), 20_001)
    record.arrived_at_seconds = record.started_at_seconds = 100.0
    record.finished_at_seconds, record.cpu_seconds = 110.0, 2.5
    for name, value in ended.items():
        setattr(record, name, value)
    again = replace(WAITING, end=StoredEnd.of(record)).record(record.spec)
    assert (record.state, again.state, again.cpu_seconds, again.finished_at_seconds) == (state, state, 2.5, 110.0)


def test_a_mode_set_by_hand_holds_until_the_policy_file_changes(tmp_path: Path) -> None:
    file, policy = QueueFile(tmp_path / "queue.json"), tmp_path / "policy.yaml"
    policy.touch()
    assert file.mode_after(policy) is None
    file.save_mode("Auto")
    os.utime(policy, (1.0, 1.0))
    assert (file.mode_after(policy), file.mode_after(None)) == ("Auto", "Auto")
    os.utime(policy, (2**33, 2**33))
    assert file.mode_after(policy) is None
    (tmp_path / "mode").write_text("Aut")
    assert file.mode_after(None) is None
