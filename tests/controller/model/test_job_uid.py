"""A job's uid, taken apart and put together."""

from __future__ import annotations

import pytest

from slopewise.model import JobUid


@pytest.mark.parametrize(
    ("text", "workload", "slot"),
    [("2f6c:0", "2f6c", "0"), ("2f6c:train-x7", "2f6c", "train-x7"), ("mnist", "mnist", ""), ("", "", "")],
)
def test_a_uid_is_a_workload_and_on_a_cluster_a_slot(text: str, workload: str, slot: str) -> None:
    assert JobUid.of(text) == (workload, slot)
    assert str(JobUid(workload, slot)) == text
