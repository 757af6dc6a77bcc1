"""Four trainings with accelerators on one node: two whose device waits for batches, two whose batches wait for it.

The extended resource is real: the node's status is patched to offer it, and scheduler and kubelet count it. The device
is a sleep; what makes batches is a process of its own that computes, under a real CPU limit. On another node the
kubelet pins the cores of a Guaranteed pod.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from support.cluster import Kubectl
from support.fault_stage import SCRAPE_SECONDS, Stage
from support.scene import by_pod, identity
from support.trainers import Trainers
from support.waiting import wait_for

from testbed.faults import Faults
from testbed.nodes import kubelet_name
from testbed.settings import NODES, Settings

pytestmark = pytest.mark.faults

NODE, RESOURCE = "node-a", "nvidia.com/gpu"
PINNING = NODES[1]
"""The static CPU manager insists on a reserved CPU, and one core of the machine is not this node's."""
LABEL = "slopewise.dev/static-cpu-manager"
LIMIT, FLOOR = 150, 20
SHARES = {"name": "fair"}

GPU_SECONDS = 0.2
INPUT_BOUND = {"loads-a": 0.09, "loads-b": 0.09}
"""CPU-seconds a batch: D / G is 0.45 cores, three times what it comes with."""
GPU_BOUND = {"computes-a": 0.005, "computes-b": 0.005}
TRAININGS = {**INPUT_BOUND, **GPU_BOUND}
GUARANTEED = {"loads-b", "computes-b"}


@pytest.fixture
def devices(kubectl: Kubectl) -> Iterator[None]:
    """Each node offers four of them."""

    def offer(amount: int | None) -> None:
        value = None if amount is None else str(amount)
        capacity = json.dumps({"status": {"capacity": {RESOURCE: value}, "allocatable": {RESOURCE: value}}})
        for node in NODES:
            kubectl.run("patch", "node", node.name, "--subresource=status", "--type=merge", "-p", capacity)

    offer(4)
    yield
    offer(None)


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
        kubectl.run("label", "node", PINNING.name, f"{LABEL}-")
        restart(configuration, "none")


def _policy(stage: Stage, accelerators: str) -> None:
    stage.policy(
        policy=SHARES,
        resources={"control": "limits", "cpu": {"min": f"{FLOOR}m"}, "accelerators": accelerators},
        behaviour={"intervalSeconds": 20},
    )


def _pods(trainers: Trainers) -> list[dict[str, Any]]:
    made = []
    for name, cpu_seconds in TRAININGS.items():
        shape: dict[str, Any] = {"node": NODE, "cpu_request": f"{FLOOR}m", "cpu_limit": f"{LIMIT}m"}
        if name in GUARANTEED:
            shape |= {"cpu_request": f"{LIMIT}m", "memory_request": "128Mi", "memory_limit": "128Mi"}
        pod = trainers.with_device(name, GPU_SECONDS, cpu_seconds, **shape)
        pod["spec"]["containers"][0]["resources"]["limits"][RESOURCE] = "1"
        made.append(pod)
    return made


def _leave(stage: Stage, millicores: int) -> None:
    """A pod that is not managed, and idle, requests all else of the node's CPU."""
    node = stage.kubectl.get("node", NODE)["status"]["allocatable"]["cpu"]
    whole = int(node[:-1]) if node.endswith("m") else 1000 * int(node)
    stage.pods("others", labels={}, cpu_request=f"{whole - millicores}m", cpu_limit=None)


def _cpu(stage: Stage, *names: str) -> list[tuple[int | None, int]]:
    """Limit and request of each."""
    return [(cpu.limit_millicores, cpu.request_millicores) for cpu in stage.cpu(*names).values()]


def _steps_a_second(stage: Stage, seconds: int) -> Mapping[str, float]:
    """Of each training, over this time from now on."""
    time.sleep(seconds + 2 * SCRAPE_SECONDS)
    query = f'rate(training_steps_total{{namespace="{stage.namespace}"}}[{seconds}s])'
    return wait_for("all are scraped", lambda: by_pod(stage.prometheus_url, query), lambda seen: len(seen) == 4)


def test_cpu_goes_from_jobs_that_wait_for_their_gpu_to_jobs_whose_gpu_waits_and_comes_back(
    stage: Stage, trainers: Trainers, devices: None
) -> None:
    _leave(stage, 4 * LIMIT)
    stage.kubectl.apply(*_pods(trainers), namespace=stage.namespace)
    stage.kubectl.wait_running(stage.namespace, *TRAININGS)
    containers = {name: identity(stage.pod(name)) for name in TRAININGS}
    _policy(stage, "Ignore")
    controller = stage.controller(scrape_seconds=SCRAPE_SECONDS)
    stage.wait_for_condition("Ready", "ModeAuto")
    before = _steps_a_second(stage, 30)
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
    after = _steps_a_second(stage, 60)
    print(f"limits {given}; steps a second {before}, then {after}")
    print({name: round(after[name] / before[name], 2) for name in TRAININGS})
    assert all(limit == request for limit, request in _cpu(stage, *GUARANTEED))
    for name in TRAININGS:
        stage.wait_for_event(name, "Resized", "input-bound" if name in INPUT_BOUND else "GPU-bound")
    assert {name: identity(stage.pod(name)) for name in TRAININGS} == containers  # not one was started again

    assert controller.metric("slopewise_job_useful_cores", job_name="loads-b") > 0
    stage.delete_pods("loads-b")  # it is Guaranteed, and raised
    stage.kubectl.wait_gone("jobgrowth", "loads-b", stage.namespace)
    controller.wait_for_metric("slopewise_job_useful_cores", lambda seen: seen == 0, job_name="loads-b")

    left = sorted(TRAININGS.keys() - {"loads-b"})
    _policy(stage, "Ignore")
    stage.wait_for_limits(dict.fromkeys(left, LIMIT))
    assert all(limit == request for limit, request in _cpu(stage, "computes-b"))
    assert {name: identity(stage.pod(name)) for name in left} == {name: containers[name] for name in left}
    assert "loads-b" not in stage.originals()


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
