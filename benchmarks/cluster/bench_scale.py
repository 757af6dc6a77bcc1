"""5,000 pods on 200 simulated nodes: what a pass costs, and what the controller needs to begin.

Gates: a pass under 1 s of CPU; a real `slopewise run` under 250 MiB at its peak, and under 15 s from start to the end
of its first pass, also after a restart; at most six PromQL queries a pass, and no list. `bench_scale.py marginal` runs
`marginal` in place of FlowCon, with 1.5 s and 300 MiB. Prints the parts of a pass, and how they grow from 500 pods to
5,000 (linear is 10). It is the controller's busiest time: the policy has just been let loose on all of them in mode
`Auto`, wishes to change nearly every pod, and may change as many as the token buckets and the storing of originals
allow. CPU of a pass is that of its own thread; the threads that store originals for it and write statuses behind it are
in the share of a core that the whole process takes, printed last.

kwok simulates nodes and pods behind the test-bed's API server; `fleet.py` has their series, in a Prometheus of its own.
"""

from __future__ import annotations

import logging
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fleet import Fleet, FleetServer
from inside import PARTS, CpuClock, Measured, MeasuredRunner, requests_of, running_world
from measured_controller import MeasuredController
from setting import bring_kinds, connect, own_namespace, policy

from slopewise.adapters.kube.client.client import KubeApi
from slopewise.adapters.local.prometheus_server import PrometheusServer, TargetGroup, find_prometheus
from slopewise.loop import calm_garbage_collector
from slopewise.manager.shared import Rates
from slopewise.telemetry.metrics import configure_logging
from testbed.simulated import CONTAINER, NAMESPACE

NODES = 200
FEW, MANY = 500, 5_000
SCRAPE_SECONDS = 10.0
INTERVAL_SECONDS = 40.0
SCRAPES_TO_FILL_A_WINDOW = 5
PASSES_INSIDE = 4
PASSES_OF_PROCESS = 3
START_TIMEOUT_SECONDS = 120.0

START_BOUND_SECONDS = 15.0
QUERIES_BOUND = 6

BOUNDS = {"flowcon": (1.0, 250.0), "marginal": (1.5, 300.0)}
"""CPU-seconds of a pass, and MiB, by policy. The first argument names the policy; FlowCon without one."""
DECIDED_BY = sys.argv[1] if len(sys.argv) > 1 else "flowcon"
PASS_BOUND_SECONDS, MEMORY_BOUND_MIB = BOUNDS[DECIDED_BY]

POLICY = policy(
    NAMESPACE, INTERVAL_SECONDS, policy={"name": DECIDED_BY}, resources={"cpu": {"min": "100m", "max": "8"}}
)


@dataclass(frozen=True, slots=True)
class Inside:
    """Passes in this process, and how often a list was asked for between the first and the last."""

    passes: Sequence[Measured]
    lists: float

    def median(self, part: str) -> float:
        """CPU seconds of one part, or of the `pass`, without the first pass."""
        later = self.passes[1:]
        return statistics.median(each.whole_seconds if part == "pass" else each.seconds[part] for each in later)


@dataclass(frozen=True, slots=True)
class Outside:
    """A process from its start to the end of some passes."""

    start_seconds: float
    start_cpu_seconds: float
    peak_mib: float
    cpu_ratio: float
    """CPU of the whole process, with watches and status writes, between its first pass and its last."""


def simulate(*arguments: str) -> None:
    """`python -m testbed kwok …`."""
    subprocess.run([sys.executable, "-m", "testbed", "kwok", *arguments], check=True)


@contextmanager
def simulated_trainings(api: KubeApi, pods: int) -> Iterator[str]:
    """That many pods, and the URL of a Prometheus that has had their series for the length of a window."""
    simulate("--nodes", str(NODES), "--pods", str(pods))
    listed = api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
    if len(listed) != pods:
        raise RuntimeError(f"{len(listed)} simulated pods are there, and {pods} were asked for; take them down first")
    fleet = Fleet(NAMESPACE, CONTAINER, [(each["metadata"]["name"], each["spec"]["nodeName"]) for each in listed])
    with FleetServer(fleet) as server, tempfile.TemporaryDirectory(prefix="slopewise-bench-") as folder:
        prometheus = PrometheusServer(
            find_prometheus(),
            Path(folder) / "prometheus",
            scrape_interval_seconds=SCRAPE_SECONDS,
            targets=[TargetGroup(targets=[server.address], labels={})],
            honor_labels=True,
        )
        with prometheus:
            prometheus.wait_for_targets()
            time.sleep(SCRAPES_TO_FILL_A_WINDOW * SCRAPE_SECONDS)
            yield prometheus.url


def inside(url: str) -> Inside:
    """Some passes, an interval apart."""
    with running_world(url, SCRAPE_SECONDS, POLICY, CpuClock(), Rates()) as shared:
        runner = MeasuredRunner(shared)
        passes: list[Measured] = []
        lists = 0.0
        for number in range(PASSES_INSIDE):
            begun = time.monotonic()
            passes.append(runner.measured_pass())
            if number == 0:
                lists = requests_of(shared, verb="list")
            time.sleep(max(0.0, INTERVAL_SECONDS - (time.monotonic() - begun)))
        runner.stop()
        return Inside(passes, requests_of(shared, verb="list") - lists)


def outside(url: str, lease_namespace: str, passes: int) -> Outside:
    """A `slopewise run` over all pods until so many passes have ended."""
    options = ("--scrape-interval", f"{SCRAPE_SECONDS:g}", "--lease-namespace", lease_namespace)
    with MeasuredController(POLICY, url, *options) as controller:
        first = controller.wait_for_passes(MANY, 1, START_TIMEOUT_SECONDS)[0]
        begun, start_cpu = time.monotonic(), controller.cpu_seconds()
        controller.wait_for_passes(MANY, passes, START_TIMEOUT_SECONDS + passes * INTERVAL_SECONDS)
        controller.metrics()
        used = controller.cpu_seconds() - start_cpu
        return Outside(
            controller.seconds_to(first),
            start_cpu,
            controller.peak_memory_mib(),
            used / max(time.monotonic() - begun, 1e-9),
        )


def show_parts(found: Mapping[int, Inside]) -> None:
    """CPU of each part for both sizes, and its growth."""
    print(f"{'CPU of a pass, ms':<20}{FEW:>8} pods{MANY:>9} pods    growth (linear: {MANY / FEW:g})")
    for part in (*PARTS, "pass"):
        few, many = found[FEW].median(part), found[MANY].median(part)
        print(f"  {part:<18}{1000 * few:>13.1f}{1000 * many:>14.1f}{many / few:>10.1f}")
    for pods, each in found.items():
        first = each.passes[0]
        resizes = ", ".join(str(one.report.count("applied")) for one in each.passes)
        print(f"  the first of {pods} pods {1000 * first.whole_seconds:.0f}; resizes carried out: {resizes}")


def verdict(what: str, figure: float, bound: float, unit: str) -> bool:
    """Print one figure beside its bound; whether it holds."""
    held = figure <= bound
    print(f"  {what:<46}{figure:>9.4g} {unit:<4} bound {bound:g} {unit}: {'held' if held else 'MISSED'}")
    return held


def main() -> int:
    """Print the figures; 1 when a bound is missed."""
    configure_logging(level=logging.ERROR)
    calm_garbage_collector()  # as `slopewise run` does
    api = connect()
    bring_kinds(api)
    found: dict[int, Inside] = {}
    try:
        with simulated_trainings(api, FEW) as url:
            found[FEW] = inside(url)
        with simulated_trainings(api, MANY) as url, own_namespace(api) as lease:
            started = outside(url, lease, PASSES_OF_PROCESS)
            restarted = outside(url, lease, 1)
            found[MANY] = inside(url)
    finally:
        simulate("--down")
    show_parts(found)
    print(f"{MANY} pods on {NODES} nodes")
    held = [
        verdict("CPU of a pass", found[MANY].median("pass"), PASS_BOUND_SECONDS, "s"),
        verdict("from process start to the end of the first pass", started.start_seconds, START_BOUND_SECONDS, "s"),
        verdict("the same after a restart", restarted.start_seconds, START_BOUND_SECONDS, "s"),
        verdict("peak memory", max(started.peak_mib, restarted.peak_mib), MEMORY_BOUND_MIB, "MiB"),
        verdict("queries of a pass", max(each.queries for each in found[MANY].passes), QUERIES_BOUND, ""),
        verdict(f"lists during {PASSES_INSIDE - 1} passes", found[MANY].lists, 0, ""),
    ]
    print(
        f"  the start took {started.start_cpu_seconds:.1f} s of CPU; then the whole process, status writes included, "
        f"takes {started.cpu_ratio:.0%} of a core while everything is new"
    )
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
