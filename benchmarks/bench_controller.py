"""What the controller costs while it manages ten real jobs: its own CPU, and the time of a pass.

Gate, on ratios within the run: the controller's CPU at most 1 % of one core, a pass at most 1 % of its interval, which
is 50 ms of 5 s. Prints the parts of a pass. The jobs are real processes with exporters, scraped by a real Prometheus;
the baseline beside it is what one bare PromQL query costs in the same run.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from pathlib import Path

import requests

from slopewise.config.jobs_file import JobSpec
from slopewise.config.training_policy import TrainingPolicy
from slopewise.local.plan import SessionPlan
from slopewise.local.session import Session
from slopewise.local.workshop import Workshop
from slopewise.telemetry.metrics import configure_logging

JOBS = 10
INTERVAL_SECONDS = 5.0
RUN_SECONDS = 45.0
CPU_BOUND_RATIO = 0.01
PASS_BOUND_SECONDS = 0.05
TINY = Path(__file__).parents[1] / "tests" / "support" / "tiny_training.py"


def policy() -> TrainingPolicy:
    """FlowCon as the demo runs it."""
    spec = {
        "mode": "Auto",
        "policy": {"name": "flowcon"},
        "resources": {"cpu": {"min": "20m", "max": "64"}},
        "behaviour": {"intervalSeconds": INTERVAL_SECONDS, "cooldownSeconds": 0, "maxStepRatio": 100},
    }
    return TrainingPolicy.model_validate({"spec": spec})


def bare_query_seconds(session: Session) -> float:
    """Median time of the smallest query there is, over a connection that is already open."""
    times = []
    with requests.Session() as http:
        for _ in range(20):
            start = time.perf_counter()
            http.get(f"{session.prometheus.url}/api/v1/query", params={"query": "1"}, timeout=5).raise_for_status()
            times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def main() -> int:
    """Print the figures; 1 when a bound is missed."""
    configure_logging(level=40)
    jobs = [JobSpec(f"job-{place}", [sys.executable, str(TINY), "3600"], 0.0) for place in range(JOBS)]
    with (
        Workshop(actuator="auto", announce=print) as workshop,
        Session(workshop, SessionPlan(policy(), jobs, namespace="bench")) as session,
    ):
        threading.Timer(RUN_SECONDS, session.stop).start()
        wall, process = time.monotonic(), time.process_time()
        session.run()
        wall, process = time.monotonic() - wall, time.process_time() - process
        query = bare_query_seconds(session)
        passes = [each for each in session.all_reports() if each.snapshot and len(each.snapshot.jobs) == JOBS]
        cpu_ratio = session.loop.cpu_seconds / wall
    verbs = {
        verb: statistics.median(each.seconds_by_verb[verb] for each in passes) for verb in passes[0].seconds_by_verb
    }
    whole = statistics.median(sum(each.seconds_by_verb.values()) for each in passes)
    print(f"{len(passes)} passes over {JOBS} jobs in {wall:.0f} s")
    for verb, seconds in verbs.items():
        print(f"  {verb:<8}{1000 * seconds:>8.2f} ms {seconds / whole:>6.0%}")
    print(f"  pass    {1000 * whole:>8.2f} ms; {whole / query:.1f} x one bare query of {1000 * query:.2f} ms")
    print(f"  passes' CPU {cpu_ratio:.3%} of a core; whole process with supervision {process / wall:.3%}")
    held = cpu_ratio <= CPU_BOUND_RATIO and whole <= PASS_BOUND_SECONDS
    verdict = "held" if held else "MISSED"
    print(f"bounds: {CPU_BOUND_RATIO:.0%} of a core, {1000 * PASS_BOUND_SECONDS:.0f} ms a pass: {verdict}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
