"""How long the queries of each dashboard take at 5,000 jobs, against a real Prometheus with an hour of their metrics.

The series are those that the controller exports of 5,000 jobs on 200 nodes, without recording rules, a sample a minute,
written as blocks by promtool. Each panel is asked as Grafana asks: instant, or over an hour with as many points as its
panel shows, three times, of which the best counts. Bound: 1 s for all panels of Overview together, one after another.
`--jobs N` makes fewer; the bound stays.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import requests
from prometheus_client.core import Metric

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.backfilled_prometheus import Series, Value, backfilled  # noqa: E402
from support.worlds import a_job, a_node, a_snapshot, known  # noqa: E402

from grafana.queries import dashboards, metric_names, panels, substituted  # noqa: E402
from slopewise.adapters.local.prometheus_install import find_prometheus  # noqa: E402
from slopewise.manager.metrics import ClusterMetrics  # noqa: E402
from slopewise.model import Decisions, Ends, MemoryState, PassReport  # noqa: E402
from slopewise.telemetry.metrics import Instruments, Telemetry  # noqa: E402

HOUR, STEP = 3600.0, 60.0
NODES = 200
ROUNDS = 3
BOUND_SECONDS = 1.0
CLASSES = ("NL", "WL", "CL")


def exported(jobs: int, now: float) -> Iterator[Metric]:
    """All families of a controller that has seen so many jobs, in two passes."""
    instruments = Instruments()
    ClusterMetrics(instruments.registry)
    telemetry = Telemetry(control="requests", interval_seconds=20.0, document="training", instruments=instruments)
    ends = Ends(now + 600, now + 500, now + 800, now + 700)
    seen = [
        a_job(f"train-{number:05d}", node=f"node-{number % NODES:03d}", at=now).altered(namespace=f"team-{number % 20}")
        for number in range(jobs)
    ]
    memory = {
        job.uid: known(efficiency=0.01, job_class=CLASSES[at % 3], wanted=0.5, ends=ends) for at, job in enumerate(seen)
    }
    nodes = [a_node(f"node-{number:03d}", 16.0) for number in range(NODES)]
    for at in (now - 20, now):
        decided = Decisions("marginal", (), {}, MemoryState(memory))
        telemetry.record(PassReport(at, "marginal", {}, at + 20, None, a_snapshot(seen, nodes, at=at), decided))
    yield from instruments.registry.collect()


def history(jobs: int, read: set[str], now: float) -> Iterator[Series]:
    """An hour of the series that panels read; counters rise."""
    for family in exported(jobs, now):
        for sample in family.samples:
            if sample.name in read:
                value = rising(sample.value, 1.0 if family.type == "counter" else 0.0)
                yield Series(sample.name, sample.labels, now - HOUR, HOUR, value)


def rising(base: float, slope: float) -> Value:
    """A value that rises so much a second."""
    return lambda at: base + slope * at


def seconds_of(url: str, dashboard: Any, panel: Any, now: float) -> float:
    """How long all queries of a panel take, one after another."""
    began = time.monotonic()
    for target in panel.get("targets", ()):
        query = substituted(dashboard, target["expr"], rate_interval="4m")
        if target.get("instant"):
            asked, path = {"query": query, "time": str(now)}, "query"
        else:
            step = max(STEP, HOUR / panel["maxDataPoints"])
            asked = {"query": query, "start": str(now - HOUR), "end": str(now), "step": str(step)}
            path = "query_range"
        answer = requests.post(f"{url}/api/v1/{path}", data=asked, timeout=60)
        assert answer.ok, answer.text
    return time.monotonic() - began


def cpu_seconds() -> float:
    """What the Prometheus that this process has started has used."""
    return sum(sum(child.cpu_times()[:2]) for child in psutil.Process().children())


def with_one_job(dashboard: Any) -> Any:
    """The dashboard with the variable job set, as it always is."""
    chosen = [
        {**each, "allValue": "train-00007"} if each["name"] == "job" else each
        for each in dashboard["templating"]["list"]
    ]
    return {**dashboard, "templating": {"list": chosen}}


def main() -> int:
    """0 within the bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=5000)
    options = parser.parse_args()
    now = (time.time() - 60) // 60 * 60
    known_dashboards = dashboards()
    targets = [
        target for each in known_dashboards.values() for panel in panels(each) for target in panel.get("targets", ())
    ]
    read = set().union(*(metric_names(target["expr"]) for target in targets))
    totals: dict[str, float] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        backfilled(find_prometheus(), Path(folder), history(options.jobs, read, now)) as url,
    ):
        for name, dashboard in known_dashboards.items():
            chosen = with_one_job(dashboard) if name == "job" else dashboard
            before = cpu_seconds()
            rounds = [
                {panel["title"]: seconds_of(url, chosen, panel, now) for panel in panels(dashboard)}
                for _ in range(ROUNDS)
            ]
            of_server = (cpu_seconds() - before) / ROUNDS
            took = {title: min(each[title] for each in rounds) for title in rounds[0]}
            totals[name] = sum(took.values())
            slowest = sorted(took.items(), key=lambda each: -each[1])[:6]
            shown = ", ".join(f"{title} {seconds:.3f}" for title, seconds in slowest)
            print(f"{name}: {totals[name]:.2f} s, {of_server:.2f} s of Prometheus's CPU; slowest: {shown}")
    within = totals["overview"] <= BOUND_SECONDS
    print(f"overview {totals['overview']:.2f} s, bound {BOUND_SECONDS:g} s: {'ok' if within else 'TOO SLOW'}")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
