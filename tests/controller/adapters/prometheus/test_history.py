"""The past of jobs, as a real Prometheus has it: who was there and when, losses, use, requests, GPUs, nodes."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

import pytest
from support.backfilled_prometheus import GIB, STATE, PastJob, Series, backfilled, node, targets
from support.fake_prometheus import FakePrometheus, answer
from support.loopback import send
from support.past_jobs import fast, straight

from slopewise.adapters.http.config import Endpoint
from slopewise.adapters.local.prometheus_server import PrometheusBinaries
from slopewise.adapters.prometheus.evaluations import JobKey
from slopewise.adapters.prometheus.history import POINTS_PER_JOB, JobHistory, Lifetime, Period, PrometheusHistory
from slopewise.errors import ObservationError, UsageError

HOUR = 3600.0
LOCAL = {"namespace": "team", "pod": "local-0", "node": "laptop", "job": "slopewise", "instance": "127.0.0.1:9464"}


def history(url: str, hours: float = 24, *, max_jobs: int = 100, **more: object) -> PrometheusHistory:
    now = time.time()
    period = Period(now - hours * HOUR, now)
    known = {"metric": "training_loss", "timeout_seconds": 30.0, **more}
    return PrometheusHistory(Endpoint(url), period, max_jobs=max_jobs, **known)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def start() -> float:
    return time.time() - 20 * HOUR


@pytest.fixture(scope="module")
def url(
    prometheus_binaries: PrometheusBinaries, tmp_path_factory: pytest.TempPathFactory, start: float
) -> Iterator[str]:
    jobs = [
        PastJob("plain-0", start, 4, loss=fast, cores=1.5, throttled=0.4, threads=64),
        PastJob("gpu-0", start, 4, loss=fast, gpus=2, gpu_use=0.3, exported=True, node="node-b"),
        PastJob("silent-0", start + HOUR, 2, gpus=1),
        PastJob("gap-0", start, 5, loss=straight, gap_ratio=(0.4, 0.6)),
        PastJob("brief-0", start + 2 * HOUR, 0.1, loss=fast, every_seconds=15),
        PastJob("now-0", time.time() - HOUR, 0.995, loss=fast),
        PastJob("elsewhere-0", start, 2, loss=fast, namespace="other"),
        PastJob('od"d.*\\pod', start, 2, loss=fast),
        PastJob("od-d.*-pod", start, 2),
    ]
    own = {"namespace": "team", "pod": "plain-0", "job": "trainers", "instance": "plain-0:9464"}
    more = [
        node("node-a", 8, start, 10 * HOUR),
        Series("training_loss", {**own, "stage": "train"}, start, 4 * HOUR, lambda _: 99.0),
        Series("training_loss", {**own, "namespace": "other", "pod": "elsewhere-0", "stage": "eval"}, start, 2 * HOUR,
               lambda _: 7.0),
        Series("training_steps_planned", own, start, 4 * HOUR, lambda _: 20_000.0),
        Series("training_wait_seconds_total", own, start, 4 * HOUR, lambda at: 0.3 * at),
        Series("training_step_duration_seconds_sum", own, start, 4 * HOUR, lambda at: at),
        Series("training_info", {**own, "objective": "max"}, start, 4 * HOUR, lambda _: 1.0),
        Series("DCGM_FI_DEV_GPU_UTIL", {"namespace": "monitoring", "pod": "dcgm-0", "job": "dcgm",
               "instance": "10.0.0.3:9400", "gpu": "7"}, start, 4 * HOUR, lambda _: 0.0),
        Series("container_cpu_usage_seconds_total", {"namespace": "team", "pod": "plain-0", "container": "trainer",
               "job": "trainers", "instance": "plain-0:9464"}, start, 4 * HOUR, lambda at: 100 * at),
        Series("training_loss", LOCAL, start, 2 * HOUR, lambda at: fast(at / (2 * HOUR)), 30),
        Series("process_cpu_seconds_total", LOCAL, start, 2 * HOUR, lambda at: 0.5 * at, 30),
        Series("process_resident_memory_bytes", LOCAL, start, 2 * HOUR, lambda _: 3 * GIB, 30),
        Series("kube_pod_container_resource_requests", {"namespace": "team", "pod": "over-0", "container": "c",
               "node": "node-a", "resource": "cpu", **STATE}, start, 4 * HOUR, lambda _: 64.0),
        Series("val_loss", {**own}, time.time() - 1800, 1700, lambda _: 1.0),
    ]  # fmt: skip
    liar, below, untimed = ({**own, "pod": pod} for pod in ("gpu-0", "silent-0", "gap-0"))
    steps = "training_step_duration_seconds_sum"
    more += [Series(steps, each, start, 4 * HOUR, lambda at: at) for each in (liar, below, untimed)]
    more.append(Series("training_wait_seconds_total", untimed, start, 4 * HOUR, lambda _: 0.0))
    more.append(Series("training_wait_seconds_total", liar, start, 4 * HOUR, lambda _: 1e9))
    more.append(Series("training_wait_seconds_total", below, start, 4 * HOUR, lambda _: -1e9))
    up_of_pod = Series("up", own, start, 4 * HOUR, lambda _: 1.0)
    every = [*(each for job in jobs for each in job.series()), *targets(start, 20 * HOUR), *more, up_of_pod]
    # kube-state-metrics has been restarted, on another node of which its target has the label.
    again = {"pod": "state-1", "instance": "10.0.0.4:8080", "node": "node-c"}
    every += [
        replace(each, labels={**each.labels, **again, "exported_node": "node-b"}, start_seconds=start + 2 * HOUR)
        for each in every
        if each.name.startswith("kube_pod") and each.labels.get("exported_pod") == "gpu-0"
    ]
    with backfilled(prometheus_binaries, tmp_path_factory.mktemp("prometheus"), every) as url:
        yield url


@pytest.fixture(scope="module")
def jobs(url: str) -> dict[str, JobHistory]:
    reader = history(url)
    return {job.pod: job for job in reader.read(reader.find())}


@pytest.mark.processes
class TestARealPrometheus:
    """All tests read one Prometheus."""

    def test_every_job_is_found_and_no_exporter(self, jobs: dict[str, JobHistory], url: str) -> None:
        assert {each.key.namespace for each in history(url, namespaces=["other"]).find()} == {"other"}
        assert sorted(jobs) == sorted(
            ["plain-0", "gpu-0", "silent-0", "gap-0", "brief-0", "now-0", "elsewhere-0", "local-0", 'od"d.*\\pod']
        )

    def test_when_it_ran(self, jobs: dict[str, JobHistory], start: float) -> None:
        job = jobs["plain-0"]
        assert job.from_seconds == pytest.approx(start, abs=120)
        assert job.until_seconds == pytest.approx(start + 4 * HOUR, abs=240)
        assert [name for name, each in jobs.items() if each.still_running] == ["now-0"]
        assert jobs["gap-0"].seconds == pytest.approx(5 * HOUR, abs=300), "a gap is no end"
        assert jobs["brief-0"].step_seconds == 5
        assert jobs["brief-0"].seconds == pytest.approx(360, abs=200)
        assert all(len(job.loss) <= POINTS_PER_JOB for job in jobs.values())

    def test_the_best_stage_is_its_loss(self, jobs: dict[str, JobHistory]) -> None:
        loss = jobs["plain-0"].loss
        assert loss[0, 1] == pytest.approx(2.3, abs=0.05)
        assert loss[-1, 1] == pytest.approx(0.3, abs=0.01)
        assert len(jobs["plain-0"].training_loss) == 0, "no loss is on held-out data"
        assert (jobs["elsewhere-0"].loss[:, 1] == 7).all()
        assert jobs["elsewhere-0"].training_loss[-1, 1] == pytest.approx(0.3, abs=0.01)
        assert len(jobs['od"d.*\\pod'].loss) > 100, "names are no patterns"
        assert (len(jobs["silent-0"].loss), jobs["silent-0"].gpus) == (0, 1)

    def test_use_is_the_kubelets_and_no_pod_can_forge_it(self, jobs: dict[str, JobHistory]) -> None:
        job = jobs["plain-0"]
        assert job.cpu_cores[:, 1].mean() == pytest.approx(1.5, rel=0.01)
        assert job.throttled_ratio[:, 1].mean() == pytest.approx(0.4, rel=0.01)
        assert job.memory_bytes[:, 1].max() == GIB
        assert (job.threads[:, 1] == 64).all()
        without = jobs["local-0"]  # its process says what it uses
        assert without.cpu_cores[:, 1].mean() == pytest.approx(0.5, rel=0.03)  # the first rates lack samples
        assert (without.memory_bytes[:, 1].max(), without.requests.cpu_cores) == (3 * GIB, None)

    def test_requests_limits_plan_objective_and_node(self, jobs: dict[str, JobHistory]) -> None:
        job = jobs["plain-0"]
        assert (job.requests.cpu_cores, job.requests.memory_bytes, job.limits.cpu_cores) == (2, 4 * GIB, 4)
        assert (job.steps.planned, job.objective, job.node, job.gpus) == (20_000, "max", "node-a", 0)
        assert (jobs["gap-0"].objective, jobs["local-0"].node) == ("min", "laptop")
        job = jobs["gpu-0"]  # its exporters are scraped without honouring labels
        assert (job.gpus, job.node, job.requests.cpu_cores) == (2, "node-b", 2)
        assert job.gpu_use_ratio[:, 1].mean() == pytest.approx(0.3)

    def test_how_long_its_steps_waited_for_their_batches(self, jobs: dict[str, JobHistory]) -> None:
        assert jobs["plain-0"].wait_ratio == pytest.approx(0.3, rel=0.01)
        assert jobs["gap-0"].wait_ratio is None, "its loop times no waits"
        assert (jobs["gpu-0"].wait_ratio, jobs["silent-0"].wait_ratio) == (1.0, None), "no steps can have these waits"

    def test_more_jobs_than_allowed_are_refused_with_the_way_out(self, url: str) -> None:
        for most, found in ((3, "6 jobs"), (7, "more than 7 jobs")):  # at one moment, and in all
            with pytest.raises(UsageError, match=rf"has {found} of training_loss.*raise --max-jobs\."):
                history(url, max_jobs=most).find()

    def test_what_running_pods_request_of_a_node_at_a_moment(self, url: str, start: float) -> None:
        """`plain-0` and `gap-0` on one node, `gpu-0` on the other; a pod that has ended requests nothing."""
        found = history(url).requested_cores()
        newest = {name: points[points[:, 0] < start + 3.5 * HOUR][-1, 1] for name, points in found.items()}
        assert newest == {"node-a": 4, "node-b": 2}
        assert (history(url).loss_names(), history(url).node_cores()) == (["val_loss"], {"node-a": 8})


def test_a_million_series_are_refused_before_they_are_read(fake: FakePrometheus) -> None:
    rows = [
        {"metric": {"slopewise_value": "series"}, "values": [[1, "10"], [2, "1000000"]]},
        {"metric": {"slopewise_value": "jobs"}, "values": [[1, "10"], [2, "50"]]},
    ]
    fake.respond = answer({"status": "success", "data": {"resultType": "matrix", "result": rows}})
    with pytest.raises(UsageError, match=r"has 1,000,000 series of training_loss, and at most 200,000 series"):
        history(fake.url).find()
    assert len(fake.asked) == 1


def test_every_request_fits_the_url_of_a_proxy_and_the_bound_of_points(fake: FakePrometheus) -> None:
    """Pods with the longest usual names, of a month."""
    lengths: list[int] = []
    steps: list[float] = []

    def respond(handler: BaseHTTPRequestHandler) -> None:
        lengths.append(len(handler.path))
        asked = {name: values[0] for name, values in parse_qs(urlsplit(handler.path).query).items()}
        if "step" in asked:
            steps.append((float(asked["end"]) - float(asked["start"])) / float(asked["step"]))
        body = {"status": "success", "data": {"resultType": "matrix" if "step" in asked else "vector", "result": []}}
        send(handler, 200, json.dumps(body).encode())

    fake.respond = respond
    reader = history(fake.url, 30 * 24)
    end = reader.period.until_seconds
    names = [f"experiment-{number:04}-resnet-152-imagenet-worker-{number % 8}" for number in range(100)]
    lifetimes = [
        Lifetime(JobKey("team", name), end - 3600.0 * (number + 1), end, reports_loss=True)
        for number, name in enumerate(names)
    ]
    assert list(reader.find()) == []
    assert list(reader.read(lifetimes)) == []
    assert max(lengths) < 16 * 1024
    assert max(steps) < 11_000


def _answer_as_prometheus_does(jobs: Mapping[str, tuple[float, float]], handler: BaseHTTPRequestHandler) -> None:
    """Points at start, start + step and so on, none beyond the end; a job is there where its window holds any of it."""
    asked = {name: values[0] for name, values in parse_qs(urlsplit(handler.path).query).items()}
    start, end, step = (round(1000 * float(asked[name])) for name in ("start", "end", "step"))
    windows = re.search(r"present_over_time\(training_loss.*\[(\d+)ms\]", asked["query"])
    window = int(windows[1]) if windows else 0
    found = []
    for name, (since, until) in jobs.items() if window else ():
        first = start + step * max(0, math.ceil((1000 * since - start) / step))
        points = range(first, min(end + 1, math.ceil(1000 * until + window)), step)
        if points:
            row = {"metric": {"namespace": "team", "pod": name}, "values": [[at / 1000, "1"] for at in points]}
            found.append(row)
    send(handler, 200, json.dumps({"status": "success", "data": {"resultType": "matrix", "result": found}}).encode())


@pytest.mark.parametrize("hours", [1, 2, 7, 25, 100, 168, 719])
def test_a_job_is_found_whole_wherever_in_the_period_it_ran(fake: FakePrometheus, hours: int) -> None:
    """Ten-minute jobs one after the other, to the end of the period; its ends are no whole seconds."""
    until = 1_790_000_000.4567
    brief = 600.0
    begins = [until - brief * number for number in range(min(6 * hours, 1000), 0, -1)]
    ran = {f"job-{number}": (begin, begin + brief - 1) for number, begin in enumerate(begins)}
    fake.respond = partial(_answer_as_prometheus_does, ran)
    period = Period(until - hours * HOUR, until)
    reader = PrometheusHistory(Endpoint(fake.url), period, metric="training_loss", max_jobs=2000, timeout_seconds=30)
    found = {each.key.pod: each for each in reader.find()}
    assert sorted(found) == sorted(ran)
    for name, (begin, end) in ran.items():
        assert found[name].from_seconds <= begin + 1, name
        assert found[name].until_seconds >= end, name
    searched = [each for each in fake.asked if "present_over_time(training_loss" in each["query"]]
    assert {float(each["step"]) % 1 for each in searched} == {0}


def test_the_last_point_of_a_jobs_values_is_at_its_end(fake: FakePrometheus) -> None:
    """A point before it would leave out the samples between the two."""
    fake.respond = partial(_answer_as_prometheus_does, {})
    until = 1_790_000_000.0
    job = Lifetime(JobKey("team", "job-0"), until - 20_000, until - 7_777, reports_loss=True)
    reader = PrometheusHistory(
        Endpoint(fake.url), Period(until - 24 * HOUR, until), metric="training_loss", max_jobs=10, timeout_seconds=30
    )
    with suppress(ObservationError):  # the facts are no matrix
        list(reader.read([job]))
    start, end, step = (float(fake.asked[0][name]) for name in ("start", "end", "step"))
    assert end == job.until_seconds
    assert (end - start) % step == 0
    assert start <= job.from_seconds


@pytest.mark.parametrize("metric", ["loss{}", "a b", ""])
def test_a_metric_is_a_name_and_no_query(metric: str) -> None:
    with pytest.raises(UsageError, match="is not a metric name"):
        history("http://127.0.0.1:9", metric=metric)
