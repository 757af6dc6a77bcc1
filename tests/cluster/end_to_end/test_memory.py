"""Memory requests go down and make room, limits go up before they kill, and everything comes back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.cluster import Kubectl, is_ready
from support.scene import METRICS_PORT, Scene, identity
from support.waiting import wait_for

from slopewise.adapters.kube.cache.wire import memory_bytes

pytestmark = pytest.mark.faults

MIB = 2**20

TRAINING, OTHER = "digits-deep-sigmoid", "newcomer"
STEPS = 100_000
"""More than it does in any test: 15 000 took it 113 s with 0.4 cores."""


GROWING, LIMIT_MIB = "grows", 400
NEAR_MIB, BEYOND_MIB, SMALL_MIB = 380, 430, 100
"""0.95 of the limit, which is raised from 0.9 on; more than it, and 0.86 of 500 MiB, the next one; far below both."""

GROWS = """
import mmap, os, time
from slopewise_exporter import Checkpoints, Reporter

def resident_mib():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 2**20

held = []
with Reporter(planned_steps=100_000) as reporter, Checkpoints("/tmp/saved", reporter=reporter, every_steps=50) as saves:
    for step in range(100_000):
        wanted = int(open("/tmp/wanted").read() or 0) if os.path.exists("/tmp/wanted") else 0
        for _ in range(4):  # 40 MiB/s, or more where it gives some back
            if resident_mib() < wanted:
                held.append(mmap.mmap(-1, 2**20))
                held[-1].write(b"x" * 2**20)
            while held and resident_mib() > wanted:
                held.pop().close()
        reporter.step(loss=1 / (step + 1))
        saves.step(lambda: step)
        with open("/tmp/resident", "w") as file:
            file.write(str(resident_mib()))
        time.sleep(0.1)
"""
"""A training that takes as much memory as the file says, and saves every five seconds."""

LIMITS: dict[str, Any] = {
    "policy": {"name": "fair"},
    "resources": {"control": "limits", "memory": "Limits", "cpu": {"min": "100m"}},
    "behaviour": {"intervalSeconds": 20, "cooldownSeconds": 10},
}

_PEAK = "max by (pod) (max_over_time(container_memory_working_set_bytes{namespace='%s',container='trainer'}[70s]))"
"""Of three passes: a peak counts until the second checkpoint after it, and each pass finds a newer one."""

_READ_LIMIT = "cd /sys/fs/cgroup && cat memory/memory.limit_in_bytes 2>/dev/null || cat memory.max"

TRADL: dict[str, Any] = {
    "policy": {"name": "tradl"},
    "resources": {"control": "limits", "memory": "Requests", "cpu": {"min": "100m"}},
    "behaviour": {"intervalSeconds": 20, "cooldownSeconds": 10},
}


def free_bytes(kubectl: Kubectl, node: str) -> int:
    """What the requests of the pods on a node leave of its allocatable memory."""
    allocatable = memory_bytes(kubectl.get("node", node)["status"]["allocatable"]["memory"])
    pods = kubectl.get("pods", "-A", f"--field-selector=spec.nodeName={node},status.phase=Running")["items"]
    return allocatable - sum(
        memory_bytes(container.get("resources", {}).get("requests", {}).get("memory", "0"))
        for pod in pods
        for container in pod["spec"]["containers"]
    )


def request_bytes(pod: dict[str, Any]) -> int:
    return memory_bytes(pod["spec"]["containers"][0]["resources"]["requests"]["memory"])


def reported_bytes(pod: dict[str, Any]) -> int:
    """As the kubelet has it in effect."""
    return memory_bytes(pod["status"]["containerStatuses"][0]["resources"]["requests"]["memory"])


def limit_bytes(pod: dict[str, Any]) -> int:
    return memory_bytes(pod["spec"]["containers"][0]["resources"]["limits"]["memory"])


def test_a_released_job_makes_room_for_a_pod_that_did_not_fit_and_gets_its_request_back(
    scene: Scene, two_nodes: tuple[str, str]
) -> None:
    _, node = two_nodes
    kubectl, namespace = scene.kubectl, scene.namespace
    wanted = int(0.6 * free_bytes(kubectl, node)) // MIB
    scene.obey("Recommend", **TRADL)
    released = {"slopewise.dev/target-loss": "100"}  # reached with the first evaluation
    scene.start(scene.training(TRAINING, STEPS, node, "400m", annotations=released, memory_request=f"{wanted}Mi"))
    container = identity(scene.pods()[TRAINING])

    shape = replace(scene.shape, node=node, labels={"job-name": OTHER}, cpu_request="10m", memory_request=f"{wanted}Mi")
    kubectl.apply(shape.pod(OTHER), namespace=namespace)

    def conditions() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = kubectl.get("pod", OTHER, "-n", namespace)["status"].get("conditions", [])
        return found

    wait_for(
        "it does not fit", conditions, lambda all_of_it: any(one.get("reason") == "Unschedulable" for one in all_of_it)
    )
    wait_for(
        "the policy would lower the request",
        lambda: scene.growths().get(TRAINING, {}).get("status", {}),
        lambda status: "memory_paused" in status.get("memoryReason", ""),
        240,
    )
    assert request_bytes(scene.pods()[TRAINING]) == wanted * MIB

    scene.set_mode("Auto")
    lowered = wait_for(
        "the request is lower, in effect too",
        lambda: scene.pods()[TRAINING],
        lambda pod: request_bytes(pod) < wanted * MIB and reported_bytes(pod) == request_bytes(pod),
        60,
    )
    wait_for("the other pod runs", lambda: kubectl.get("pod", OTHER, "-n", namespace), is_ready)
    status = wait_for(
        "the status says so",
        lambda: scene.growths()[TRAINING]["status"],
        lambda status: "lowered from its original" in status.get("memoryReason", ""),
        120,
    )
    assert status["pods"][0]["original"]["memoryRequest"] == f"{wanted}Mi"
    assert identity(lowered) == container
    print(f"{wanted}Mi became {request_bytes(lowered) // MIB}Mi: {status['memory']}, {status['memoryReason']}")

    kubectl.run("delete", "pod", OTHER, "-n", namespace, "--grace-period=0", "--force", "--wait")
    scene.delete_policy()

    back = wait_for(
        "the request is back",
        lambda: scene.pods()[TRAINING],
        lambda pod: request_bytes(pod) == reported_bytes(pod) == wanted * MIB,
        30,
    )
    assert identity(back) == container


def test_a_limit_is_raised_before_it_kills_and_is_back_when_the_policy_goes(
    scene: Scene, two_nodes: tuple[str, str]
) -> None:
    node, _ = two_nodes
    kubectl, namespace = scene.kubectl, scene.namespace
    shape = replace(
        scene.shape,
        command=("env", "SLOPEWISE_EXPORTER_ADDRESS=0.0.0.0", "python3", "-P", "-c", GROWS),
        node=node,
        cpu_limit="1",
        memory_request="50Mi",
        memory_limit=f"{LIMIT_MIB}Mi",
        metrics_port=METRICS_PORT,
    )
    scene.start(shape.job(GROWING))
    started = scene.pods()[GROWING]
    container, name = identity(started), started["metadata"]["name"]

    def inside(command: str) -> str:
        return kubectl.run("exec", "-n", namespace, name, "--", "sh", "-c", command)

    def in_kernel() -> tuple[int, int]:
        """What the API server has accepted, and what the kernel kills by."""
        return limit_bytes(scene.pods()[GROWING]), int(inside(_READ_LIMIT))

    def grow(mib: int) -> None:
        inside(f"echo {mib} > /tmp/next && mv /tmp/next /tmp/wanted")
        wait_for(
            f"it holds {mib}Mi", lambda: int(inside("cat /tmp/resident") or 0), lambda held: abs(held - mib) <= 5, 60
        )

    scene.obey("Auto", **LIMITS)
    scene.wait_ready("ModeAuto")
    grow(NEAR_MIB)
    raised, _ = wait_for(
        "its limit is higher, in the kernel too",
        in_kernel,
        lambda found: found[0] > LIMIT_MIB * MIB and found[1] == found[0],
        90,
    )
    assert raised == LIMIT_MIB * MIB * 5 // 4
    grow(BEYOND_MIB)  # which would have killed it
    status = wait_for(
        "the status says so",
        lambda: scene.growths()[GROWING]["status"],
        lambda status: f"limit raised from its original {LIMIT_MIB}Mi" in status.get("memoryReason", ""),
        60,
    )
    assert status["pods"][0]["original"]["memoryLimit"] == f"{LIMIT_MIB}Mi"
    assert identity(scene.pods()[GROWING]) == container
    print(f"{LIMIT_MIB}Mi became {raised // MIB}Mi: {status['memory']}, {status['memoryReason']}")

    grow(SMALL_MIB)
    wait_for(
        "two checkpoints later its peak is small",
        lambda: scene.query(_PEAK % namespace),
        lambda peaks: bool(peaks) and max(peaks.values()) < 0.5 * LIMIT_MIB * MIB,
        120,
    )
    scene.delete_policy()
    assert in_kernel() == (LIMIT_MIB * MIB, LIMIT_MIB * MIB)
    assert identity(scene.pods()[GROWING]) == container
