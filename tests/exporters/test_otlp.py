"""The contract by OTLP: the same names, types and labels as in a scrape, and receivers that do not take them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.sdk.metrics.export import MetricsData
from support.certificates import LOOPBACK, Authority
from support.receivers import HTML, Answer, PushReceiver
from support.training_fixtures import MakeReporter, Scrape, StartTraining
from support.waiting import eventually

from slopewise_exporter.otlp import EVERY_SECONDS, Otlp, pod_identity
from slopewise_exporter.values import Checker

PROTOBUF = {"Content-Type": "application/x-protobuf"}
TAKEN = Answer(200, b"", PROTOBUF)
POD = {"POD_NAMESPACE": "team", "POD_NAME": "digits-0"}


@pytest.fixture
def collector() -> Iterator[PushReceiver]:
    with PushReceiver() as receiver:
        receiver.answer = TAKEN
        yield receiver


@pytest.fixture
def variables(collector: PushReceiver) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, **POD}


@pytest.fixture
def train(make_reporter: MakeReporter, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> MakeReporter:
    """Makes a reporter that pushes twenty times a second."""
    monkeypatch.setattr("slopewise_exporter.otlp.interval_seconds", lambda *_: 0.05)

    def make(**arguments: object) -> object:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return make_reporter(**arguments)

    return make  # type: ignore[return-value]  # the reporter of `make_reporter`


def last(collector: PushReceiver) -> ExportMetricsServiceRequest:
    request: ExportMetricsServiceRequest = ExportMetricsServiceRequest.FromString(collector.pushed[-1].body)
    return request


def texts(attributes: object) -> dict[str, str]:
    pairs: list[KeyValue] = list(attributes)  # type: ignore[call-overload]
    return {pair.key: pair.value.string_value for pair in pairs}


def resource(request: ExportMetricsServiceRequest) -> dict[str, str]:
    return texts(request.resource_metrics[0].resource.attributes)


def received(request: ExportMetricsServiceRequest) -> list[Metric]:
    return list(request.resource_metrics[0].scope_metrics[0].metrics)


def series(request: ExportMetricsServiceRequest) -> dict[str, float]:
    """As `scrape` has it: `name{label="value"}` -> value; labels of the target are left out, and histograms."""
    found = {}
    for metric in received(request):
        kind = metric.WhichOneof("data") or ""
        for point in [] if kind == "histogram" else getattr(metric, kind).data_points:
            labels = {name: text for name, text in texts(point.attributes).items() if name not in ("namespace", "pod")}
            inner = ",".join(f'{name}="{text}"' for name, text in sorted(labels.items()))
            found[f"{metric.name}{{{inner}}}" if inner else metric.name] = point.as_double or float(point.as_int)
    return found


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def test_what_is_pushed_is_what_a_scrape_has(train: MakeReporter, collector: PushReceiver, scrape: Scrape) -> None:
    with train(planned_steps=10, framework="pytorch", model="mlp") as reporter:
        reporter.step(loss=2.0, samples=4)
        reporter.step(loss=1.0, samples=4)
        reporter.evaluate(0.5)
        with reporter.checkpoint():
            pass
        scraped = scrape(reporter.port)
        assert eventually(
            lambda: collector.pushed and "training_checkpoint_duration_seconds" in series(last(collector))
        )
        pushed = series(last(collector))
    ours = {name for name in scraped if name.startswith("training_") and "step_duration" not in name}
    assert {name: pushed.get(name) for name in ours} == {name: scraped[name] for name in ours}
    assert {"process_start_time_seconds", "process_cpu_seconds_total"} <= pushed.keys()


def test_counters_are_cumulative_sums_and_the_durations_of_steps_a_histogram(
    train: MakeReporter, collector: PushReceiver
) -> None:
    with train() as reporter:
        for _ in range(4):
            reporter.step(loss=1.0)
    by_name = {metric.name: metric for metric in received(last(collector))}
    steps = by_name["training_steps_total"].sum
    assert (steps.is_monotonic, steps.aggregation_temporality) == (True, 2)
    assert steps.data_points[0].start_time_unix_nano < steps.data_points[0].time_unix_nano
    assert by_name["training_state"].WhichOneof("data") == "gauge"
    histogram = by_name["training_step_duration_seconds"].histogram
    (point,) = histogram.data_points
    assert (histogram.aggregation_temporality, point.count, sum(point.bucket_counts)) == (2, 3, 3)
    assert (point.explicit_bounds[0], point.explicit_bounds[-1]) == (0.005, 30.0)
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    assert {metric.unit for metric in by_name.values()} == {""}


def test_each_point_has_the_labels_of_a_scrape_and_the_resource_has_the_pod(
    train: MakeReporter, collector: PushReceiver
) -> None:
    with train():
        pass
    points = [point for metric in received(last(collector)) for point in metric.gauge.data_points]
    assert {(texts(each.attributes)["namespace"], texts(each.attributes)["pod"]) for each in points} == {
        ("team", "digits-0")
    }
    found = resource(last(collector))
    assert (found["k8s.namespace.name"], found["k8s.pod.name"]) == ("team", "digits-0")
    assert (found["service.name"], found["service.instance.id"]) == ("training", "digits-0")


def test_what_the_variables_of_opentelemetry_say_of_the_resource_wins(
    train: MakeReporter, collector: PushReceiver, variables: dict[str, str]
) -> None:
    variables["OTEL_SERVICE_NAME"] = "digits"
    variables["OTEL_RESOURCE_ATTRIBUTES"] = "k8s.pod.name=other,k8s.namespace.name=place,service.instance.id=one"
    with train():
        pass
    found = resource(last(collector))
    assert (found["service.name"], found["service.instance.id"], found["k8s.pod.name"]) == ("digits", "one", "other")
    (point,) = next(each for each in received(last(collector)) if each.name == "training_info").gauge.data_points
    assert (texts(point.attributes)["namespace"], texts(point.attributes)["pod"]) == ("place", "other")


def test_the_address_for_metrics_is_used_as_it_is(
    train: MakeReporter, collector: PushReceiver, variables: dict[str, str]
) -> None:
    with train():
        pass
    assert {each.path for each in collector.pushed} == {"/v1/metrics"}
    collector.pushed.clear()
    variables["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"] = f"{collector.url}/api/v1/otlp/v1/metrics"
    with train():
        pass
    assert {each.path for each in collector.pushed} == {"/api/v1/otlp/v1/metrics"}


@pytest.mark.parametrize(
    ("variable", "text", "pushes"),
    [
        ("OTEL_SDK_DISABLED", "true", False),
        ("OTEL_METRICS_EXPORTER", "none", False),
        ("OTEL_METRICS_EXPORTER", "prometheus", False),
        ("OTEL_METRICS_EXPORTER", "console, otlp", True),
        ("OTEL_SDK_DISABLED", "false", True),
        ("OTEL_SDK_DISABLED", "what?", True),
    ],
)
def test_the_switches_of_opentelemetry_hold(
    train: MakeReporter, collector: PushReceiver, variables: dict[str, str], variable: str, text: str, pushes: bool
) -> None:
    variables[variable] = text
    with train():
        pass
    assert bool(collector.pushed) is pushes


def test_a_short_training_pushes_its_last_values_before_it_ends(
    start_training: StartTraining, collector: PushReceiver, variables: dict[str, str]
) -> None:
    script = """
from slopewise_exporter import Reporter
reporter = Reporter(planned_steps=3)
for loss in (3.0, 2.0, 1.0):
    reporter.step(loss=loss)
"""
    # No close(): the interpreter's end is enough. Pushed every 15 s otherwise.
    training = start_training(script, SLOPEWISE_EXPORTER_LINGER_SECONDS="0", **variables)
    _, errors = training.communicate(timeout=60)
    assert (training.returncode, errors) == (0, "")
    found = series(last(collector))
    assert (found["training_steps_total"], found['training_loss{stage="train"}']) == (3, 1.0)
    assert found['training_state{state="finished"}'] == 1


def test_after_a_kill_the_next_process_continues_the_series(
    start_training: StartTraining, collector: PushReceiver, variables: dict[str, str]
) -> None:
    script = """
import time
from slopewise_exporter import Reporter
reporter = Reporter()
{rest}
"""
    killed = start_training(script.format(rest="time.sleep(600)"), **variables)
    assert eventually(lambda: collector.pushed)
    killed.kill()
    killed.wait(60)
    first = last(collector)
    assert series(first)['training_state{state="starting"}'] == 1
    second = start_training(script.format(rest="reporter.close()"), **variables)
    _, errors = second.communicate(timeout=60)
    assert (second.returncode, errors) == (0, "")
    assert resource(last(collector)) == resource(first)
    started = "process_start_time_seconds"
    assert series(last(collector))[started] > series(first)[started]


def test_where_the_port_is_taken_and_the_home_cannot_be_written_metrics_are_pushed(
    start_training: StartTraining, collector: PushReceiver, variables: dict[str, str], make_reporter: MakeReporter
) -> None:
    taken = make_reporter().port
    script = """
from slopewise_exporter import Reporter
with Reporter() as reporter:
    reporter.step(loss=1.0)
"""
    training = start_training(script, HOME="/proc/1", TMPDIR="/proc/1", SLOPEWISE_EXPORTER_PORT=str(taken), **variables)
    _, errors = training.communicate(timeout=60)
    assert training.returncode == 0
    assert series(last(collector))["training_steps_total"] == 1
    assert errors.count("Metrics are pushed and not scraped") == 1


PARTIAL = ExportMetricsServiceResponse(
    partial_success=ExportMetricsPartialSuccess(rejected_data_points=2, error_message="out of order")
)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (HTML, "answered 200 with text/html; charset=utf-8, and is no OTLP receiver"),
        (Answer(404, b"otlp write receiver needs to be enabled", {}), "404 (otlp write receiver needs to be enabled)"),
        (Answer(503, b"", {"Retry-After": "600"}), "answered 503 (Service Unavailable)"),
        (Answer(200, PARTIAL.SerializeToString(), PROTOBUF), "rejects a part of them: 2 points: out of order"),
    ],
)
def test_an_answer_that_is_a_refusal_is_in_the_log_once_and_the_training_goes_on(
    train: MakeReporter, collector: PushReceiver, caplog: pytest.LogCaptureFixture, answer: Answer, reason: str
) -> None:
    collector.answer = answer
    with train() as reporter:
        reporter.step(loss=1.0)
        assert eventually(lambda: len(collector.pushed) > 2)
    (line,) = told(caplog)
    assert line.startswith("metrics by OTLP are not sent: ")
    assert reason in line
    assert line.endswith("; it is tried every 0.05 s, and the training goes on")


def test_no_collector_at_all(
    train: MakeReporter, variables: dict[str, str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slopewise_exporter.push.FLUSH_SECONDS", 0.5)
    variables["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:9"
    variables["OTEL_EXPORTER_OTLP_TIMEOUT"] = "1"

    def of_it() -> list[str]:
        # The last try of an earlier test's thread may come only now.
        return [line for line in told(caplog) if "http://127.0.0.1:9/" in line]

    with train() as reporter:
        reporter.step(loss=1.0)
        assert eventually(lambda: of_it())
    (line,) = of_it()
    assert "refused" in line


def test_a_collector_with_a_certificate_of_another_authority(
    train: MakeReporter, variables: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with PushReceiver(Authority(tmp_path).sign("server", *LOOPBACK)) as locked:
        variables["OTEL_EXPORTER_OTLP_ENDPOINT"] = locked.url
        variables["OTEL_EXPORTER_OTLP_CERTIFICATE"] = str(Authority(tmp_path / "other").certificate)
        variables["OTEL_EXPORTER_OTLP_TIMEOUT"] = "1"
        with train():
            assert eventually(lambda: "are not sent" in caplog.text)
        assert locked.pushed == []
    assert "CERTIFICATE_VERIFY_FAILED" in caplog.text


def test_without_the_sdk_one_line_says_what_to_install(
    train: MakeReporter, collector: PushReceiver, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.metric_exporter", None)
    with train() as reporter:
        reporter.step(loss=1.0)
        assert eventually(lambda: told(caplog))
    (line,) = told(caplog)
    assert line.startswith("metrics by OTLP cannot be sent: OTEL_EXPORTER_OTLP_ENDPOINT is set, and ")
    assert "install slopewise-exporter[otlp]" in line
    assert collector.pushed == []


def test_grpc_is_a_package_of_its_own(
    train: MakeReporter, variables: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    variables["OTEL_EXPORTER_OTLP_PROTOCOL"] = "grpc"
    with train():
        assert eventually(lambda: told(caplog))
    assert "opentelemetry-exporter-otlp-proto-grpc" in caplog.text


def test_what_others_export_in_the_same_process_keeps_its_log(
    train: MakeReporter, collector: PushReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    with train():
        assert eventually(lambda: collector.pushed)
        OTLPMetricExporter(endpoint="http://127.0.0.1:9/v1/metrics", timeout=0.1).export(MetricsData([]))
    assert [each for each in caplog.records if each.name.startswith("opentelemetry")]


def test_a_pod_without_a_name_says_what_to_set(
    train: MakeReporter, variables: dict[str, str], caplog: pytest.LogCaptureFixture, collector: PushReceiver
) -> None:
    variables.update({"POD_NAME": "", "JOB_COMPLETION_INDEX": "0", "KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    with train():
        assert eventually(lambda: collector.pushed)
    (line,) = told(caplog)
    assert "set POD_NAME and POD_NAMESPACE from the downward API" in line


@pytest.mark.parametrize(("text", "seconds"), [("", EVERY_SECONDS), ("5000", 5.0), ("1", 1.0), ("soon", EVERY_SECONDS)])
def test_the_interval_is_in_milliseconds_and_at_least_a_second(text: str, seconds: float) -> None:
    assert Otlp({"OTEL_METRIC_EXPORT_INTERVAL": text}, Checker(), list).every_seconds == seconds


def test_in_a_cluster_the_namespace_is_that_of_the_service_account(tmp_path: Path) -> None:
    (tmp_path / "namespace").write_text("team\n")
    cluster = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    found = pod_identity({**cluster, "POD_NAME": "a"}, {}, tmp_path / "namespace")
    assert found.labels == {"namespace": "team", "pod": "a"}
    assert pod_identity({**cluster, "POD_NAME": "a"}, {}, tmp_path / "none").labels == {"pod": "a"}
    assert pod_identity({"POD_NAME": "a"}, {}, tmp_path / "namespace").labels == {"pod": "a"}


def test_the_name_of_the_host_is_that_of_the_pod_unless_it_is_an_indexed_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "digits-0")
    cluster = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "POD_NAMESPACE": "team"}
    assert pod_identity(cluster, {}).name == "digits-0"
    assert pod_identity({**cluster, "JOB_COMPLETION_INDEX": "0"}, {}).name == ""
    assert pod_identity({}, {}).labels == {}
    assert pod_identity({}, {}).attributes["service.instance.id"].startswith("digits-0:")
