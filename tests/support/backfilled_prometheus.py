"""A real Prometheus with a past: samples are written as blocks by promtool, and nothing is scraped."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from support.programs import prometheus_with

from slopewise.adapters.local.prometheus_server import PrometheusBinaries

Value = Callable[[float], float]
"""A value at so many seconds from the start of its job."""

KUBELET = {"job": "kubelet", "instance": "10.0.0.1:10250"}
STATE = {"job": "kube-state-metrics", "instance": "10.0.0.2:8080"}
DCGM = {"job": "dcgm", "instance": "10.0.0.3:9400"}
GIB = 2.0**30


@dataclass(frozen=True, slots=True)
class Series:
    """One series from `start_seconds` (Unix time) for `seconds`."""

    name: str
    labels: Mapping[str, str]
    start_seconds: float
    seconds: float
    value: Value
    every_seconds: float = 60.0
    gap_ratio: tuple[float, float] = (2.0, 2.0)
    """Without samples between these parts of its time."""

    def lines(self) -> Iterator[str]:
        labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in self.labels.items())
        for number in range(math.floor(self.seconds / self.every_seconds) + 1):
            at = number * self.every_seconds
            if not self.gap_ratio[0] <= at / self.seconds <= self.gap_ratio[1]:
                yield f"{self.name}{{{labels}}} {self.value(at)!r} {self.start_seconds + at:.3f}\n"


@dataclass(frozen=True, slots=True)
class PastJob:
    """One training: what its exporter, the kubelet, kube-state-metrics and DCGM would have stored of it."""

    pod: str
    start_seconds: float
    hours: float
    namespace: str = "team"
    node: str = "node-a"
    loss: Value | None = None
    """Of the part of its time, 0 to 1."""
    cores: float = 1.0
    request: float | None = 2.0
    limit: float | None = 4.0
    throttled: float = 0.0
    threads: int = 3
    memory_gib: float = 1.0
    memory_request_gib: float | None = 4.0
    gpus: int = 0
    gpu_use: float = 0.9
    every_seconds: float = 60.0
    gap_ratio: tuple[float, float] = (2.0, 2.0)
    exported: bool = False
    """kube-state-metrics and DCGM are scraped with `honor_labels: false`."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """More labels of its loss."""

    def series(self) -> Iterator[Series]:
        seconds = 3600 * self.hours
        pod = {"namespace": self.namespace, "pod": self.pod}
        own = {**pod, "job": "trainers", "instance": f"{self.pod}:9464"}

        def of(name: str, labels: Mapping[str, str], value: Value) -> Series:
            return Series(name, labels, self.start_seconds, seconds, value, self.every_seconds, self.gap_ratio)

        if (loss := self.loss) is not None:
            yield of("training_loss", {**own, "stage": "train_ema", **self.labels}, lambda at: loss(at / seconds))
            yield of("training_steps_total", own, lambda at: at)
        container = {**pod, "container": "trainer", **KUBELET}
        yield of("container_cpu_usage_seconds_total", container, lambda at: self.cores * at)
        yield of("container_memory_working_set_bytes", container, lambda _: self.memory_gib * GIB)
        yield of("container_cpu_cfs_periods_total", container, lambda at: 10 * at)
        yield of("container_cpu_cfs_throttled_periods_total", container, lambda at: 10 * at * self.throttled)
        yield of("container_threads", container, lambda _: float(self.threads))
        about = self._about({"namespace": "monitoring", "pod": "state-0"})
        yield of("kube_pod_info", {**about, "node": self.node, **STATE}, lambda _: 1.0)
        yield of("kube_pod_status_phase", {**about, "phase": "Running", **STATE}, lambda _: 1.0)
        amounts = (
            ("requests", "cpu", self.request),
            ("limits", "cpu", self.limit),
            ("requests", "memory", self.memory_request_gib and self.memory_request_gib * GIB),
            ("requests", "nvidia_com_gpu", float(self.gpus) or None),
        )
        for kind, resource, amount in amounts:
            if amount is not None:
                where = {self._name("container"): "trainer", self._name("node"): self.node}
                labels = {**about, **where, "resource": resource, **STATE}
                yield of(f"kube_pod_container_resource_{kind}", labels, lambda _, amount=amount: float(amount))  # type: ignore[misc]
        for gpu in range(self.gpus):
            labels = {**self._about({"namespace": "monitoring", "pod": "dcgm-0"}), "gpu": str(gpu), **DCGM}
            yield of("DCGM_FI_DEV_GPU_UTIL", labels, lambda _: 100 * self.gpu_use)

    def _name(self, label: str) -> str:
        return f"exported_{label}" if self.exported else label

    def _about(self, exporter: Mapping[str, str]) -> dict[str, str]:
        about = {self._name("namespace"): self.namespace, self._name("pod"): self.pod}
        return {**exporter, **about} if self.exported else about


def targets(start_seconds: float, seconds: float) -> Iterator[Series]:
    """The exporters that were scraped all the time: the kubelet without a pod, as its target has none."""
    for labels in (
        KUBELET,
        {**STATE, "namespace": "monitoring", "pod": "state-0"},
        {**DCGM, "namespace": "monitoring", "pod": "dcgm-0"},
    ):
        yield Series("up", labels, start_seconds, seconds, lambda _: 1.0)


def node(name: str, cores: float, start_seconds: float, seconds: float) -> Series:
    """What kube-state-metrics stores of a node."""
    labels = {"node": name, "resource": "cpu", **STATE}
    return Series("kube_node_status_allocatable", labels, start_seconds, seconds, lambda _: cores)


@contextmanager
def backfilled(
    binaries: PrometheusBinaries, folder: Path, series: Sequence[Series] | Iterator[Series]
) -> Iterator[str]:
    """The URL of a Prometheus that has these samples."""
    folder.mkdir(parents=True, exist_ok=True)
    write_blocks(binaries, folder, series)
    with prometheus_with({"global": {}}, binaries, folder, "--storage.tsdb.retention.time=60d") as url:
        yield url


def write_blocks(binaries: PrometheusBinaries, folder: Path, series: Sequence[Series] | Iterator[Series]) -> None:
    """The blocks of these samples in `folder/data`."""
    by_name: dict[str, list[Series]] = {}
    for each in series:
        by_name.setdefault(each.name, []).append(each)
    text = folder / "samples.om"
    with text.open("w", encoding="utf-8") as file:
        for of_name in by_name.values():
            for each in of_name:
                file.writelines(each.lines())
        file.write("# EOF\n")
    # For each block the whole text is read again: of 7 days in blocks of two hours, 84 times.
    create = ["tsdb", "create-blocks-from", "--max-block-duration=168h", "openmetrics"]
    command = [str(binaries.promtool), *create, str(text), str(folder / "data")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    text.unlink()


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
