"""What model servers and trainers of other projects export, in the format that their sources have.

Every page is of a process that has answered 40 requests in 8 seconds, or that has trained 120 steps to a loss of 1.5.
"""

from __future__ import annotations

from slopewise.config.metric_mappings import EvaluationPreset, ResponsePreset


def histogram(name: str, labels: str, count: int, total: float) -> str:
    """A histogram as prometheus_client writes it, of a few buckets."""
    extra = f"{labels}," if labels else ""
    return (
        f"# HELP {name} of a served model\n# TYPE {name} histogram\n"
        f'{name}_bucket{{{extra}le="0.5"}} {count}\n{name}_bucket{{{extra}le="+Inf"}} {count}\n'
        f"{name}_count{{{labels}}} {count}\n{name}_sum{{{labels}}} {total}\n"
    )


_VLLM = 'engine="0",model_name="facebook/opt-125m"'
_REPLICA = 'application="default",deployment="Translator",replica="a1b2c3",route="/"'
_PROXY = 'application="default",method="POST",route="/"'
_TORCHSERVE = 'model_name="mnist",model_version="1.0",hostname="serve-0",'

SERVERS: dict[ResponsePreset, str] = {
    "vllm": histogram("vllm:e2e_request_latency_seconds", _VLLM, 40, 8.0)
    + histogram("vllm:time_to_first_token_seconds", _VLLM, 40, 0.4)
    + f"""\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{{_VLLM}}} 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{{_VLLM}}} 1.0
# TYPE vllm:request_success_total counter
vllm:request_success_total{{{_VLLM},finished_reason="stop"}} 39.0
vllm:request_success_total{{{_VLLM},finished_reason="abort"}} 1.0
""",
    "triton": """\
# HELP nv_inference_request_success Number of successful inference requests, all batch sizes
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="resnet50",version="1"} 30
nv_inference_request_success{model="resnet50",version="2"} 10
# TYPE nv_inference_request_failure counter
nv_inference_request_failure{model="resnet50",reason="BACKEND",version="1"} 3
nv_inference_request_failure{model="resnet50",reason="CANCELED",version="1"} 1
# TYPE nv_inference_request_duration_us counter
nv_inference_request_duration_us{model="resnet50",version="1"} 6000000
nv_inference_request_duration_us{model="resnet50",version="2"} 2000000
# TYPE nv_inference_queue_duration_us counter
nv_inference_queue_duration_us{model="resnet50",version="1"} 500000
# TYPE nv_inference_pending_request_count gauge
nv_inference_pending_request_count{model="resnet50",version="1"} 0
""",
    "torchserve": f"""\
# HELP ts_inference_requests_total Torchserve prometheus counter metric with unit: Count
# TYPE ts_inference_requests_total counter
ts_inference_requests_total{{{_TORCHSERVE}}} 40.0
# TYPE ts_inference_latency_microseconds counter
ts_inference_latency_microseconds{{{_TORCHSERVE}}} 8000000.0
# TYPE ts_queue_latency_microseconds counter
ts_queue_latency_microseconds{{{_TORCHSERVE}}} 1234.5
# TYPE Requests2XX counter
Requests2XX{{Level="Host",Hostname="serve-0",}} 41.0
""",
    "kserve": histogram("request_preprocess_seconds", 'model_name="iris"', 40, 0.01)
    + histogram("request_predict_seconds", 'model_name="iris"', 40, 8.0)
    + histogram("request_postprocess_seconds", 'model_name="iris"', 40, 0.01),
    "ray-serve": histogram("ray_serve_deployment_processing_latency_ms", _REPLICA, 40, 8000.0)
    + f"""\
# TYPE ray_serve_replica_processing_queries gauge
ray_serve_replica_processing_queries{{{_REPLICA}}} 3.0
# TYPE ray_serve_deployment_error_counter_total counter
ray_serve_deployment_error_counter_total{{{_REPLICA}}} 1.0
""",
    "ray-serve-proxy": histogram("ray_serve_http_request_latency_ms", f'{_PROXY},status_code="200"', 40, 8000.0)
    + histogram("ray_serve_http_request_latency_ms", f'{_PROXY},status_code="503"', 5, 50.0)
    + """\
# TYPE ray_serve_num_ongoing_http_requests gauge
ray_serve_num_ongoing_http_requests{node_id="a1",node_ip_address="10.0.0.1"} 3.0
""",
}

_OTEL = 'otel_scope_name="axolotl.training",otel_scope_schema_url="",otel_scope_version=""'

TRAINERS: dict[EvaluationPreset, str] = {
    "axolotl": f"""\
# HELP axolotl_train_loss Current training loss
# TYPE axolotl_train_loss gauge
axolotl_train_loss{{{_OTEL}}} 1.5
# TYPE axolotl_global_steps_total counter
axolotl_global_steps_total{{{_OTEL}}} 120.0
""",
    "megatron": """\
# HELP megatron_training_loss Training loss value at each log interval.
# TYPE megatron_training_loss gauge
megatron_training_loss{otel_scope_name="megatron"} 1.5
# TYPE megatron_training_grad_norm gauge
megatron_training_grad_norm{otel_scope_name="megatron"} 0.25
""",
    "prime-rl": """\
# HELP trainer_step Current training step
# TYPE trainer_step gauge
trainer_step 120.0
# HELP trainer_loss Current training loss
# TYPE trainer_loss gauge
trainer_loss 1.5
""",
}
