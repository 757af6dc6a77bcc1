"""Which of a job's processes speaks, what the series of a served model add up to, and what is known of checkpoints."""

from __future__ import annotations

import math

import pytest
from support.rows import row_of

from slopewise.adapters.prometheus.client import Row
from slopewise.adapters.prometheus.evaluations import JobKey
from slopewise.adapters.prometheus.process_facts import ProcessFacts, facts_by_job, latest_process
from slopewise.model import Checkpoint, Responses

KEY = JobKey("team", "a")
COUNT, SUM = "inference_response_duration_seconds_count", "inference_response_duration_seconds_sum"
STARTED = "process_start_time_seconds"
SAVED_AT, DURATION = "training_checkpoint_timestamp_seconds", "training_checkpoint_duration_seconds"
ON_SIGTERM = "training_checkpoint_on_sigterm"


def row(name: str, value: float, *, instance: str = "a:1", **labels: str) -> Row:
    if name.startswith("inference_"):
        labels = {"slopewise_value": "responses", **labels}
    return row_of({"__name__": name, "namespace": "team", "pod": "a", "instance": instance, **labels}, value)


def latest(*rows: Row) -> ProcessFacts:
    _, process = latest_process(facts_by_job(rows)[KEY].working_processes(frozenset()))
    return process


def failed(name: str, value: float) -> Row:
    return row(name, value, slopewise_value="failed_responses")


@pytest.mark.parametrize(
    ("rows", "responses"),
    [
        ([row(COUNT, 0), row(SUM, 0)], Responses(0, 0)),
        (
            [row(COUNT, 40), row(SUM, 8), failed(COUNT, 60), failed(SUM, 0.1), row("inference_requests_in_flight", 3)],
            Responses(40, 8, 60, 0.1, 3),
        ),
        ([failed(COUNT, 60), failed(SUM, 0.1)], Responses(0, 0, 60, 0.1)),
        *(
            (rows, None)
            for rows in (
                [row("training_steps_total", 3)],
                [row(COUNT, 40)],
                [row(COUNT, 40), row(SUM, math.nan)],
                [row(COUNT, math.nan), row(SUM, 8)],
                [failed(COUNT, 60)],
            )
        ),
    ],
)
def test_a_served_model_is_known_by_a_whole_finite_histogram(rows: list[Row], responses: Responses | None) -> None:
    assert latest(*rows).responses == responses


def test_two_lives_of_a_served_model_are_not_added_up_and_the_later_one_speaks() -> None:
    old = [row(COUNT, 40), row(SUM, 8), row(STARTED, 1000)]
    new = [row(COUNT, 1, instance="b:2"), row(SUM, 0.5, instance="b:2"), row(STARTED, 2000, instance="b:2")]
    facts = facts_by_job([*new, *old])[KEY]
    instance, process = latest_process(facts.working_processes(frozenset()))
    assert (instance, process.responses) == ("b:2", Responses(1, 0.5))
    assert facts.restarted(facts.working_processes(frozenset()), since_seconds=1500)


@pytest.mark.parametrize(
    ("rows", "checkpoint"),
    [
        ([row("training_steps_total", 3)], None),
        ([row(ON_SIGTERM, 1)], Checkpoint(None, None, on_sigterm=True)),
        ([row(SAVED_AT, 900), row(DURATION, 2.5), row(ON_SIGTERM, 1)], Checkpoint(900, 2.5, on_sigterm=True)),
        ([row(DURATION, 2.5)], None),
        ([row(SAVED_AT, 900), row(DURATION, -1)], Checkpoint(900, None)),
        ([row(ON_SIGTERM, 0.5)], Checkpoint(on_sigterm=False)),
        *(
            ([row(name, value) for name in (SAVED_AT, DURATION, ON_SIGTERM)], None)
            for value in (math.nan, math.inf, -math.inf)
        ),
    ],
)
def test_a_job_has_a_checkpoint_once_it_says_that_it_saved_or_would(rows: list[Row], checkpoint: Checkpoint) -> None:
    assert latest(*rows).checkpoint == checkpoint


def test_the_first_step_of_a_process_is_known_and_one_of_an_earlier_process_is_not_its_own() -> None:
    first_step = "training_first_step_timestamp_seconds"
    rows = [row("training_steps_total", 3), row(STARTED, 1000)]
    found = [latest(*rows, *more) for more in ([row(first_step, 1002.5)], [row(first_step, 990.0)], [])]
    assert [each.first_step_at_seconds for each in found] == [1002.5, None, None]


@pytest.mark.parametrize("value", [1e160, -1e300, 1e-200, 5e-324])
def test_a_figure_that_no_training_can_have_is_not_known(value: float) -> None:
    """Its square is infinite or 0, and one tenant's would end the pass of all jobs."""
    process = latest(row("training_steps_total", value), row("training_steps_planned", value), row(SAVED_AT, value))
    assert process.numbers == {}
    assert process.works
    assert latest(row("training_steps_planned", 1e15)).numbers == {"training_steps_planned": 1e15}
