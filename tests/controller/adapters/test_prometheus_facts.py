"""Which of a job's processes speaks, and what the series of a served model add up to."""

from __future__ import annotations

import math

import pytest

from controller.adapters.prometheus_facts import Life, facts_by_job
from controller.adapters.prometheus_http import Row
from controller.adapters.prometheus_series import JobKey
from controller.model import Responses

KEY = JobKey("team", "a")
COUNT, SUM = "inference_response_duration_seconds_count", "inference_response_duration_seconds_sum"
STARTED = "process_start_time_seconds"


def row(name: str, value: float, *, instance: str = "a:1", **labels: str) -> Row:
    return Row({"__name__": name, "namespace": "team", "pod": "a", "instance": instance, **labels}, value)


def latest(*rows: Row) -> Life:
    _, life = facts_by_job(rows, [])[KEY].latest_life(frozenset())
    return life


def test_a_served_model_that_has_answered_nothing_yet_is_one_all_the_same() -> None:
    assert latest(row(COUNT, 0), row(SUM, 0)).responses == Responses(0, 0)


@pytest.mark.parametrize(
    "rows",
    [
        [row("training_steps_total", 3)],
        [row(COUNT, 40)],
        [row(SUM, 8)],
        [row(COUNT, 40), row(SUM, math.nan)],
        [row(COUNT, 40), row(SUM, math.inf)],
        [row(COUNT, math.nan), row(SUM, 8)],
    ],
)
def test_half_of_a_histogram_or_one_that_is_not_finite_is_not_known(rows: list[Row]) -> None:
    assert latest(*rows).responses is None


def test_two_lives_of_a_served_model_are_not_added_up_and_the_later_one_speaks() -> None:
    old = [row(COUNT, 40), row(SUM, 8), row(STARTED, 1000)]
    new = [row(COUNT, 1, instance="b:2"), row(SUM, 0.5, instance="b:2"), row(STARTED, 2000, instance="b:2")]
    facts = facts_by_job([*new, *old], [])[KEY]
    instance, life = facts.latest_life(frozenset())
    assert (instance, life.responses) == ("b:2", Responses(1, 0.5))
    assert facts.restarted(frozenset(), since_seconds=1500)


def test_a_sidecar_of_a_served_model_neither_speaks_nor_restarts_it() -> None:
    model = [row(COUNT, 40), row(SUM, 8), row(STARTED, 1000)]
    facts = facts_by_job([*model, row(STARTED, 2000, instance="sidecar:1")], [])[KEY]
    instance, life = facts.latest_life(frozenset())
    assert (instance, life.responses) == ("a:1", Responses(40, 8))
    assert not facts.restarted(frozenset(), since_seconds=1500)
