"""The series of many trainings and of the kubelets below them, served by one small HTTP server.

`bench_scale.py` scrapes it with a Prometheus of its own: kwok's pods have no exporters, and 5,000 scrapes a round would
measure this machine and not the controller. The page carries every label that as many scrapes would have put on
(`job`, `instance`, `namespace`, `pod`, `container`, `node`, also on `up`), as Prometheus's own `/federate` does, and is
scraped with `honor_labels: true`. So Prometheus holds, and the controller's queries meet, the same series as with real
ones, as far as a query reads them: 20 a pod.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

STATES = ("starting", "training", "checkpointing", "finished", "failed")
PLANNED_STEPS = 100_000
CFS_PERIODS_PER_SECOND = 10.0


class Fleet:
    """Trainings whose losses fall at different speeds: a third fast, a third slowly, a third hardly any more."""

    def __init__(self, namespace: str, container: str, pods: Iterable[tuple[str, str]]) -> None:
        """`pods`: name and node of each."""
        self._started_at = time.time()
        self._still: list[str] = []
        self._moving: list[tuple[str, float, float]] = []
        """Each series that grows: its text, what it grows by a second, and with it the time constant of a loss or 0."""
        nodes = set()
        for place, (pod, node) in enumerate(pods):
            nodes.add(node)
            where = f'namespace="{namespace}",pod="{pod}",container="{container}"'
            self._add_training(place, f'job="pods",instance="{pod}:9464",{where},node="{node}"')
            self._add_container(pod, f'{_kubelet(node)},id="/kubepods/{pod}/1"', where, namespace)
        self._still += [f"up{{{_kubelet(node)}}} 1" for node in sorted(nodes)]

    def _add_training(self, place: int, labels: str) -> None:
        loss_seconds = (30.0, 600.0, 3.0)[place % 3] * (1 + place % 7)
        self._moving += [
            (f'training_loss{{{labels},stage="train"}} ', 1.0, loss_seconds),
            (f'training_loss{{{labels},stage="train_ema"}} ', 1.0, loss_seconds),
            (f"training_steps_total{{{labels}}} ", 2.0 + place % 5, 0.0),
        ]
        self._still += [
            f"up{{{labels}}} 1",
            f"training_steps_planned{{{labels}}} {PLANNED_STEPS}",
            f"training_nonfinite_loss_total{{{labels}}} 0",
            f'training_info{{{labels},framework="none",model="made-up",objective="min"}} 1',
            f"process_start_time_seconds{{{labels}}} {self._started_at - 3600:.3f}",
            *(f'training_state{{{labels},state="{state}"}} {int(state == "training")}' for state in STATES),
        ]

    def _add_container(self, pod: str, kubelet: str, where: str, namespace: str) -> None:
        labels = f"{kubelet},{where}"
        of_pod = f'{kubelet},namespace="{namespace}",pod="{pod}",interface="eth0"'
        self._moving += [
            (f"container_cpu_usage_seconds_total{{{labels}}} ", 1.0, 0.0),
            (f"container_cpu_cfs_periods_total{{{labels}}} ", CFS_PERIODS_PER_SECOND, 0.0),
        ]
        self._still += [
            f"container_memory_working_set_bytes{{{labels}}} 1073741824",
            f"container_cpu_cfs_throttled_periods_total{{{labels}}} 0",
            f'container_fs_reads_bytes_total{{{labels},device="/dev/vda"}} 4096',
            f'container_fs_writes_bytes_total{{{labels},device="/dev/vda"}} 4096',
            f"container_network_receive_bytes_total{{{of_pod}}} 4096",
            f"container_network_transmit_bytes_total{{{of_pod}}} 4096",
        ]

    def page(self) -> Iterator[bytes]:
        """All series now, in Prometheus's text format."""
        yield ("\n".join(self._still) + "\n").encode()
        seconds = time.time() - self._started_at
        lines = [f"{text}{_value(seconds, rate, loss_seconds)}\n" for text, rate, loss_seconds in self._moving]
        yield "".join(lines).encode()


def _kubelet(node: str) -> str:
    return f'job="kubelet-metrics-cadvisor",instance="{node}:10250",node="{node}"'


def _value(seconds: float, rate: float, loss_seconds: float) -> float:
    if loss_seconds:
        return round(0.1 + 2 * math.exp(-seconds / loss_seconds), 6)
    return round(1000 + rate * seconds, 3)


class FleetServer:
    """Serves a fleet's page on a loopback port, from entry to exit; another fleet may take the place of the first."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

    @property
    def address(self) -> str:
        """What Prometheus is to scrape."""
        return f"127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        owner = self

        class Page(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                for part in owner.fleet.page():
                    self.wfile.write(part)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                """Nothing: scrapes are not logged."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
