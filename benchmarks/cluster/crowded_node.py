"""Six real trainings that come to two nodes so that the default scheduler crowds the small one, followed to their end.

Five arrive while a sixth, the guest, has reserved nearly all of the large node: by requests alone, without affinity or
pin, they go to the small one. The guest is soon done, and the scheduler never looks back: five share one CPU, and two
idle. `bench_marginal.py` runs this with and without a controller that may move jobs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from setting import wait_for

from slopewise.adapters.kube.cache.records import MIGRATABLE
from slopewise.adapters.kube.client.client import KubeApi
from testbed.cgroups import hierarchies, node_cgroup
from testbed.settings import NODES

# Where they train is what the tests have for it.
sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
from support.movable import on_volume
from support.scene import Scene

LARGE, SMALL = (node.name for node in NODES)

STEPS = {
    "digits-mlp": 5000, "digits-field": 5000, "stdlib-chars": 6600, "cancer-boosting": 2200, "digits-lr-drop": 11_000,
}  # fmt: skip
"""About 270 CPU-seconds together, 40 to 70 each: 4 to 5 minutes of the small node."""

GUEST, GUEST_STEPS = "diabetes-overfit", 4000
"""Some 20 s of one core."""

REQUEST, GUEST_REQUEST = "180m", "1850m"
"""Five of the one take 900m of the small node's 1000m; beside the other the large one has 150m left: too little."""

_PERIOD_MICROSECONDS = 100_000
_POLL_SECONDS = 3.0
_PLACED_SECONDS = 30.0
_COMPLETE_SECONDS = 480.0

Json = dict[str, Any]


@contextmanager
def walls() -> Iterator[None]:
    """With no more CPU for the pods of a node than it offers. The limits of the pods below must not be above that."""
    before: dict[Path, str] = {}
    try:
        for hierarchy in hierarchies():
            for node in NODES:
                quota = node.cpus * _PERIOD_MICROSECONDS
                for name, text in (("cpu.cfs_quota_us", f"{quota}"), ("cpu.max", f"{quota} {_PERIOD_MICROSECONDS}")):
                    path = hierarchy / node_cgroup(node).lstrip("/") / name
                    if path.exists():
                        before[path] = path.read_text()
                        path.write_text(text)
        yield
    finally:
        for path, text in before.items():
            path.write_text(text)


class CrowdedNode:
    """The trainings of one run, in the namespace of `scene`, whose claim of a shared volume is there already."""

    def __init__(self, api: KubeApi, scene: Scene) -> None:
        self._api = api
        self._scene = scene

    def start(self) -> None:
        """The guest first; RuntimeError when the default scheduler puts one elsewhere than this file says."""
        self._scene.start(self._training(GUEST, GUEST_STEPS, GUEST_REQUEST, "2"))
        jobs = [self._training(name, steps, REQUEST, "1") for name, steps in STEPS.items()]
        self._scene.kubectl.apply(*jobs, namespace=self._scene.namespace)
        everywhere = {GUEST: LARGE, **dict.fromkeys(STEPS, SMALL)}
        placed = wait_for(
            "the trainings are placed",
            self.nodes,
            lambda seen: seen.keys() == everywhere.keys() and all(seen.values()),
            _PLACED_SECONDS,
        )
        if placed != everywhere:
            raise RuntimeError(f"the default scheduler has placed them otherwise; is the cluster empty? {placed}")

    def follow(self) -> Mapping[str, Json]:
        """Print where they are whenever that changes, until all are complete: their Jobs. RuntimeError if one fails."""
        begun, shown = time.monotonic(), ""
        while True:
            jobs = self._jobs()
            done = {name for name, job in jobs.items() if "completionTime" in job["status"]}
            elapsed, line = time.monotonic() - begun, self._where(done)
            if line != shown:
                print(f"{elapsed:5.0f} s  {line}", flush=True)
                shown = line
            if len(done) == len(jobs):
                return jobs
            failed = [name for name, job in jobs.items() if job["status"].get("failed")]
            if failed or elapsed > _COMPLETE_SECONDS:
                raise RuntimeError(f"failed: {failed}; not complete after {elapsed:.0f} s: {line}")
            time.sleep(_POLL_SECONDS)

    def nodes(self) -> dict[str, str]:
        """On which node the newest pod of each training is or was; empty while it waits for one."""
        return {name: pod["spec"].get("nodeName", "") for name, pod in self.pods().items()}

    def pods(self) -> dict[str, Json]:
        """The newest pod of each training; none while it is between two nodes."""
        found = self.objects("/api/v1/namespaces/{}/pods")
        found.sort(key=lambda pod: pod["metadata"]["creationTimestamp"])
        return {pod["metadata"]["labels"]["job-name"]: pod for pod in found}

    def objects(self, path: str) -> list[Json]:
        """Those of the namespace, which is `{}` in the path."""
        found: list[Json] = self._api.get(path.format(self._scene.namespace))["items"]
        return found

    def _jobs(self) -> dict[str, Json]:
        return {job["metadata"]["name"]: job for job in self.objects("/apis/batch/v1/namespaces/{}/jobs")}

    def _where(self, done: set[str]) -> str:
        """`node-b: a, b; node-a: c; done: d`; one that is between two nodes is not named."""
        running = {name: node for name, node in self.nodes().items() if name not in done}
        groups = {node: [name for name, on in running.items() if on == node] for node in (SMALL, LARGE)}
        groups["done"] = list(done)
        return "; ".join(f"{what}: {', '.join(sorted(names)) or '-'}" for what, names in groups.items())

    def _training(self, name: str, steps: int, request: str, limit: str) -> Json:
        """A Job of a built-in training that may be moved, and that the default scheduler places as it likes."""
        shape = {"annotations": {MIGRATABLE: "true"}, "termination_seconds": 30}
        job = self._scene.training(name, steps, None, limit, **shape)
        on_volume(job, "", {"name": "SLOPEWISE_CHECKPOINT_FOLDER", "value": f"/shared/{name}"})
        spec = job["spec"]["template"]["spec"]
        del spec["affinity"]  # the tests' trainings like a node
        spec["containers"][0]["resources"]["requests"]["cpu"] = request
        return job
