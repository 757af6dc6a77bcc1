"""Trainings as Prometheus would report them, without a Prometheus: it computes the rows of each query of a pass.

    prometheus = FakePrometheus()
    trainings = SimulatedTrainings()
    trainings.add("team-a", "train-1", "node-1", begun_at_seconds=time.time())
    prometheus.respond = trainings.respond

Rows have the labels, and are as many, as a real Prometheus returns about pods with exporters and kubelets. A loss falls
with its training's age, some fast and some hardly, and each training uses one core.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from support.loopback import send

from slopewise.adapters.kube.cache.records import MANAGED_LABEL

CONTAINER = "trainer"
SCRAPE_SECONDS = 10.0
_LOSS_SECONDS = (600.0, 3600.0, 60.0)
"""The time constants of losses: some fall, some fall slowly, and some hardly any more."""
_PLANNED_STEPS = 100_000

Json = dict[str, Any]


def node_object(name: str) -> Json:
    """A node of 16 cores."""
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "MemoryPressure", "status": "False"}],
        },
    }


def pod_object(name: str, node: str, begun: str) -> Json:
    """A managed pod that runs since then (`2026-01-01T00:00:00Z`)."""
    resources = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}}
    container = {"name": CONTAINER, "image": "registry/train:1", "args": ["--run", name], "resources": resources}
    status = {
        "name": CONTAINER, "ready": True, "restartCount": 0, "state": {"running": {"startedAt": begun}},
        "resources": resources,
    }  # fmt: skip
    return {
        "metadata": {"name": name, "labels": {MANAGED_LABEL: "true", "app": name}, "creationTimestamp": begun},
        "spec": {"nodeName": node, "restartPolicy": "Never", "containers": [container]},
        "status": {
            "phase": "Running", "qosClass": "Burstable", "observedGeneration": 1, "startTime": begun,
            "containerStatuses": [status],
        },
    }  # fmt: skip


class _Training(NamedTuple):
    """One training, with the labels of its series as JSON without braces."""

    key: str
    """Namespace and pod."""
    target: str
    """What the scrape of its exporter adds."""
    instance: str
    """What FACTS keeps of that."""
    node: str
    begun_at: float
    loss_seconds: float
    rate: float
    """Steps a second."""

    def loss(self, at: float) -> float:
        return round(0.1 + 2 * math.exp(-(at - self.begun_at) / self.loss_seconds), 6)

    def steps(self, at: float) -> float:
        return max(0.0, round(self.rate * (at - self.begun_at)))


class SimulatedTrainings:
    """Those that there are now. A `FakePrometheus` answers by `respond`."""

    def __init__(self) -> None:
        self._trainings: dict[tuple[str, str], _Training] = {}
        self._added = 0

    def add(self, namespace: str, pod: str, node: str, begun_at_seconds: float) -> None:
        number = self._added
        self._added += 1
        instance = f'"instance":"10.{number // 65536 % 256}.{number // 256 % 256}.{number % 256}:9464"'
        self._trainings[namespace, pod] = _Training(
            key=f'"namespace":"{namespace}","pod":"{pod}"',
            target=f'"job":"pods",{instance},"container":"{CONTAINER}","node":"{node}"',
            instance=instance,
            node=node,
            begun_at=begun_at_seconds,
            loss_seconds=_LOSS_SECONDS[number % 3] * (1 + number % 7),
            rate=2.0 + number % 5,
        )

    def remove(self, namespace: str, pod: str) -> None:
        del self._trainings[namespace, pod]

    def respond(self, handler: BaseHTTPRequestHandler) -> None:
        """One query."""
        asked = parse_qs(urlsplit(handler.path).query)
        query, at = asked["query"][0].lstrip(), float(asked["time"][0])
        rows = ",".join(self._rows(query, at))
        kind = "matrix" if query.startswith("{") else "vector"
        send(handler, 200, f'{{"status":"success","data":{{"resultType":"{kind}","result":[{rows}]}}}}'.encode())

    def _rows(self, query: str, at: float) -> Iterator[str]:
        trainings = list(self._trainings.values())
        if query.startswith("{"):
            return _points(trainings, at, float(query.rsplit("[", 1)[1].partition("ms]")[0]) / 1000)
        if "quantile_over_time" in query:
            return _levels(trainings, at)
        if "label_replace(up{" in query:
            return _facts(trainings, at)
        if "sum by (node, instance)" in query:
            return (_row(f'{each.key},"node":"{each.node}"', at, 1.0) for each in trainings)
        if "working_set" in query:
            return _containers(trainings, at)
        return iter(())  # pods with too many series, and events: none of either


def _levels(trainings: list[_Training], at: float) -> Iterator[str]:
    newest = _scraped(at)
    for each in trainings:
        labels = f'{each.key},{each.target},"stage":"train_ema","slopewise_value"'
        yield _row(f'{labels}:"level"', at, each.loss(newest - 1.5 * SCRAPE_SECONDS))
        yield _row(f'{labels}:"sampled_at"', at, newest)


def _facts(trainings: list[_Training], at: float) -> Iterator[str]:
    for each in trainings:
        labels = f'{each.key},{each.instance},"__name__"'
        yield _row(f'{each.key},{each.target},"slopewise_value":"up","__name__":"up"', at, 1)
        yield _row(f'{labels}:"training_state","state":"training"', at, 1)
        yield _row(f'{labels}:"training_steps_total"', at, each.steps(_scraped(at)))
        yield _row(f'{labels}:"training_steps_planned"', at, _PLANNED_STEPS)
        yield _row(f'{labels}:"process_start_time_seconds"', at, each.begun_at)


def _containers(trainings: list[_Training], at: float) -> Iterator[str]:
    sampled = _scraped(at) - 3.0
    for each in trainings:
        labels, used = f'{each.key},"container":"{CONTAINER}"', max(0.0, sampled - each.begun_at)
        yield _row(f'{labels},"__name__":"container_memory_working_set_bytes"', at, 2**30)
        yield _row(f'{labels},"__name__":"container_cpu_cfs_periods_total"', at, 10 * used)
        yield _row(f'{labels},"__name__":"container_cpu_cfs_throttled_periods_total"', at, 0)
        yield _row(f'{labels},"slopewise_value":"sampled_at"', at, sampled)
        yield _row(f'{labels},"slopewise_value":"cpu"', at, used)
        yield _row(f'{labels},"slopewise_value":"block_io"', at, 8192)
        yield _row(f'{each.key},"slopewise_value":"network_io"', at, 8192)


def _points(trainings: list[_Training], at: float, window: float) -> Iterator[str]:
    """The loss of the last minibatch too, and the steps: a range selector cannot leave them out."""
    first = math.ceil((at - window) / SCRAPE_SECONDS)
    times = [each * SCRAPE_SECONDS for each in range(first, math.floor(at / SCRAPE_SECONDS) + 1)]
    for each in trainings:
        labels = f'{each.key},{each.target},"__name__"'
        here = [when for when in times if when >= each.begun_at] or [_scraped(at)]
        losses = ",".join(f'[{when},"{each.loss(when)}"]' for when in here)
        steps = ",".join(f'[{when},"{each.steps(when)}"]' for when in here)
        for stage in ("train", "train_ema"):
            yield f'{{"metric":{{{labels}:"training_loss","stage":"{stage}"}},"values":[{losses}]}}'
        yield f'{{"metric":{{{labels}:"training_steps_total"}},"values":[{steps}]}}'


def _row(labels: str, at: float, value: float) -> str:
    return f'{{"metric":{{{labels}}},"value":[{at},"{value}"]}}'


def _scraped(at: float) -> float:
    """When the newest sample was scraped."""
    return math.floor(at / SCRAPE_SECONDS) * SCRAPE_SECONDS
