"""Real pods, real kubelets and a real Prometheus become a snapshot; what pods claim of each other does not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.cluster import Kubectl, PodShape
from support.waiting import eventually, wait_for

from slopewise.adapters.clock import SystemClock
from slopewise.adapters.kube.cache.parsing import parse_node, parse_object, parse_pod
from slopewise.adapters.kube.cache.records import MANAGED_LABEL
from slopewise.adapters.kube.cache.reflector import Reflector
from slopewise.adapters.kube.client.client import KubeApi
from slopewise.adapters.kube.observer import KubeObserver, Stores
from slopewise.adapters.kube.workloads.job_facts import trainer_under
from slopewise.adapters.kube.workloads.owners import Owners, WatchedJobIndex
from slopewise.adapters.prometheus.queries import AnyOf
from slopewise.adapters.prometheus.reader import PrometheusReader
from slopewise.config.training_policy import EvaluationSettings, TrainingPolicySpec
from slopewise.model import CpuAllocation, Job, JobState

SCRAPE_SECONDS = 5.0


TRAINER = """
import http.server, threading, time
started = time.time()
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        steps = time.time() - started
        of_victim = '{container="trainer",namespace="VICTIM",pod="victim"}'
        lines = [
            'training_loss{stage="eval"} %f' % (1 / (1 + steps)),
            'training_steps_total %f' % steps,
            'training_steps_planned 1000',
            'training_state{state="training"} 1',
            'process_start_time_seconds %f' % started,
            'container_cpu_usage_seconds_total%s 999999' % of_victim,
            '',
        ]
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(chr(10).join(lines).encode())
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("", 9464), Page)
threading.Thread(target=server.serve_forever, daemon=True).start()
while True: pass
"""


@dataclass
class World:
    """An observer over the real cluster, and what it asked of the API server."""

    observer: KubeObserver
    index: WatchedJobIndex
    requests: list[tuple[str, str]]

    def jobs(self) -> dict[str, Job]:
        return {job.name: job for job in self.observer.observe().snapshot.jobs}

    def wait_for(self, pod: str, done: Callable[[Job], object], seconds: float = 180) -> Job:
        found = wait_for(pod, lambda: self.jobs().get(pod), lambda job: job is not None and done(job), seconds)
        assert found is not None
        return found


@pytest.fixture
def watched(kubeconfig: Path, prometheus_url: str, namespace: str) -> Iterator[Callable[..., World]]:
    """Makes an observer of the test's namespace under a policy."""
    with ExitStack() as stack:

        def observe(**spec: Any) -> World:
            requests: list[tuple[str, str]] = []
            api = KubeApi.connect(
                kubeconfig=str(kubeconfig), on_request=lambda verb, resource, *_: requests.append((verb, resource))
            )
            stack.callback(api.close)
            only_managed = {"labelSelector": f"{MANAGED_LABEL}=true"}
            pods = Reflector(api, f"/api/v1/namespaces/{namespace}/pods", parse_pod, params=only_managed)
            nodes = Reflector(api, "/api/v1/nodes", parse_node)
            jobs = Reflector(api, "/apis/batch/v1/jobs", parse_object, metadata_only=True)
            for reflector in (pods, nodes, jobs):
                reflector.start()
                stack.callback(reflector.stop)
                assert eventually(partial(getattr, reflector, "synced"))
            reader = stack.enter_context(
                PrometheusReader(
                    prometheus_url, {"pod": AnyOf()}, SCRAPE_SECONDS, [EvaluationSettings()], 20.0, resource_matchers={}
                )
            )
            policy = TrainingPolicySpec.model_validate(spec)
            owners = Owners(jobs, api)
            index = WatchedJobIndex(pods, owners, trainer_under(policy))
            observer = KubeObserver(
                Stores(pods, nodes, None), owners, index, reader, lambda _: True, policy, SystemClock()
            )
            return World(observer, index, requests)

        yield observe


def test_a_training_is_seen_with_its_loss_its_use_and_its_throttling(
    watched: Callable[..., World], kubectl: Kubectl, namespace: str, idle: PodShape
) -> None:
    world = watched()
    command = ("python3", "-c", TRAINER.replace("VICTIM", namespace))
    shape = replace(idle, command=command, metrics_port=9464, cpu_request="100m", cpu_limit="200m")
    victim = replace(idle, annotations={"slopewise.dev/deadline": "2h", "slopewise.dev/weight": "much"})
    kubectl.apply(shape.job("train"), victim.pod("victim"), namespace=namespace)
    (pod,) = wait_for(
        "the job's pod",
        lambda: kubectl.get("pods", "-n", namespace, "-l", "job-name=train")["items"],
        lambda items: len(items) == 1,
    )
    name = pod["metadata"]["name"]

    def whole(job: Job) -> bool:
        container_health = job.container_health
        return bool(
            job.evaluation and job.evaluation.sample_count >= 4 and job.usage and container_health
            and (container_health.cpu_throttled_periods_total or 0) > 50
        )  # fmt: skip

    job = world.wait_for(name, whole)
    owner = kubectl.get("job", "train", "-n", namespace)["metadata"]["uid"]
    assert (job.uid, job.state, job.ineligible_reason) == (f"{owner}:0", JobState.TRAINING, None)
    assert job.allocation == CpuAllocation(200, 100)
    assert job.evaluation is not None
    assert job.evaluation.series == 'training_loss{stage="eval"}'
    assert 0 < job.evaluation.level < 1
    assert job.usage is not None
    assert 0 < (job.usage.cpu_seconds_total or 0) < 60
    assert (job.usage.memory_bytes or 0) > 2**20
    assert 0 <= time.time() - job.usage.sampled_at_seconds < 60
    other = world.wait_for("victim", lambda job: job.usage is not None)
    assert other.usage is not None
    assert other.usage.cpu_seconds_total is not None
    assert other.usage.cpu_seconds_total < 10, "what the trainer exports of its neighbour is not believed"
    assert other.objectives.deadline_at_seconds == other.started_at_seconds + 7200
    assert other.warnings[0].startswith("annotation slopewise.dev/weight is not used")
    world.requests.clear()
    world.jobs()
    assert [request for request in world.requests if request[0] != "WATCH"] == []
