"""Which series of Prometheus are a job's evaluation, steps and response times, where they have other names than ours.

The same keys stand in a TrainingPolicy (`spec.evaluation`, `spec.responses`) and in a job of a jobs file. A preset is a
mapping as a user would write it. It holds only names that were found in the source of the project
(docs/exporters-mappings.md has the sources); a framework that exports no loss to Prometheus has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field, model_validator

from slopewise.config.quantities import FailedValues, LabelMatchers, LabelName, MetricName
from slopewise.config.validation import Document
from slopewise.model import Objective

Preset = Mapping[str, Any]

EvaluationPreset = Literal["axolotl", "megatron", "prime-rl"]

EVALUATION_PRESETS: Mapping[EvaluationPreset, Preset] = {
    "axolotl": {"metric": "axolotl_train_loss", "stepsTotal": {"metric": "axolotl_global_steps_total"}},
    "megatron": {"metric": "megatron_training_loss"},
    "prime-rl": {"metric": "trainer_loss", "stepsTotal": {"metric": "trainer_step"}},
}

ResponsePreset = Literal["kserve", "ray-serve", "ray-serve-proxy", "torchserve", "triton", "vllm"]

RESPONSE_PRESETS: Mapping[ResponsePreset, Preset] = {
    "kserve": {"metric": "request_predict_seconds", "failed": {}, "inFlight": []},
    "ray-serve": {
        "metric": "ray_serve_deployment_processing_latency_ms",
        "unit": "milliseconds",
        "failed": {},
        "inFlight": ["ray_serve_replica_processing_queries"],
    },
    "ray-serve-proxy": {
        "metric": "ray_serve_http_request_latency_ms",
        "unit": "milliseconds",
        "failed": {"status_code": ["4??", "5??"]},
        "inFlight": ["ray_serve_num_ongoing_http_requests"],
    },
    "torchserve": {
        "metric": "ts_inference_latency_microseconds",
        "count": "ts_inference_requests_total",
        "unit": "microseconds",
        "failed": {},
        "inFlight": [],
    },
    "triton": {
        "metric": "nv_inference_request_duration_us",
        "count": "nv_inference_request_success",
        "unit": "microseconds",
        "failed": {},
        "failedCount": "nv_inference_request_failure",
        "inFlight": [],
    },
    "vllm": {
        "metric": "vllm:e2e_request_latency_seconds",
        "failed": {},
        "inFlight": ["vllm:num_requests_running", "vllm:num_requests_waiting"],
    },
}
"""Triton's gauge of pending requests leaves out those that are executed, and 0 in flight means idle: it has none."""


DEFAULT_RESPONSES = "inference_response_duration_seconds"
DEFAULT_IN_FLIGHT = "inference_requests_in_flight"

SECONDS_PER_UNIT = {"seconds": 1.0, "milliseconds": 1e-3, "microseconds": 1e-6, "nanoseconds": 1e-9}


class PodLabels(Document):
    """The labels that name a series' pod. Others than the scrape's own are written by who exports the series."""

    namespace: LabelName = Field("namespace", description="label whose value is the namespace of the job's pod")
    pod: LabelName = Field("pod", description="label whose value is the name of the job's pod")


class SeriesName(Document):
    """A counter or a gauge, by its name and labels."""

    metric: MetricName = Field(description="metric name, never PromQL")
    labels: LabelMatchers = Field(default_factory=dict, description="label matchers, compared as text")


class _WithPreset(Document):
    """Fills the keys that are left at their defaults with those of the preset."""

    presets: ClassVar[Mapping[Any, Preset]]

    @model_validator(mode="before")
    @classmethod
    def _filled(cls, value: object) -> object:
        """The API server writes every default out, so a key with its default counts as left out."""
        name = value.get("preset") if isinstance(value, dict) else None
        preset = cls.presets.get(name) if isinstance(name, str) else None
        if not isinstance(value, dict) or preset is None:
            return value
        written = {
            field.alias or name: value.get(field.alias, value.get(name))
            for name, field in cls.model_fields.items()
            if {field.alias, name} & value.keys()
        }
        defaults = {
            field.alias or name: _plain(field.get_default(call_default_factory=True))
            for name, field in cls.model_fields.items()
        }
        unknown = {key: each for key, each in value.items() if key not in defaults and key not in cls.model_fields}
        kept = {key: each for key, each in written.items() if key not in preset or _plain(each) != defaults[key]}
        return {**preset, **unknown, **kept}


def _plain(value: object) -> object:
    """As YAML has it."""
    if isinstance(value, BaseModel):
        return value.model_dump(by_alias=True)
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


class EvaluationMapping(_WithPreset):
    """Which series are the evaluation and the steps of a job."""

    presets: ClassVar[Mapping[Any, Preset]] = EVALUATION_PRESETS

    preset: EvaluationPreset | None = Field(
        None, description="names that a framework exports, for the keys below that are left at their defaults"
    )
    metric: MetricName = Field("training_loss", description="metric name, never PromQL")
    labels: LabelMatchers = Field(
        default_factory=dict,
        description="label matchers, compared as text; empty: the best of stage eval, train_ema, train",
    )
    objective: Objective = Field("min", description="min or max; the job's own training_info overrides")
    steps_total: SeriesName | None = Field(
        None, description="counter or gauge of the steps done, such as global_step; empty: training_steps_total"
    )
    steps_planned: SeriesName | None = Field(
        None, description="gauge of the steps of the whole training; empty: training_steps_planned"
    )
    pod_labels: PodLabels = Field(PodLabels(), description="labels of these series that name the job's pod")


class ResponseMapping(_WithPreset):
    """Which series are the response times of a served model."""

    presets: ClassVar[Mapping[Any, Preset]] = RESPONSE_PRESETS

    preset: ResponsePreset | None = Field(
        None, description="names that a model server exports, for the keys below that are left at their defaults"
    )
    metric: MetricName = Field(
        DEFAULT_RESPONSES,
        description="a histogram or summary, of which _count and _sum are read; with count: the counter of all time "
        "together",
    )
    count: MetricName | None = Field(
        None, description="counter of responses, where metric is a counter too; empty: metric is a histogram or summary"
    )
    unit: Literal["seconds", "milliseconds", "microseconds", "nanoseconds"] = Field(
        "seconds", description="unit of metric"
    )
    labels: LabelMatchers = Field(default_factory=dict, description="label matchers, compared as text; empty: all")
    failed: FailedValues = Field(
        {"outcome": ("failed",), "code": ("4??", "5??")},
        description="labels with the values that mean a failed response; * is any text, ? any character; empty: none",
    )
    failed_count: MetricName | None = Field(
        None, description="counter of failed responses that metric leaves out; empty: none"
    )
    in_flight: tuple[MetricName, ...] = Field(
        (DEFAULT_IN_FLIGHT,), max_length=8, description="gauges whose sum is the requests not yet answered; empty: none"
    )
    pod_labels: PodLabels = Field(PodLabels(), description="labels of these series that name the server's pod")

    @property
    def count_metric(self) -> str:
        """The counter of responses."""
        return self.count or f"{self.metric}_count"

    @property
    def sum_metric(self) -> str:
        """The counter of the time that they took."""
        return self.metric if self.count else f"{self.metric}_sum"

    @property
    def seconds_per_unit(self) -> float:
        """The factor from the unit of `metric` to seconds."""
        return SECONDS_PER_UNIT[self.unit]


@dataclass(frozen=True, slots=True)
class OwnMappings:
    """The mappings that a jobs file gives one job, in place of the policy's. None: the policy's."""

    evaluation: EvaluationMapping | None = None
    responses: ResponseMapping | None = None


NO_OWN_MAPPINGS = OwnMappings()
