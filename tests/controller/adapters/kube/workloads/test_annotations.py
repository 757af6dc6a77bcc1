"""What owners ask for is typed and bounded; what cannot be used is reported and harms no job."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slopewise.adapters.kube.workloads.annotations import KNOWN, NOTHING, Requested, read_annotations
from slopewise.model import Objectives

STARTED = datetime(2026, 8, 1, 12, tzinfo=UTC).timestamp()


def read(max_weight: float = 10.0, **annotations: Any) -> Requested:
    named = {f"slopewise.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return read_annotations(named, STARTED, max_weight)


def test_all_annotations_together_are_one_set_of_promises() -> None:
    asked = read(
        deadline="2h30m", qoe_seconds="0.25", target_loss="0.1", deliverable_loss="1e-1", weight="2.5",
        at_target="stop", max_useful_cpu="1500m", migratable="true", container="trainer", favour="best",
        checkpoints="external",
    )  # fmt: skip
    asks = Objectives(0.25, STARTED + 9000, 0.1, 0.1, 2.5, stops_at_target=True, favours_best=True)
    assert asked.objectives == asks
    assert (asked.useful_parallelism_cores, asked.migratable, asked.container) == (1.5, True, "trainer")
    assert asked.warnings == ()


@pytest.mark.parametrize(
    ("deadline", "seconds"),
    [
        ("2026-08-01T15:00:00+02:00", 3600),
        ("90s", 90),
        ("1d1h1m1s", 90_061),
    ],
)
def test_a_deadline_is_a_moment_or_a_duration_from_the_start(deadline: str, seconds: float) -> None:
    assert read(deadline=deadline).objectives.deadline_at_seconds == STARTED + seconds


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        ("deadline", "tomorrow", "is neither a time nor a duration; write 2026-08-01T12:00:00Z, or 2h30m after the"),
        ("deadline", "90", "'90' has no unit; write 90s, 90m or 90h after the start, or a time"),
        ("deadline", "0s", "'0s' is no time at all; write how long it may take, such as 2h30m"),
        ("deadline", "2026-08-01T12:00:00", "has no time zone; end it with Z or +02:00"),
        ("deadline", "9000h", "is more than a year after the start; is its unit right"),
        ("qoe_seconds", "0", "is not above 0"),
        ("qoe_seconds", "1e9", "'1e9' seconds are more than a year; is its unit right?"),
        ("qoe_seconds", "250ms", "'250ms' is not a number without a unit; write it like 0.25"),
        ("at_target", "end", '\'end\' is neither "stop" nor "keep"'),
        ("target_loss", "nan", "'nan' is not a number without a unit; write it like 0.25"),
        ("deliverable_loss", "0,5", "is not a number"),
        ("class", "team b/resnet", "'team b/resnet' is not a name; write letters, digits,"),
        ("class", "x" * 64, "is 64 characters long"),
        ("max_useful_cpu", "two", "is not a CPU quantity; write millicores as 250m or cores as 0.25"),
        ("favour", "worst", "'worst' is not \"best\"; leave it out where trials are jobs like others"),
        ("checkpoints", "no", 'neither "external" nor "none"'),
        ("migratable", "yes", 'is neither "true" nor "false"'),
    ],
)
def test_a_value_that_cannot_be_used_is_reported_and_left_out(annotation: str, value: str, expected: str) -> None:
    written: dict[str, Any] = {annotation: value}
    asked = read(**written)
    (warning,) = asked.warnings
    assert warning.startswith(f"annotation slopewise.dev/{annotation.replace('_', '-')} is not used: ")
    assert expected in warning
    assert len(warning) < 250
    assert (asked.objectives, asked.useful_parallelism_cores, asked.container) == (Objectives(), None, None)


def test_a_deadline_before_the_start_is_used_and_reported() -> None:
    asked = read(deadline="2026-08-01T11:00:00Z")
    assert asked.objectives.deadline_at_seconds == STARTED - 3600
    assert asked.warnings == (
        (
            "annotation slopewise.dev/deadline: 2026-08-01T11:00:00Z is 3600 s before its start, so it is missed "
            "already; state a later one"
        ),
    )


@pytest.mark.parametrize("wish", ["stop", "keep"])
def test_a_stop_at_the_target_needs_a_target(wish: str) -> None:
    asked = read(at_target=wish, deliverable_loss="0.2")
    assert not asked.objectives.stops_at_target
    no_target = (
        "annotation slopewise.dev/at-target is not used: a stop needs a target; state slopewise.dev/target-loss",
    )
    assert asked.warnings == (no_target if wish == "stop" else ())
    assert not read(at_target="keep", target_loss="0.2").objectives.stops_at_target


def test_a_weight_above_the_policys_bound_is_the_bound() -> None:
    asked = read(max_weight=3.0, weight="50")
    assert asked.objectives.weight == 3.0
    assert asked.warnings == (
        "annotation slopewise.dev/weight asks for 50, and the policy allows 3 (spec.tenancy.maxWeight); that is used",
    )


def test_a_mistyped_annotation_is_named_with_the_known_ones() -> None:
    assert read_annotations({"vpaUpdates": "x"}, STARTED, 10.0) is NOTHING
    (warning,) = read(dead_line="2h").warnings
    assert warning.startswith("annotation slopewise.dev/dead-line is not known; use one of deadline, qoe-seconds")


def test_thousands_of_unknown_annotations_are_one_warning() -> None:
    written = {f"slopewise.dev/x{number:04}": "" for number in range(5000)}
    (warning,) = read_annotations(written, STARTED, 10.0).warnings
    assert warning.startswith("annotation slopewise.dev/x0000 (and 4999 more) is not known; use one of deadline")


@given(st.dictionaries(st.sampled_from(KNOWN), st.text(max_size=30)))
def test_whatever_tenants_write_promises_stay_within_bounds(annotations: dict[str, str]) -> None:
    asked = read_annotations(annotations, STARTED, 10.0)
    assert 0 < asked.objectives.weight <= 10.0
    assert asked.objectives.qoe_seconds is None or asked.objectives.qoe_seconds > 0
