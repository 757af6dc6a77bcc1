"""Jobs that time no waits: what DCGM's exporter and kubelets say of them in a real Prometheus, down to their need.

Their own exporter says that they waited 0 s.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.backfilled_prometheus import DCGM, KUBELET, PastJob, Series, backfilled, targets
from support.cluster_records import a_container, a_pod, owned_by
from support.past_jobs import fast
from support.worlds import a_snapshot

from slopewise.adapters.kube.snapshot import jobs
from slopewise.adapters.kube.workloads.job_facts import facts_of
from slopewise.adapters.kube.workloads.owners import Identity
from slopewise.adapters.local.prometheus_server import PrometheusBinaries
from slopewise.adapters.prometheus.queries import AnyOf
from slopewise.adapters.prometheus.reader import PrometheusReader, Scope
from slopewise.config.training_policy import EvaluationSettings, TrainingPolicySpec
from slopewise.estimators import pace
from slopewise.estimators.gpu_need import UNKNOWN, gpu_need
from slopewise.model import ClusterSnapshot, MemoryState
from slopewise.tracking import FirstSeen

INTERVAL = 20.0
HOURS = 0.1
SPEC = TrainingPolicySpec.model_validate({"resources": {"control": "limits", "accelerators": "Raise"}})
FACTS = {
    "throttled": (0.3, 0.5, 0.0),
    "pressed": (0.3, 0.0, 0.5),
    "has-enough": (0.3, 0.0, 0.0),
    "busy": (0.95, 0.5, 0.5),
}
"""Of each job the use of its device, and the parts of the time in which it was throttled and under CPU pressure."""


def past(start: float) -> list[Series]:
    """Half of the jobs are named by DCGM's exporter with its own labels, half by those that the scrape moved away."""
    seconds, found = 3600 * HOURS, list(targets(start, 3600 * HOURS))
    for number, (pod, (use, throttled, pressed)) in enumerate(FACTS.items()):
        job = PastJob(
            pod, start, HOURS, loss=fast, cores=2.0, throttled=throttled, gpus=1, gpu_use=use, every_seconds=5.0,
            exported=number % 2 == 0,
        )  # fmt: skip
        labels = {"namespace": "team", "pod": pod, "container": "trainer", **KUBELET}
        name = "container_pressure_cpu_waiting_seconds_total"
        found += [*job.series(), Series(name, labels, start, seconds, lambda at, part=pressed: part * at, 5.0)]  # type: ignore[misc]
        own = {"namespace": "team", "pod": pod, "job": "trainers", "instance": f"{pod}:9464"}
        found.append(Series("training_wait_seconds_total", own, start, seconds, lambda _: 0.0, 5.0))
    forged = {"exported_namespace": "team", "exported_pod": "throttled", "namespace": "rival", "pod": "liar"}
    return [*found, Series("DCGM_FI_DEV_GPU_UTIL", {**DCGM, **forged}, start, seconds, lambda _: 100.0, 5.0)]


def seen(reader: PrometheusReader, at_seconds: float) -> ClusterSnapshot:
    """The jobs as an observer of a cluster sees them, on 3 cores each."""
    reading = reader.read(at_seconds, Scope(("rival", "team"), ("trainer",)))
    pods = [a_pod(name, a_container(limit=3000), accelerators=1.0) for name in FACTS]
    facts = [facts_of(Identity(owned_by("Job", pod.name, pod.name), "0"), pod, None, None, SPEC) for pod in pods]
    return a_snapshot(list(jobs(facts, reading, at_seconds, FirstSeen(), {})), at=at_seconds)


@pytest.mark.processes
def test_an_idle_device_and_a_shortage_of_cpu_say_the_direction_and_no_rival_can_deny_it(
    prometheus_binaries: PrometheusBinaries, tmp_path: Path
) -> None:
    start, memory = time.time() - 3600, MemoryState()
    with (
        backfilled(prometheus_binaries, tmp_path / "prometheus", past(start)) as url,
        PrometheusReader(
            url, {"namespace": AnyOf()}, 5.0, [EvaluationSettings()], INTERVAL, resource_matchers={}
        ) as reader,
    ):
        for number in range(5):
            snapshot = seen(reader, start + 200 + number * INTERVAL)
            memory = pace.measure(snapshot, memory, INTERVAL)
    needs = {job.name: gpu_need(job, memory.jobs[job.uid]) for job in snapshot.jobs}
    short, nothing = needs["throttled"], dict.fromkeys(("has-enough", "busy"), UNKNOWN)
    assert [job.gpu_use for job in snapshot.jobs] == pytest.approx([use for use, _, _ in FACTS.values()])
    assert {job.waited_seconds_total for job in snapshot.jobs} == {None}
    assert (short.limiting, short.useful_cores, short.gpu_seconds) == ("cpu", 1.25 * 3, None)
    assert needs == {"throttled": short, "pressed": short, **nothing}
