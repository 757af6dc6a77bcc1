"""5,000 pods on 200 simulated nodes: what a pass costs, and what the controller needs to begin.

Gates: a pass under 1 s of CPU; a real `slopewise run` under 250 MB at its peak, and under 15 s from its start to its
first decision; at most six PromQL queries a pass, and no list call. Prints the parts of a pass, and how they grow from
500 pods to 5,000 (linear is 10). kwok simulates nodes and pods behind the test-bed's API server; `fleet.py` has their
series, in a Prometheus of its own.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from controller_process import ControllerProcess
from fleet import Fleet, FleetServer
from inside import PARTS, UNBOUNDED, CpuClock, Measured, MeasuredRunner, running_world
from setting import INTERVAL_SECONDS, SCRAPE_SECONDS, bring_kinds, connect, own_namespace, policy

from controller.adapters.kube.api import KubeApi
from controller.adapters.prometheus_server import PrometheusServer, find_prometheus
from controller.loop import calm_garbage_collector
from controller.telemetry import configure_logging
from testbed.simulated import CONTAINER, NAMESPACE

NODES = 200
SIZES = (500, 5_000)
PASSES = 6
PROCESS_PASSES = 4
PASS_BOUND_SECONDS = 1.0
MEMORY_BOUND_MB = 250.0
START_BOUND_SECONDS = 15.0
QUERIES_BOUND = 6
SCRAPES_PER_WINDOW = 4
POLICY = policy(NAMESPACE, resources={"cpu": {"min": "100m", "max": "8"}})


def simulate(*arguments: str) -> None:
    """`python -m testbed kwok …`."""
    subprocess.run([sys.executable, "-m", "testbed", "kwok", *arguments], check=True)


def fleet_of(api: KubeApi, pods: int) -> Fleet:
    """The series of all pods that are there."""
    listed = api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
    if len(listed) != pods:
        raise RuntimeError(f"{len(listed)} simulated pods are there and {pods} were asked for; take them down first")
    return Fleet(NAMESPACE, CONTAINER, [(each["metadata"]["name"], each["spec"]["nodeName"]) for each in listed])


@contextmanager
def prometheus_of(server: FleetServer) -> Iterator[str]:
    """The URL of a Prometheus that scrapes the fleet."""
    with tempfile.TemporaryDirectory(prefix="slopewise-bench-") as folder:
        targets = [{"targets": [server.address], "labels": {}}]
        prometheus = PrometheusServer(
            find_prometheus(),
            Path(folder) / "prometheus",
            scrape_interval_seconds=SCRAPE_SECONDS,
            targets=targets,
            honor_labels=True,
        )
        with prometheus:
            prometheus.wait_for_targets()
            yield prometheus.url


def passes_inside(url: str, count: int) -> list[Measured]:
    """So many passes, an interval apart, with the CPU of each part."""
    with running_world(url, SCRAPE_SECONDS, POLICY, CpuClock(), UNBOUNDED) as world:
        runner = MeasuredRunner(world)
        found = []
        for _ in range(count):
            begun = time.monotonic()
            found.append(runner.measured_pass())
            time.sleep(max(0.0, INTERVAL_SECONDS - (time.monotonic() - begun)))
        runner.stop()
        return found


def show_parts(found: dict[int, Sequence[Measured]]) -> float:
    """Median CPU of each part and its growth; returns the median of the largest size's whole pass."""
    small, large = found[SIZES[0]][1:], found[SIZES[1]][1:]
    print(f"{'CPU of a pass, ms':<20}{SIZES[0]:>8} pods{SIZES[1]:>8} pods   growth (linear is {SIZES[1] / SIZES[0]:g})")
    for part in PARTS:
        few, many = (statistics.median(each.seconds[part] for each in passes) for passes in (small, large))
        print(f"  {part:<18}{1000 * few:>13.1f}{1000 * many:>13.1f}{many / few:>9.1f}")
    few, many = (statistics.median(each.whole_seconds for each in passes) for passes in (small, large))
    print(f"  {'pass':<18}{1000 * few:>13.1f}{1000 * many:>13.1f}{many / few:>9.1f}")
    for pods in SIZES:
        first, later = found[pods][0], [each.whole_seconds for each in found[pods][1:]]
        resizes = [len(each.report.outcomes) for each in found[pods]]
        print(f"  {pods} pods: first pass {first.whole_seconds:.2f} s, later {min(later):.2f} to {max(later):.2f} s; {resizes} resizes")
    return many


def main() -> int:
    configure_logging(level=40)
    calm_garbage_collector()
    api = connect()
    bring_kinds(api)
    found: dict[int, Sequence[Measured]] = {}
    try:
        simulate("--nodes", str(NODES), "--pods", str(SIZES[0]))
        with FleetServer(fleet_of(api, SIZES[0])) as server, prometheus_of(server) as url:
            time.sleep(SCRAPE_SECONDS * (SCRAPES_PER_WINDOW + 1))
            found[SIZES[0]] = passes_inside(url, PASSES)
        simulate("--nodes", str(NODES), "--pods", str(SIZES[1]))
        with FleetServer(fleet_of(api, SIZES[1])) as server, prometheus_of(server) as url, own_namespace(api) as lease:
            time.sleep(SCRAPE_SECONDS * (SCRAPES_PER_WINDOW + 1))
            with ControllerProcess(POLICY, url, "--scrape-interval", f"{SCRAPE_SECONDS:g}", "--lease-namespace", lease) as controller:
                first = controller.wait_for_passes(SIZES[1], 1, 120)[0]
                start = controller.seconds_to(first)
                print("first", start, first["observe_ms"], first["decide_ms"], first["act_ms"], "cpu", controller.cpu_seconds(), "peak", controller.peak_memory_mib())
                lines = controller.wait_for_passes(SIZES[1], PROCESS_PASSES, 300)
                for line in lines:
                    print({k: v for k, v in line.items() if k not in ("changes",)} , str(line["changes"])[:200])
                print("cpu", controller.cpu_seconds(), "peak", controller.peak_memory_mib(), "now", controller.memory_mib())
                controller.metrics()
                print("peak after scrape", controller.peak_memory_mib())
            found[SIZES[1]] = passes_inside(url, PASSES)
    finally:
        simulate("--down")
    show_parts(found)
    print([m.queries for m in found[SIZES[1]]])
    return 0


if __name__ == "__main__":
    sys.exit(main())
