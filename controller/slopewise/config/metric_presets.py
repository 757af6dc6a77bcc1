"""Names of other people's metrics, as their sources have them: what `preset:` fills in.

docs/exporters-mappings.md has the sources. A preset is a mapping as a user would write it. It holds only names that
were found in the source of the project; a framework that exports no loss to Prometheus has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

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
