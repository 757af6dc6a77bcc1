"""A cluster in the hands of a test: kubectl, pods to train in, and waiting for what the cluster does.

The fixtures of `tests/cluster/conftest.py` hand these out. Nothing here knows the test-bed: any cluster will do.
"""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from support.waiting import wait_for

MANAGED = {"slopewise.dev/managed": "true"}
MOVABLE = {"slopewise.dev/moves": "allowed"}
_READ_QUOTA = "cd /sys/fs/cgroup && cat cpu/cpu.cfs_quota_us 2>/dev/null || cat cpu.max"
_READ_WEIGHT = "cd /sys/fs/cgroup && cat cpu/cpu.shares 2>/dev/null || cat cpu.weight"


class KubectlError(AssertionError):
    """kubectl failed; the message is what it wrote."""


@dataclass(frozen=True)
class Kubectl:
    """Runs kubectl against one cluster. `arguments`: given with every call, e.g. `--as`."""

    program: str
    kubeconfig: Path
    arguments: tuple[str, ...] = ()

    def attempt(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run it and look at nothing, for what is to be refused."""
        command = [self.program, f"--kubeconfig={self.kubeconfig}", *self.arguments, *arguments]
        environment = {**os.environ, "NO_PROXY": "*"}
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=300, check=False, env=environment
        )

    def run(self, *arguments: str, stdin: str | None = None) -> str:
        """What it prints; KubectlError with its own words when it fails."""
        done = self.attempt(*arguments, stdin=stdin)
        if done.returncode != 0:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def config(self) -> Any:
        """The kubeconfig's one cluster, user and context, to be changed at will."""
        return json.loads(_config(self))

    def get(self, *arguments: str) -> Any:
        """`kubectl get … -o json`, e.g. `get("pod", "a", "-n", namespace)`."""
        return json.loads(self.run("get", *arguments, "-o", "json"))

    def apply(self, *objects: Mapping[str, Any], namespace: str = "default") -> None:
        """Create or change objects, validated by the server."""
        bundle = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.run("apply", "--server-side", "--validate=strict", "-n", namespace, "-f", "-", stdin=bundle)

    def patch(self, kind: str, name: str, namespace: str, patch: Mapping[str, Any], *arguments: str) -> None:
        """A strategic-merge patch, e.g. with `"--subresource=resize"`."""
        self.run("patch", kind, name, "-n", namespace, *arguments, "-p", json.dumps(patch))

    def cpu_quota_microseconds(self, namespace: str, pod: str) -> int | None:
        """What the kernel gives the pod's container of every 100 ms, with cgroup v1 and v2; None for no limit."""
        quota = self.run("exec", "-n", namespace, pod, "--", "sh", "-c", _READ_QUOTA).split()[0]
        return None if quota in ("-1", "max") else int(quota)

    def cpu_weight(self, namespace: str, pod: str) -> int:
        """The kernel's weight of the pod's container: cgroup v1's shares, v2's weight."""
        return int(self.run("exec", "-n", namespace, pod, "--", "sh", "-c", _READ_WEIGHT))

    @contextmanager
    def own_namespace(self) -> Iterator[str]:
        """A labelled namespace that no other test uses, in which jobs may be moved; it goes with all that is in it."""
        name = f"slopewise-test-{uuid.uuid4().hex[:8]}"
        metadata = {"name": name, "labels": {**MANAGED, **MOVABLE, "slopewise.dev/test": "true"}}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        try:
            yield name
        finally:
            # Waits for the pods, so that the next test finds the nodes empty; the rest may take its time. Not for ever:
            # after a node was lost in a test, kubectl has waited for pods that were gone.
            everything = ("delete", "jobs,pods", "--all", "-n", name, "--cascade=foreground", "--grace-period=1")
            self.attempt(*everything, "--timeout=60s")
            self.run("delete", "namespace", name, "--wait=false")

    def as_account(self, namespace: str, account: str) -> Kubectl:
        """The same cluster with the rights of a service account."""
        return Kubectl(self.program, self.kubeconfig, (f"--as=system:serviceaccount:{namespace}:{account}",))

    def wait_running(self, namespace: str, *pods: str, seconds: float = 180) -> None:
        """Wait until all containers of these pods run and are ready."""
        for pod in pods:
            wait_for(f"pod {pod} runs", partial(self.get, "pod", pod, "-n", namespace), is_ready, seconds)

    def wait_gone(self, kind: str, name: str, namespace: str) -> None:
        """Wait until there is no such object."""
        look = ("get", kind, name, "-n", namespace, "--ignore-not-found", "-o", "name")
        wait_for(f"{kind} {name} is gone", lambda: self.run(*look), lambda found: not found)


@cache
def _config(kubectl: Kubectl) -> str:
    return kubectl.run("config", "view", "--raw", "--minify", "-o", "json")


def is_ready(obj: Mapping[str, Any]) -> bool:
    """True when the condition Ready of a pod, a node or one of our objects is."""
    conditions = obj.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


BUSY = ("python3", "-c", "while True: pass")
IDLE = ("sh", "-c", "trap 'exit 143' TERM; sleep infinity & wait")
"""Ends on SIGTERM. As the first process of its container, `sleep` would ignore it for the whole grace period."""


@dataclass(frozen=True)
class PodShape:
    """What a test may want of a pod. The quantities are Kubernetes': `250m`, `1`, `64Mi`."""

    image: str
    cpu_request: str | None = "250m"
    cpu_limit: str | None = "500m"
    memory_request: str | None = None
    memory_limit: str | None = None
    command: Sequence[str] = IDLE
    node: str | None = None
    labels: Mapping[str, str] = field(default_factory=lambda: MANAGED)
    annotations: Mapping[str, str] = field(default_factory=dict)
    metrics_port: int | None = None
    termination_seconds: int = 1

    def template(self) -> dict[str, Any]:
        """The pod's metadata and spec, as a Job's template wants it too. The one container is named `trainer`."""
        container: dict[str, Any] = {
            "name": "trainer",
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "command": list(self.command),
            "resources": self._resources(),
        }
        if self.metrics_port is not None:
            container["ports"] = [{"name": "metrics", "containerPort": self.metrics_port}]
        spec: dict[str, Any] = {
            "terminationGracePeriodSeconds": self.termination_seconds,
            "automountServiceAccountToken": False,
            "containers": [container],
        }
        if self.node is not None:
            spec["nodeSelector"] = {"kubernetes.io/hostname": self.node}
        return {"metadata": {"labels": dict(self.labels), "annotations": dict(self.annotations)}, "spec": spec}

    def pod(self, name: str) -> dict[str, Any]:
        """A pod of its own."""
        template = self.template()
        template["metadata"]["name"] = name
        return {"apiVersion": "v1", "kind": "Pod", **template}

    def job(self, name: str) -> dict[str, Any]:
        """A Job of one pod that is not started again when it fails."""
        template = self.template()
        template["spec"]["restartPolicy"] = "Never"
        spec = {"backoffLimit": 0, "template": template}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}

    def _resources(self) -> dict[str, dict[str, str]]:
        sides = {
            "requests": {"cpu": self.cpu_request, "memory": self.memory_request},
            "limits": {"cpu": self.cpu_limit, "memory": self.memory_limit},
        }
        given = {side: {name: value for name, value in pairs.items() if value} for side, pairs in sides.items()}
        return {side: pairs for side, pairs in given.items() if pairs}
