"""Mappings of metric names as users write them, in a TrainingPolicy and a jobs file; each mistake is one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from slopewise.config.jobs_file import load_jobs
from slopewise.config.metric_mappings import (
    EVALUATION_PRESETS,
    NO_OWN_MAPPINGS,
    RESPONSE_PRESETS,
    EvaluationMapping,
    EvaluationPreset,
    OwnMappings,
    ResponseMapping,
    ResponsePreset,
)
from slopewise.config.training_policy import EvaluationSettings, load_training_policy
from slopewise.crds.schema.definitions import training_policies
from slopewise.errors import UsageError

HOSTILE = 'x"} or vector(1) #'


def spec_of_api_server() -> dict[str, Any]:
    """What the API server makes of an empty spec."""
    (version,) = training_policies()["spec"]["versions"]
    default: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["default"]
    return default


@pytest.mark.parametrize("preset", get_args(ResponsePreset))
def test_every_key_of_a_preset_is_in_effect_also_beside_the_defaults_of_the_api_server(preset: str) -> None:
    stored = spec_of_api_server()["responses"] | {"preset": preset}
    for written in ({"preset": preset}, stored):
        mapping = ResponseMapping.model_validate(written)
        for key, value in RESPONSE_PRESETS[mapping.preset or "vllm"].items():
            assert mapping.model_dump(mode="json", by_alias=True)[key] == value, key


@pytest.mark.parametrize("preset", get_args(EvaluationPreset))
def test_every_key_of_a_training_preset_is_in_effect_also_beside_these_defaults(preset: str) -> None:
    stored = spec_of_api_server()["evaluation"] | {"preset": preset, "targetHits": 5}
    for written in ({"preset": preset, "targetHits": 5}, stored):
        settings = EvaluationSettings.model_validate(written)
        assert settings.metric == EVALUATION_PRESETS[settings.preset or "megatron"]["metric"]
        assert settings.target_hits == 5


def test_what_is_written_goes_before_the_preset() -> None:
    mapping = ResponseMapping.model_validate(
        {"preset": "vllm", "metric": "vllm:time_to_first_token_seconds", "labels": {"model_name": "a"}}
    )
    assert mapping.metric == "vllm:time_to_first_token_seconds"
    assert mapping.labels == {"model_name": "a"}
    assert mapping.in_flight == ("vllm:num_requests_running", "vllm:num_requests_waiting")


def test_a_mapping_that_was_read_is_read_again_as_it_is() -> None:
    mapping = ResponseMapping.model_validate({"preset": "triton", "labels": {"model": "a"}})
    assert ResponseMapping.model_validate(mapping.model_dump(by_alias=True)) == mapping
    assert ResponseMapping.model_validate(mapping.model_dump()) == mapping


def test_a_histogram_is_named_by_its_stem_and_counters_by_both_names() -> None:
    histogram = ResponseMapping(metric="latency_ms", unit="milliseconds")
    assert (histogram.count_metric, histogram.sum_metric) == ("latency_ms_count", "latency_ms_sum")
    counters = ResponseMapping(metric="time_us", count="requests", unit="microseconds")
    assert (counters.count_metric, counters.sum_metric) == ("requests", "time_us")
    assert (histogram.seconds_per_unit, counters.seconds_per_unit) == (1e-3, 1e-6)


MISTAKES = [
    ({"evaluation": {"metric": HOSTILE}}, "is not a metric name; use letters, digits, _ and : (PromQL is not"),
    ({"evaluation": {"labels": {HOSTILE: "a"}}}, "is not a label name; use letters, digits and _"),
    ({"evaluation": {"preset": "primerl"}}, "not 'primerl'; did you mean 'prime-rl'?"),
    ({"evaluation": {"preset": ["vllm"]}}, "evaluation.preset: must be 'axolotl', 'megatron' or 'prime-rl'"),
    ({"evaluation": {"stepsTotal": {"metric": "a b"}}}, "evaluation.stepsTotal.metric: 'a b' is not a metric name"),
    ({"evaluation": {"podLabels": {"pod": "k8s.pod.name"}}}, "'k8s.pod.name' is not a label name"),
    ({"responses": {"preset": "vllm", "metrics": "a"}}, "responses.metrics: unknown key; did you mean 'metric'?"),
    ({"responses": {"inFlight": ["ok", "a-b"]}}, "responses.inFlight.1: 'a-b' is not a metric name"),
    ({"responses": {"unit": "ms"}}, "responses.unit: must be 'seconds', 'milliseconds', 'microseconds' or"),
    ({"responses": {"failed": {"a=b": ["x"]}}}, "'a=b' is not a label name"),
    ({"responses": {"failed": {"code": "5??"}}}, "'5??' is no list of values; write one, such as [error, 5??]"),
]


@pytest.mark.parametrize(("spec", "message"), MISTAKES)
def test_a_mistake_is_one_sentence_in_policy_and_jobs_file(tmp_path: Path, spec: dict[str, Any], message: str) -> None:
    policy, jobs = tmp_path / "policy.yaml", tmp_path / "jobs.yaml"
    policy.write_text(yaml.safe_dump({"spec": spec}), encoding="utf-8")
    jobs.write_text(yaml.safe_dump([{"name": "a", "command": "true", **spec}]), encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        load_training_policy(policy)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{policy}: spec.")
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError) as of_jobs:
        load_jobs(jobs)
    assert message in str(of_jobs.value)


def test_a_job_may_have_mappings_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text(
        """\
- {name: plain, command: "true"}
- name: other
  command: "true"
  evaluation: {metric: trainer_score, objective: max, stepsTotal: {metric: global_step}}
- {name: model, command: "true", responses: {preset: vllm}}
""",
        encoding="utf-8",
    )
    plain, other, model = load_jobs(path)
    assert plain.mappings == NO_OWN_MAPPINGS
    evaluation = EvaluationMapping.model_validate(
        {"metric": "trainer_score", "objective": "max", "stepsTotal": {"metric": "global_step"}}
    )
    assert other.mappings == OwnMappings(evaluation)
    assert model.mappings == OwnMappings(responses=ResponseMapping(preset="vllm"))
    path.write_text('[{name: a, command: "true", evaluation: {normaliser: first}}]', encoding="utf-8")
    with pytest.raises(UsageError, match=r"evaluation.normaliser: unknown key"):  # it is no setting of one job
        load_jobs(path)
