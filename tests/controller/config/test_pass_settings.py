"""The settings of a pass, from a TrainingPolicy document."""

from __future__ import annotations

from typing import Literal

import pytest

from slopewise.config.pass_settings import (
    interval_mistake,
    local_memory_mistake,
    pass_settings,
    policy_of,
    reading_seconds,
    with_interval,
)
from slopewise.config.training_policy import (
    Behaviour,
    PlacementChoice,
    ResourceSettings,
    TrainingPolicy,
    TrainingPolicySpec,
)
from slopewise.errors import UsageError


def a_document(interval_seconds: float | None) -> TrainingPolicy:
    return TrainingPolicy(spec=TrainingPolicySpec(behaviour=Behaviour(interval_seconds=interval_seconds)))


@pytest.mark.parametrize(
    ("asked", "scrape_seconds", "expected"),
    [(None, 15.0, 60.0), (None, 5.0, 20.0), (None, 1.0, 20.0), (90.0, 15.0, 90.0)],
)
def test_the_default_interval_is_four_scrapes(asked: float | None, scrape_seconds: float, expected: float) -> None:
    settings = pass_settings(with_interval(a_document(asked), scrape_seconds))

    assert settings.measuring.interval_seconds == expected
    assert settings.rollback.interval_seconds == expected


def test_the_interval_of_a_placement_is_no_shorter_than_four_scrapes_either() -> None:
    placement = PlacementChoice(name="specon", interval_seconds=20.0)
    document = TrainingPolicy(spec=TrainingPolicySpec(placement=placement))
    assert interval_mistake(document, 5.0) is None
    mistake = interval_mistake(document, 15.0)
    assert mistake == "spec.placement.intervalSeconds: 20 s is less than 4 scrapes of 15 s; write 60 or more"


def test_how_many_measurements_reach_a_target_is_a_setting_of_the_evaluation() -> None:
    document = TrainingPolicy.model_validate({"spec": {"evaluation": {"targetHits": 5}}})
    assert pass_settings(with_interval(document, 5.0)).measuring.target_hits == 5
    assert pass_settings(with_interval(a_document(None), 5.0)).measuring.target_hits == 3


@pytest.mark.parametrize(("policy", "judged"), [("marginal", False), ("flowcon", True), ("fair", True)])
def test_a_cut_is_not_judged_under_a_policy_that_serves_jobs_in_turns(policy: str, judged: bool) -> None:
    document = TrainingPolicy.model_validate({"spec": {"policy": {"name": policy}}})
    assert pass_settings(with_interval(document, 5.0)).rollback.judges_cuts is judged


@pytest.mark.parametrize(
    ("policy", "mode", "read"), [("marginal", "Auto", True), ("marginal", "Observe", False), ("fair", "Auto", False)]
)
def test_evaluations_are_points_where_a_policy_that_runs_reads_points(policy: str, mode: str, read: bool) -> None:
    document = TrainingPolicy.model_validate({"spec": {"mode": mode, "policy": {"name": policy}}})
    assert pass_settings(with_interval(document, 5.0)).measuring.reads_points is read


@pytest.mark.parametrize("memory", ["Requests", "Limits"])
def test_memory_is_changed_on_a_cluster_alone(memory: Literal["Requests", "Limits"]) -> None:
    document = with_interval(TrainingPolicy(spec=TrainingPolicySpec(resources=ResourceSettings(memory=memory))), 5.0)
    assert pass_settings(document).bounds.memory == memory
    expected = f"spec.resources.memory: {memory} changes pods of a cluster, and no memory of this machine; write Ignore"
    assert local_memory_mistake(document) == expected
    assert local_memory_mistake(a_document(20.0)) is None


@pytest.mark.parametrize(("policy", "mode", "refused"), [
    ("fair", "Auto", False), ("marginal", "Auto", False), ("flowcon", "Auto", True), ("flowcon", "Observe", False),
])  # fmt: skip
def test_jobs_with_gpus_are_changed_by_policies_that_know_how(policy: str, mode: str, refused: bool) -> None:
    spec = {
        "mode": mode,
        "policy": {"name": policy},
        "resources": {"accelerators": "Share"},
        "behaviour": {"intervalSeconds": 20},
    }
    document = TrainingPolicy.model_validate({"metadata": {"name": "p"}, "spec": spec})
    assert pass_settings(document).bounds.accelerators == "Share"
    if refused:
        with pytest.raises(
            UsageError, match="policy flowcon changes no job with a GPU; use marginal or fair, or write"
        ):
            policy_of(document)
    else:
        policy_of(document)


def test_prometheus_has_a_quarter_of_the_interval_within_bounds() -> None:
    assert [reading_seconds(interval) for interval in (4.0, 40.0, 3600.0)] == [5.0, 10.0, 15.0]


def test_the_best_of_a_study_is_favoured_only_by_a_policy_that_knows_how() -> None:
    spec = {"mode": "Auto", "studies": "Best", "behaviour": {"intervalSeconds": 20}}
    policy_of(TrainingPolicy.model_validate({"spec": spec}))
    document = TrainingPolicy.model_validate({"spec": {**spec, "policy": {"name": "flowcon"}}})
    with pytest.raises(UsageError, match=r"policy flowcon favours no trial of a study; use marginal, or write spec.st"):
        policy_of(document)
