"""What the path of a cgroup says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from slopewise.adapters.local.limiters.cgroup_files import manages

SLICE = Path("/sys/fs/cgroup/user.slice/user-1000.slice")


@pytest.mark.parametrize(
    ("below", "is_of_a_job"),
    [
        ("slopewise-20260514-093012-4711/1-mnist", True),
        ("slopewise-20260514-093012-4711/1-mnist/loader", True),
        ("slopewise-20260514-093012-4711", False),
        ("slopewise-training.service/worker", False),  # a unit of the user's
        ("slopewise-up.service/slopewise-20260514-093012-4711/1-mnist", True),
    ],
)
def test_the_cgroups_of_jobs_lie_below_a_run_and_no_unit_of_systemd_is_one(below: str, is_of_a_job: bool) -> None:
    assert manages(SLICE / below) is is_of_a_job
