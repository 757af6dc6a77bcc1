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
                [row(SUM, 8)],
                [row(COUNT, 40), row(SUM, math.nan)],
                [row(COUNT, 40), row(SUM, math.inf)],
                [row(COUNT, math.nan), row(SUM, 8)],
                [failed(COUNT, 60)],
                [failed(COUNT, 60), failed(SUM, math.nan)],
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


def test_a_sidecar_of_a_served_model_neither_speaks_nor_restarts_it() -> None:
    model = [row(COUNT, 40), row(SUM, 8), row(STARTED, 1000)]
    facts = facts_by_job([*model, row(STARTED, 2000, instance="sidecar:1")])[KEY]
    instance, process = latest_process(facts.working_processes(frozenset()))
    assert (instance, process.responses) == ("a:1", Responses(40, 8))
    assert not facts.restarted(facts.working_processes(frozenset()), since_seconds=1500)


@pytest.mark.parametrize(
    ("rows", "checkpoint"),
    [
        ([row("training_steps_total", 3)], None),
        ([row(ON_SIGTERM, 1)], Checkpoint(None, None, on_sigterm=True)),
        ([row(ON_SIGTERM, 0)], Checkpoint(None, None, on_sigterm=False)),
        ([row(SAVED_AT, 900), row(DURATION, 2.5)], Checkpoint(900, 2.5, on_sigterm=False)),
        ([row(SAVED_AT, 900), row(DURATION, 2.5), row(ON_SIGTERM, 1)], Checkpoint(900, 2.5, on_sigterm=True)),
        ([row(SAVED_AT, 900)], Checkpoint(900, None, on_sigterm=False)),
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


def test_the_checkpoint_of_a_process_that_is_gone_does_not_speak_for_the_one_that_trains() -> None:
    old = [row(SAVED_AT, 900), row(ON_SIGTERM, 1), row(STARTED, 1000)]
    new = [row("training_steps_total", 0, instance="b:2"), row(STARTED, 2000, instance="b:2")]
    assert latest(*old, *new).checkpoint is None


def test_the_first_step_of_a_process_is_known_and_one_of_an_earlier_process_is_not_its_own() -> None:
    first_step = "training_first_step_timestamp_seconds"
    assert (
        latest(row("training_steps_total", 3), row(STARTED, 1000), row(first_step, 1002.5)).first_step_at_seconds
        == 1002.5
    )
    assert (
        latest(row("training_steps_total", 3), row(STARTED, 1000), row(first_step, 990.0)).first_step_at_seconds is None
    )
    assert latest(row("training_steps_total", 3), row(STARTED, 1000)).first_step_at_seconds is None


@pytest.mark.parametrize("value", [1e160, -1e300, 1e-200, 5e-324])
def test_a_figure_that_no_training_can_have_is_not_known(value: float) -> None:
    """Its square is infinite or 0, and one tenant's would end the pass of all jobs."""
    process = latest(row("training_steps_total", value), row("training_steps_planned", value), row(SAVED_AT, value))
    assert process.numbers == {}
    assert process.works


@pytest.mark.parametrize("value", [0.0, 0.001, 1e15])
def test_a_figure_that_a_training_can_have_is_known(value: float) -> None:
    assert latest(row("training_steps_planned", value)).numbers == {"training_steps_planned": value}
