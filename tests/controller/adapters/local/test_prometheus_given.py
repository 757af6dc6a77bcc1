"""A Prometheus of the user's learns what to scrape from a file, and no other file is touched."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from slopewise.adapters.local.crash_journal import clean_up_after_killed, journal_path
from slopewise.adapters.local.prometheus_given import RUN_LABEL, GivenPrometheus
from slopewise.adapters.local.prometheus_server import TargetGroup
from slopewise.adapters.prometheus.client import Target
from slopewise.errors import ObservationError, UsageError

JOB: TargetGroup = {"targets": ["127.0.0.1:20001"], "labels": {"namespace": "local", "pod": "a"}}


class FakeTargets:
    """What Prometheus says that it scrapes."""

    def __init__(self, *targets: Target, works: bool = True) -> None:
        self.targets = targets
        self.works = works
        self.asked = 0

    def __call__(self) -> tuple[Target, ...]:
        self.asked += 1
        if not self.works:
            raise ObservationError("Prometheus at x answered HTTP Status Code 404.")
        return self.targets


def given(file: Path, ask: FakeTargets, reported: list[str] | None = None) -> GivenPrometheus:
    unread: list[str] = []
    return GivenPrometheus("http://prom", "run-1", file, [JOB], ask, (unread if reported is None else reported).append)


def test_the_file_names_every_target_with_the_run_and_is_gone_afterwards(tmp_path: Path) -> None:
    file = tmp_path / "sd" / "jobs.json"
    with given(file, FakeTargets()):
        assert json.loads(file.read_text()) == [{**JOB, "labels": {**JOB["labels"], RUN_LABEL: "run-1"}}]
        assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert list(file.parent.iterdir()) == []


@pytest.mark.parametrize("content", ['[{"targets": ["a:1"], "labels": {"team": "b"}}]', "{", '{"a": 1}', "[3]"])
def test_a_file_of_somebody_elses_is_refused_and_left_as_it_is(tmp_path: Path, content: str) -> None:
    file = tmp_path / "jobs.json"
    file.write_text(content)
    with pytest.raises(UsageError, match=r"jobs\.json: holds targets of another program"), given(file, FakeTargets()):
        pytest.fail("it was taken")
    assert file.read_text() == content


@pytest.mark.parametrize("content", ["", "[]", '[{"targets": ["a:1"], "labels": {"slopewise_run": "an earlier one"}}]'])
def test_an_empty_file_or_one_of_an_earlier_run_is_taken_over(tmp_path: Path, content: str) -> None:
    file = tmp_path / "jobs.json"
    file.write_text(content)
    with given(file, FakeTargets()):
        assert "run-1" in file.read_text()


def test_a_place_where_nothing_can_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = pytest.raises(UsageError, match=r"file: cannot be made .*name another place")
    with refused, given(tmp_path / "file" / "jobs.json", FakeTargets()):
        pytest.fail("it was written")


def test_the_run_begins_at_once_when_prometheus_scrapes_its_jobs(tmp_path: Path) -> None:
    reported: list[str] = []
    ask = FakeTargets(Target({RUN_LABEL: "run-0"}), Target({RUN_LABEL: "run-1"}))
    with given(tmp_path / "jobs.json", ask, reported) as prometheus:
        prometheus.wait_for_targets()
    assert (ask.asked, reported) == (1, [])


@pytest.mark.parametrize("works", [True, False])
def test_a_user_whose_jobs_are_not_scraped_is_told_and_the_run_begins(tmp_path: Path, works: bool) -> None:
    reported: list[str] = []
    with given(tmp_path / "jobs.json", FakeTargets(works=works), reported) as prometheus:
        prometheus.wait_for_targets(timeout_seconds=0.0)
    (message,) = reported
    assert message.startswith("Prometheus at http://prom does not scrape the jobs")
    assert f"`file_sd_configs: [{{files: ['{tmp_path / 'jobs.json'}']}}]`" in message


def test_a_killed_run_leaves_no_targets_behind_but_those_of_a_later_run(tmp_path: Path) -> None:
    file, journal = tmp_path / "jobs.json", journal_path(tmp_path, "run-1")
    journal.write_text(json.dumps({"kind": "file", "path": str(file)}) + "\n")
    file.write_text('[{"labels": {"slopewise_run": "run-1"}}]')
    assert clean_up_after_killed(tmp_path) == [f"Cleaned up after run run-1: removed the file {file}."]
    journal.write_text(json.dumps({"kind": "file", "path": str(file)}) + "\n")
    file.write_text('[{"labels": {"slopewise_run": "run-2"}}]')
    assert clean_up_after_killed(tmp_path) == []
    assert file.exists()
