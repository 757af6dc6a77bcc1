"""Which conditions are troubles."""

from __future__ import annotations

import pytest

from slopewise.crds.conditions import Condition, troubles

SINCE = "2026-11-21T15:00:00Z"


def conditions(ended_as: str) -> list[Condition]:
    """Of a job that has ended, as a pass writes them."""
    found = (
        ("Finished", "True", ended_as),
        ("Managed", "False", "Ended"),
        ("MetricsAvailable", "False", "Missing"),
        ("RolledBack", "True", "Throttled"),
    )
    return [
        Condition(type=kind, status=status, reason=reason, message="", last_transition_time=SINCE)
        for kind, status, reason in found
    ]


@pytest.mark.parametrize(
    ("ended_as", "shown"), [("Succeeded", ["RolledBack"]), ("Failed", ["Managed", "MetricsAvailable", "RolledBack"])]
)
def test_a_job_that_has_succeeded_need_not_report_or_be_managed(ended_as: str, shown: list[str]) -> None:
    assert [each.type for each in troubles(conditions(ended_as))] == shown
