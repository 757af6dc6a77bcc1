"""Trainings with GPUs on one node: some whose GPU waits for batches, some whose batches wait for it.

`support/gpu_jobs.py` says what is real in them: the extended resource, PyTorch's loaders that decode and augment under
a real CPU limit, and a lock for each device. On another node the kubelet pins the cores of a Guaranteed pod.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.cluster import Kubectl
from support.controller_process import ControllerProcess
from support.fault_stage import SCRAPE_SECONDS, Stage
from support.gpu_jobs import DEVICES, EXPORTER_MILLICORES, IMAGE_PYTHON, RESOURCE, GpuJobs, packages, use
from support.scene import by_pod, identity, quota_microseconds
from support.trainers import Trainers
from support.waiting import wait_for

from testbed.faults import Faults
from testbed.nodes import kubelet_name
from testbed.settings import NODES, Settings

pytestmark = [pytest.mark.faults, pytest.mark.timeout(2400)]  # minutes of measuring, and a raise each three minutes

NODE = NODES[0].name
PINNING = NODES[1]
"""The static CPU manager insists on a reserved CPU, and one core of the machine is not this node's."""
LABEL = "slopewise.dev/static-cpu-manager"
DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")
"""Of all kubelets of the machine: the path is written into them."""
LIMIT, FLOOR = 250, 100
SHARES = {"name": "fair"}
MEASURED_SECONDS = 60

INPUT_BOUND = {"loads-a": 0.15, "loads-b": 0.15}
"""CPU-seconds a batch: D / G is 0.75 cores, three times what it comes with."""
GPU_BOUND = {"computes-a": 0.005, "computes-b": 0.005}
TRAININGS = {**INPUT_BOUND, **GPU_BOUND}
GUARANTEED = {"loads-b", "computes-b", "computes"}
FASTER, AS_FAST = 1.5, 0.98
"""Steps a second over those with the CPU that a job came with: what was set out to reach."""


@pytest.fixture
def devices(kubectl: Kubectl, testbed_settings: Settings) -> Iterator[None]:
    """Each node offers them."""

    def offer(amount: int | None) -> None:
        value = None if amount is None else str(amount)
        capacity = json.dumps({"status": {"capacity": {RESOURCE: value}, "allocatable": {RESOURCE: value}}})
        for node in NODES:
            kubectl.run("patch", "node", node.name, "--subresource=status", "--type=merge", "-p", capacity)

    try:
        offer(DEVICES)
        yield
    finally:
        offer(None)


@pytest.fixture
def gpus(stage: Stage, trainers: Trainers, devices: None) -> GpuJobs:
    """Trainings on them."""
    if (found := packages()) is None:
        pytest.skip(f"this checkout has no PyTorch for {IMAGE_PYTHON}: run `make test-frameworks`")
    return GpuJobs(trainers, stage.folder / "devices", found)


@pytest.fixture
def pinning(kubectl: Kubectl, faults: Faults, testbed_settings: Settings, alone: None) -> Iterator[None]:
    """A node whose kubelet runs the static CPU manager; a kubelet keeps its policy in a file, and refuses another."""
    folder = testbed_settings.node_folder(PINNING)
    configuration = (folder / "kubelet.json").read_text(encoding="utf-8")
    state = folder / "kubelet" / "cpu_manager_state"

    def restart(text: str, policy: str) -> None:
        faults.kill(kubelet_name(PINNING))
        state.unlink(missing_ok=True)
        (folder / "kubelet.json").write_text(text, encoding="utf-8")
        faults.start(kubelet_name(PINNING))
        wait_for(f"CPU manager {policy}", lambda: state.exists() and state.read_text(), lambda it: policy in (it or ""))

    try:
        restart(json.dumps({**json.loads(configuration), "cpuManagerPolicy": "static"}), "static")
        kubectl.run("label", "node", PINNING.name, f"{LABEL}=true")
        yield
    finally:
        kubectl.attempt("label", "node", PINNING.name, f"{LABEL}-")
        restart(configuration, "none")


def _policy(stage: Stage, accelerators: str) -> None:
    stage.policy(
        policy=SHARES,
        resources={"control": "limits", "cpu": {"min": f"{FLOOR}m"}, "accelerators": accelerators},
        behaviour={"intervalSeconds": 20},
    )


def _shape(name: str) -> dict[str, Any]:
    """CPU and memory that a job comes with."""
    shape: dict[str, Any] = {"node": NODE, "cpu_request": f"{FLOOR}m", "cpu_limit": f"{LIMIT}m"}
    if name in GUARANTEED:
        shape |= {"cpu_request": f"{LIMIT}m", "memory_request": "2Gi", "memory_limit": "2Gi"}
    return shape


def _begin(stage: Stage, gpus: GpuJobs, pods: Mapping[str, dict[str, Any]], idle_millicores: int) -> ControllerProcess:
    """The trainings train, and a controller sees them that may not change them. An idle pod, which is not managed,
    requests all CPU of the node but theirs and what is to lie idle."""
    node = stage.kubectl.get("node", NODE)["status"]["allocatable"]["cpu"]
    whole = int(node[:-1]) if node.endswith("m") else 1000 * int(node)
    others = whole - len(pods) * LIMIT - EXPORTER_MILLICORES - idle_millicores
    stage.pods("others", labels={}, cpu_request=f"{others}m", cpu_limit=None)
    stage.kubectl.apply(gpus.exporter(NODE), *pods.values(), namespace=stage.namespace)
    stage.kubectl.wait_running(stage.namespace, *pods)
    _policy(stage, "Ignore")
    controller = stage.controller(scrape_seconds=SCRAPE_SECONDS)
    stage.wait_for_condition("Ready", "ModeAuto")
    query = f'training_steps_total{{namespace="{stage.namespace}"}} > 5'
    wait_for("all train", lambda: by_pod(stage.prometheus_url, query), lambda seen: seen.keys() == pods.keys(), 600)
    return controller


def _cpu(stage: Stage, *names: str) -> list[tuple[int | None, int]]:
    """Limit and request of each."""
    return [(cpu.limit_millicores, cpu.request_millicores) for cpu in stage.cpu(*names).values()]


def _measured(stage: Stage) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Steps a second of each training, and the use of its GPU, over a minute from now on."""
    time.sleep(MEASURED_SECONDS + 2 * SCRAPE_SECONDS)
    steps = f'rate(training_steps_total{{namespace="{stage.namespace}"}}[{MEASURED_SECONDS}s])'
    uses = by_pod(stage.prometheus_url, use(stage.namespace, MEASURED_SECONDS))
    return by_pod(stage.prometheus_url, steps), uses


def _over(after: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    return {name: after[name] / before[name] for name in before}


def _kubelet_restarts(stage: Stage, faults: Faults) -> None:
    """As one that ends in order, which takes its socket along. One that finds the folder empty when it registers sets
    the capacity of extended resources to 0; that of 1.36.3 has made its own socket by then."""
    since = datetime.now(UTC)

    def reported_at() -> datetime:
        conditions = stage.kubectl.get("node", NODE)["status"]["conditions"]
        (ready,) = [each for each in conditions if each["type"] == "Ready"]
        return datetime.fromisoformat(ready["lastHeartbeatTime"])

    faults.kill(kubelet_name(NODES[0]))
    try:
        DEVICE_PLUGINS.joinpath("kubelet.sock").unlink(missing_ok=True)
    finally:
        faults.start(kubelet_name(NODES[0]))
    wait_for("the kubelet reports again", reported_at, lambda seen: seen > since)


def test_cpu_goes_from_jobs_that_wait_for_their_gpu_to_jobs_whose_gpu_waits_and_comes_back(
    stage: Stage, gpus: GpuJobs, faults: Faults, alone: None
) -> None:
    pods = {name: gpus.training(name, cpu_seconds, **_shape(name)) for name, cpu_seconds in TRAININGS.items()}
    controller = _begin(stage, gpus, pods, 0)
    containers = {name: identity(stage.pod(name)) for name in TRAININGS}
    before, used_before = _measured(stage)
    assert stage.limits(*TRAININGS) == dict.fromkeys(TRAININGS, LIMIT)

    _policy(stage, "Share")
    given = wait_for(
        "the jobs whose GPU waits have half as much again, from those whose batches wait",
        lambda: stage.limits(*TRAININGS),
        lambda seen: (
            all((seen[name] or 0) >= 1.5 * LIMIT for name in INPUT_BOUND)
            and all((seen[name] or LIMIT) < LIMIT for name in GPU_BOUND)
        ),
        600,
    )
    after, used = _measured(stage)
    won = _over(after, before)
    print(f"limits {given}; steps a second {before}, then {after}: {won}; use of GPUs {used_before}, then {used}")
    assert {name: won[name] for name in INPUT_BOUND if won[name] < FASTER} == {}
    assert {name: won[name] for name in GPU_BOUND if won[name] < AS_FAST} == {}
    assert all(used[name] > used_before[name] for name in INPUT_BOUND)
    assert all(limit == request for limit, request in _cpu(stage, *GUARANTEED))
    for name in TRAININGS:
        stage.wait_for_event(name, "Resized", "input-bound" if name in INPUT_BOUND else "GPU-bound")
    assert {name: identity(stage.pod(name)) for name in TRAININGS} == containers  # not one was started again

    _kubelet_restarts(stage, faults)
    assert stage.kubectl.get("node", NODE)["status"]["capacity"][RESOURCE] == str(DEVICES)
    fifth = replace(stage.idle, node=NODE, labels={}, cpu_request="10m", cpu_limit="10m").pod("fifth")
    fifth["spec"]["containers"][0]["resources"]["limits"][RESOURCE] = "1"
    stage.kubectl.apply(fifth, namespace=stage.namespace)
    wait_for(
        "a fifth pod finds no device",
        lambda: stage.pod("fifth")["status"].get("conditions", []),
        lambda seen: any(f"Insufficient {RESOURCE}" in each.get("message", "") for each in seen),
    )

    assert controller.metric("slopewise_job_useful_cores", job_name="loads-b") > 0
    stage.delete_pods("loads-b")  # it is Guaranteed, and raised
    stage.kubectl.wait_running(stage.namespace, "fifth")
    stage.kubectl.wait_gone("jobgrowth", "loads-b", stage.namespace)
    controller.wait_for_metric("slopewise_job_useful_cores", lambda seen: seen == 0, job_name="loads-b")

    left = sorted(TRAININGS.keys() - {"loads-b"})
    _policy(stage, "Ignore")
    stage.wait_for_limits(dict.fromkeys(left, LIMIT))
    wait_for(
        "the kubelet that was restarted carries it out",
        lambda: {stage.kubectl.cpu_quota_microseconds(stage.namespace, name) for name in left},
        lambda seen: seen == {quota_microseconds(LIMIT)},
    )
    assert all(limit == request for limit, request in _cpu(stage, "computes-b"))
    assert {name: identity(stage.pod(name)) for name in left} == {name: containers[name] for name in left}
    assert "loads-b" not in stage.originals()


def test_cpu_that_brings_nothing_is_taken_back_and_use_of_a_gpu_alone_raises_by_steps(
    stage: Stage, gpus: GpuJobs
) -> None:
    """One says that it waits, and burns CPU; one reads for most of its time; one times no waits; a neighbour lends."""
    made: dict[str, tuple[float, list[str]]] = {
        "lies": (0.005, ["--lies=0.9", "--gpu-seconds=1"]),
        "reads": (0.1, ["--read-seconds=0.6", "--workers=1"]),
        "silent": (0.15, ["--silent"]),
        "computes": (0.005, []),
    }
    pods = {name: gpus.training(name, cpu, *flags, **_shape(name)) for name, (cpu, flags) in made.items()}
    _begin(stage, gpus, pods, LIMIT)
    before, used_before = _measured(stage)

    _policy(stage, "Share")
    given = wait_for(
        "the neighbour lends, and the one that lies is raised",
        lambda: stage.limits(*made),
        lambda seen: (seen["lies"] or 0) > LIMIT > (seen["computes"] or LIMIT),
        600,
    )
    meanwhile = _over(_measured(stage)[0], before)
    print(f"limits {given}; steps a second over those before: {meanwhile}")
    assert meanwhile["computes"] >= AS_FAST

    for name in ("lies", "reads"):
        stage.wait_for_event(name, "ResizeRolledBack", "so it lacks loader workers and not CPU")
        lacks = partial(stage.growth, name)
        wait_for(f"{name} says what it lacks", lacks, lambda seen: "not for CPU" in seen.get("reason", ""))
        assert (stage.limits(name)[name] or 0) <= LIMIT

    stage.wait_for_event("silent", "Resized", "its GPU is used")
    wait_for("the second step", lambda: stage.limits("silent"), lambda seen: (seen["silent"] or 0) > 1.5 * LIMIT, 600)
    after, used = _measured(stage)
    won = _over(after, before)
    print(f"limits {stage.limits(*made)}; steps a second {before}: {won}; use of GPUs {used_before}, then {used}")
    assert used["silent"] > used_before["silent"]
    assert won["computes"] >= AS_FAST


def test_a_job_whose_cores_are_pinned_is_left_alone_and_says_why(stage: Stage, pinning: None, devices: None) -> None:
    same: dict[str, Any] = {"cpu_request": "1", "cpu_limit": "1", "memory_request": "32Mi", "memory_limit": "32Mi"}
    pod = replace(stage.idle, node=PINNING.name, **same).pod("pinned")
    pod["spec"]["containers"][0]["resources"]["limits"][RESOURCE] = "1"
    stage.kubectl.apply(pod, namespace=stage.namespace)
    stage.kubectl.wait_running(stage.namespace, "pinned")
    before = stage.cpu()
    _policy(stage, "Share")
    gateway = stage.gateway()
    controller = stage.controller(gateway)
    status = stage.wait_for_growth("pinned", "Managed", "Ineligible")
    assert f"Guaranteed on node {PINNING.name}, whose static CPU manager pins cores" in status["reason"]
    controller.wait_for_passes(1)
    assert gateway.writes("pods/resize") == []
    assert stage.cpu() == before

    lower = {"limits": {"cpu": "900m"}, "requests": {"cpu": "900m"}}
    patch = json.dumps({"spec": {"containers": [{"name": "trainer", "resources": lower}]}})
    stage.kubectl.run("patch", "pod", "pinned", "-n", stage.namespace, "--subresource=resize", "-p", patch)
    wait_for(
        "its kubelet refuses what the API server has accepted",
        lambda: [each for each in stage.pod("pinned")["status"]["conditions"] if each["type"] == "PodResizePending"],
        lambda seen: bool(seen) and seen[0]["reason"] == "Infeasible" and "CPU Manager policy" in seen[0]["message"],
    )
