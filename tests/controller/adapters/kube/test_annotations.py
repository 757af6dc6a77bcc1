"""What owners ask for is typed and bounded; what cannot be used is told and harms nobody."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.adapters.kube.annotations import KNOWN, NOTHING, read_annotations
from controller.model import Promises

STARTED = datetime(2026, 8, 1, 12, tzinfo=UTC).timestamp()


def read(max_weight: float = 10.0, **annotations: str):
    named = {f"slopewise.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return read_annotations(named, STARTED, max_weight)


def test_all_annotations_together_are_one_set_of_promises():
    asked = read(
        deadline="2h30m", qoe_seconds="0.25", target_loss="0.1", deliverable_loss="1e-1", weight="2.5",
        max_useful_cpu="1500m", migratable="true", container="trainer",
    )  # fmt: skip
    assert asked.promises == Promises(0.25, STARTED + 9000, 0.1, 0.1, 2.5)
    assert (asked.useful_parallelism_cores, asked.migratable, asked.container) == (1.5, True, "trainer")
    assert asked.warnings == ()


def test_a_pod_without_annotations_of_ours_asks_for_nothing():
    assert read_annotations({"vpaUpdates": "x"}, STARTED, 10.0) is NOTHING


@pytest.mark.parametrize(
    ("deadline", "seconds"),
    [
        ("2026-08-01T13:00:00Z", 3600),
        ("2026-08-01T15:00:00+02:00", 3600),
        ("2026-08-01T11:00:00Z", -3600),
        ("90s", 90),
        ("1d", 86_400),
        ("1d1h1m1s", 90_061),
        ("45m", 2700),
    ],
)
def test_a_deadline_is_a_moment_or_a_duration_from_the_start(deadline: str, seconds: float):
    assert read(deadline=deadline).promises.deadline_at_seconds == STARTED + seconds


@pytest.mark.parametrize(
    ("annotation", "value", "told"),
    [
        ("deadline", "tomorrow", "is neither a time nor a duration; write 2026-08-01T12:00:00Z, or 2h30m after the"),
        ("deadline", "", "is neither a time nor a duration"),
        ("deadline", "2026-08-01T12:00:00", "has no time zone; end it with Z or +02:00"),
        ("deadline", "9000h", "is more than a year after the start; is its unit right"),
        ("deadline", "2030-01-01T00:00:00Z", "is more than a year after the start"),
        ("qoe_seconds", "0", "is not above 0"),
        ("qoe_seconds", "4e7", "seconds are more than a year"),
        ("target_loss", "nan", "'nan' is not a number; write it like 0.25"),
        ("target_loss", "1e999", "is not a number"),
        ("deliverable_loss", "0,5", "is not a number"),
        ("weight", "-1", "is not above 0"),
        ("max_useful_cpu", "two", "is not a CPU quantity; write millicores as 250m or cores as 0.25"),
        ("migratable", "yes", 'is neither "true" nor "false"'),
        ("container", "x" * 4000, "is 4000 characters long"),
    ],
)
def test_a_value_that_cannot_be_used_is_told_and_left_out(annotation: str, value: str, told: str):
    asked = read(**{annotation: value})
    (warning,) = asked.warnings
    assert warning.startswith(f"annotation slopewise.dev/{annotation.replace('_', '-')} is not used: ")
    assert told in warning
    assert len(warning) < 250
    assert (asked.promises, asked.useful_parallelism_cores, asked.container) == (Promises(), None, None)


def test_a_weight_above_the_policys_bound_is_the_bound():
    asked = read(max_weight=3.0, weight="50")
    assert asked.promises.weight == 3.0
    assert asked.warnings == (
        "annotation slopewise.dev/weight asks for 50, and the policy allows 3 (spec.tenancy.maxWeight); that is used",
    )


def test_a_mistyped_annotation_is_named_with_the_known_ones():
    (warning,) = read(dead_line="2h").warnings
    assert warning.startswith("annotation slopewise.dev/dead-line is not known; use one of deadline, qoe-seconds")


@given(st.dictionaries(st.sampled_from(KNOWN), st.text(max_size=200)))
def test_whatever_tenants_write_promises_stay_within_bounds(annotations: dict[str, str]):
    asked = read_annotations(annotations, STARTED, 10.0)
    assert 0 < asked.promises.weight <= 10.0
    assert asked.promises.qoe_seconds is None or asked.promises.qoe_seconds > 0
