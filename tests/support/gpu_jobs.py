"""Pods with GPUs on the test-bed: trainings with the loaders of PyTorch, and the exporter of their GPUs' use.

The extended resource is real: each node's status is patched to offer it, and scheduler and kubelet count it. A device
is a file of one folder that all pods of a test mount (`gpu_programs.py`). PyTorch comes from the virtual environment of
`make test-frameworks` by a hostPath volume, as the exporter comes from the checkout.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from support.rendering import ROOT
from support.trainers import METRICS_PORT, Trainers

RESOURCE = "nvidia.com/gpu"
DEVICES = 4
"""Of a node."""
GPU_SECONDS = 0.2
EXPORTER_MILLICORES = 50

IMAGE_PYTHON = "python3.11"
"""Of the test-bed's base image: its packages are those of this version."""
_PROGRAMS = Path(__file__).with_name("gpu_programs.py").read_text(encoding="utf-8")
_FRAMEWORKS = "/opt/frameworks"

Json = dict[str, Any]


def packages() -> Path | None:
    """The folder with PyTorch for the image's Python; None: `make test-frameworks` has not brought it."""
    python = Path(os.environ.get("SLOPEWISE_FRAMEWORKS") or ROOT / ".venv-frameworks" / "bin" / "python")
    found = python.parents[1] / "lib" / IMAGE_PYTHON / "site-packages"
    return found.resolve() if (found / "torch").is_dir() else None


@dataclass(frozen=True)
class GpuJobs:
    """Makes the pods. `folder`: of the devices; `packages`: PyTorch's."""

    trainers: Trainers
    folder: Path
    packages: Path

    def __post_init__(self) -> None:
        self.folder.mkdir()
        for number in range(DEVICES):
            (self.folder / f"gpu-{number}").touch()

    def training(self, name: str, cpu_seconds: float, *flags: str, **shape: Any) -> Json:
        """A pod whose steps take a device `GPU_SECONDS`, and whose batches take its loader's workers this CPU time."""
        arguments = ("train", f"--gpu-seconds={GPU_SECONDS}", f"--cpu-seconds={cpu_seconds}", *flags)
        pod = self.trainers.reporting(name, _PROGRAMS, *arguments, **shape)
        container = pod["spec"]["containers"][0]
        container["resources"]["limits"][RESOURCE] = "1"
        container["env"][0]["value"] += f":{_FRAMEWORKS}"
        container["env"] += [{"name": "OMP_NUM_THREADS", "value": "1"}]
        _know(container, NAMESPACE="metadata.namespace", POD="metadata.name")
        _mount(pod, "frameworks", self.packages, _FRAMEWORKS)
        _mount(pod, "devices", self.folder, "/devices", read_only=False)
        return pod

    def exporter(self, node: str) -> Json:
        """The stand-in of DCGM's exporter; not managed."""
        command = ("python3", "-c", _PROGRAMS, "export")
        here: Json = {"node": node, "labels": {}, "cpu_request": f"{EXPORTER_MILLICORES}m", "cpu_limit": None}
        shape = replace(self.trainers.shape, command=command, metrics_port=METRICS_PORT, **here)
        pod = shape.pod("dcgm-exporter")
        pod["spec"]["containers"][0]["env"] = []
        _know(pod["spec"]["containers"][0], NODE="spec.nodeName")
        _mount(pod, "devices", self.folder, "/devices")
        return pod


def use(namespace: str, seconds: int) -> str:
    """The query for the part of the last seconds in which the device of each pod computed, as the exporter has it."""
    series = f'DCGM_FI_PROF_GR_ENGINE_ACTIVE{{namespace="{namespace}", exported_pod!=""}}'
    of_pods = f"avg by (exported_pod) (avg_over_time({series}[{seconds}s]))"
    return f'label_replace({of_pods}, "pod", "$1", "exported_pod", "(.+)")'


def _know(container: Json, **fields: str) -> None:
    container["env"] += [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": of}}} for name, of in fields.items()]


def _mount(pod: Json, name: str, folder: Path, inside: str, *, read_only: bool = True) -> None:
    spec: Json = pod["spec"]
    spec.setdefault("volumes", []).append({"name": name, "hostPath": {"path": str(folder), "type": "Directory"}})
    mount: Mapping[str, object] = {"name": name, "mountPath": inside, "readOnly": read_only}
    spec["containers"][0].setdefault("volumeMounts", []).append(mount)
