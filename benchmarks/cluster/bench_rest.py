"""Measures CPU and memory of a real `slopewise run` while five real trainings run.

Gate: 2 % of one core and 150 MiB. Beside it, as the baseline of the same run, what the same interpreter has resident
when it has imported the controller and done nothing. The trainings are pods on the test-bed's two nodes, scraped by its
Prometheus every 5 s and looked at every 20 s, three times as often as by default.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from measured_controller import MeasuredController
from setting import bring_kinds, connect, own_namespace, pod, policy, start_pods

from slopewise.telemetry.metrics import configure_logging
from testbed.images import BASE_IMAGE
from testbed.settings import read_settings

JOBS = 5
NODES = ("node-a", "node-a", "node-a", "node-b", "node-b")
SCRAPE_SECONDS = 5.0
INTERVAL_SECONDS = 20.0
SETTLE_SECONDS = 30.0
RUN_SECONDS = 120.0
CPU_BOUND_RATIO = 0.02
MEMORY_BOUND_MIB = 150.0

_EXPORTERS = Path(__file__).resolve().parents[2] / "exporters"
_TRAINING = """
import math, time
from slopewise_exporter import Reporter
with Reporter(port=9464, planned_steps=100_000) as reporter:
    for step in range(100_000):
        reporter.step(loss=0.1 + math.exp(-step / 300))
        time.sleep(0.1)
"""
_IDLE = "import slopewise.manager.replica, psutil; print(psutil.Process().memory_info().rss / 2**20)"


def training(number: int) -> dict[str, Any]:
    """A pod whose loss falls, and which hardly computes: what the controller costs does not depend on that."""
    made = pod(
        f"training-{number}",
        NODES[number],
        BASE_IMAGE,
        ["python3", "-c", _TRAINING],
        ports=[{"name": "metrics", "containerPort": 9464}],
        env=[{"name": "PYTHONPATH", "value": "/exporters"}],
        volumeMounts=[{"name": "exporters", "mountPath": "/exporters", "readOnly": True}],
    )
    made["spec"]["volumes"] = [{"name": "exporters", "hostPath": {"path": str(_EXPORTERS), "type": "Directory"}}]
    return made


def main() -> int:
    """Print the figures; 1 when a bound is missed."""
    configure_logging(level=logging.ERROR)
    idle_mib = float(subprocess.run([sys.executable, "-c", _IDLE], capture_output=True, text=True, check=True).stdout)
    api = connect()
    bring_kinds(api)
    with own_namespace(api) as namespace:
        start_pods(api, namespace, [training(number) for number in range(JOBS)])
        options = ("--scrape-interval", f"{SCRAPE_SECONDS:g}", "--lease-namespace", namespace)
        spec = policy(
            namespace, INTERVAL_SECONDS, policy={"name": "flowcon"}, resources={"cpu": {"min": "100m", "max": "1"}}
        )
        with MeasuredController(spec, read_settings().prometheus_url, *options) as controller:
            first = controller.wait_for_passes(JOBS, 1, 60.0)[0]
            start_seconds = controller.seconds_to(first)
            time.sleep(SETTLE_SECONDS)
            begun, cpu, passes = time.monotonic(), controller.cpu_seconds(), len(controller.passes(JOBS))
            time.sleep(RUN_SECONDS)
            ratio = (controller.cpu_seconds() - cpu) / (time.monotonic() - begun)
            passes = len(controller.passes(JOBS)) - passes
            now, peak = controller.memory_mib(), controller.peak_memory_mib()
    held = ratio <= CPU_BOUND_RATIO and peak <= MEMORY_BOUND_MIB
    print(
        f"{JOBS} jobs, {passes} logged passes in {RUN_SECONDS:.0f} s; first pass {start_seconds:.1f} s after the start"
    )
    print(f"  CPU     {ratio:.2%} of a core")
    grown = peak / idle_mib
    print(f"  memory  {now:.0f} MiB, {peak:.0f} at its peak; {grown:.2f} x the imported program's {idle_mib:.0f}")
    verdict = "held" if held else "MISSED"
    print(f"bounds: {CPU_BOUND_RATIO:.0%} of a core, {MEMORY_BOUND_MIB:.0f} MiB: {verdict}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
