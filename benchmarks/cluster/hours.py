"""Hours in real time on the test-bed, with trainings that come and go: whether the controller grows, slows or errs.

`make hours HOURS=2`, 0.2 at least. Every 20 s a training arrives on real kubelets, and ends after one to three minutes.
A real `slopewise run` with `marginal` and moves manages them by a real Prometheus. Each minute has a line.

Gate, of what follows the first sixth: memory grows by at most 1 % an hour, no store has more entries in the last third
than in the first, and passes of the last third take as much CPU. Memory and stores are judged where that is an hour at
least: caches fill until then. The history has no contradiction, each training does all of its steps, nothing is left.

`build/hours` keeps the records; `python -m testbed.histories build/hours --settled` checks the history again.
"""

from __future__ import annotations

import json
import logging
import operator
import shutil
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

from measured_controller import MeasuredController
from setting import bring_kinds, connect, policy

from slopewise.signals import Interrupted, orderly_stop
from slopewise.telemetry.metrics import configure_logging
from testbed.histories.check import contradictions
from testbed.histories.collect import collecting
from testbed.histories.reading import read
from testbed.images import BASE_IMAGE
from testbed.settings import Settings, read_settings

# The trainings that the tests move keep a diary, which is part of a history.
sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
from support.cluster import Kubectl, PodShape
from support.movable import MovableTrainings, shared_volume
from support.moving_stage import UNBOUNDED
from support.waiting import eventually

FOLDER = Path(__file__).resolve().parents[2] / "build/hours"
RECORDS, STORES = FOLDER / "records", FOLDER / "stores.jsonl"
COUNTED = Path(__file__).with_name("counted_controller.py")
SCRAPE_SECONDS, INTERVAL_SECONDS, ARRIVAL_SECONDS = 5, 20, 20
NODES = ("node-a", "node-b")
STEPS, KEPT_SECONDS = (600, 1200, 1800), 10
"""Of one training after another, 0.1 s each, so that about six are alive; how long a Job that has ended stays."""
SETTLE_SECONDS = 600.0
SPEC = {
    "policy": {"name": "marginal"},
    "resources": {"control": "limits", "cpu": {"min": "200m", "max": "1"}},
    "migration": UNBOUNDED,
}

WARM_UP_RATIO, JUDGED_HOURS, LEAST_HOURS = 1 / 6, 1.0, 0.2
"""Less than the last has no thirds of several minutes."""
GROWTH_BOUND_RATIO = 0.01
"""Of memory, an hour."""
SLOWER_BOUND_RATIO = 1.2
LIVELY_RATIO, LEAK_RATIO = 1.25, 0.25
"""How much more jobs may be alive at once; the part of the trainings of which a store that leaks keeps an entry."""

Verdict = tuple[str, bool | None]
"""What is said, and whether it holds; None: that is not judged."""
One = TypeVar("One")


@dataclass(frozen=True, slots=True)
class Minute:
    """The controller at one moment, in seconds since the first training."""

    at_seconds: float
    mebibytes: float
    cpu_seconds: float
    """Since its start."""
    pass_seconds: Sequence[float]
    """Of each pass since the minute before."""

    def __str__(self) -> str:
        return (
            f"{self.at_seconds / 60:5.0f} min {self.mebibytes:7.1f} MiB {self.cpu_seconds:7.1f} s of CPU, passes: "
            f"{' '.join(f'{seconds:.2f}' for seconds in self.pass_seconds)} s"
        )


@contextmanager
def applied(kubectl: Kubectl, document: Mapping[str, Any]) -> Iterator[None]:
    """Obey the policy meanwhile; at the end the controller lets it go."""
    kubectl.apply(document)
    at = ("trainingpolicy", document["metadata"]["name"])
    try:
        yield
        kubectl.run("delete", *at, "--timeout=100s")
    finally:  # where the controller has ended
        kubectl.attempt("delete", *at, "--wait=false")
        kubectl.attempt("patch", *at, "--type=merge", "-p", json.dumps({"metadata": {"finalizers": None}}))


def come_and_go(trainings: MovableTrainings, controller: MeasuredController, arrivals: int) -> list[Minute]:
    """One training after another arrives; the record of each minute."""
    begun, passes, minutes = time.monotonic(), 0, list[Minute]()
    for number in range(arrivals):
        time.sleep(max(0.0, begun + number * ARRIVAL_SECONDS - time.monotonic()))
        job = trainings.job(f"train-{number}", steps=STEPS[number % len(STEPS)], likes=NODES[number % len(NODES)])
        job["spec"]["ttlSecondsAfterFinished"] = KEPT_SECONDS
        trainings.kubectl.apply(job, namespace=trainings.namespace)
        at = time.monotonic() - begun
        if at >= 60 * (len(minutes) + 1):
            lines = controller.passes()
            took = [sum(each for verb, each in line.items() if verb.endswith("_ms")) / 1000 for line in lines[passes:]]
            minutes.append(Minute(at, controller.memory_mib(), controller.cpu_seconds(), took))
            passes = len(lines)
            print(minutes[-1], flush=True)
    return minutes


def warm(rows: Sequence[One]) -> Sequence[One]:
    """What follows the warm-up."""
    return rows[round(len(rows) * WARM_UP_RATIO) :]


def thirds(rows: Sequence[One]) -> tuple[Sequence[One], Sequence[One]]:
    """The first and the last one."""
    return rows[: len(rows) // 3], rows[-(len(rows) // 3) :]


def growth(minutes: Sequence[Minute], arrivals: int) -> Iterator[Verdict]:
    """Of memory, stores and passes."""
    counts = warm([Counter[str](json.loads(line)) for line in STORES.read_text().splitlines()][: len(minutes)])
    minutes, judged = warm(minutes), (1 - WARM_UP_RATIO) * arrivals * ARRIVAL_SECONDS >= JUDGED_HOURS * 3600
    hours, mebibytes = zip(*((minute.at_seconds / 3600, minute.mebibytes) for minute in minutes), strict=True)
    ratio = statistics.linear_regression(hours, mebibytes).slope / statistics.mean(mebibytes)
    yield f"memory grows by {ratio:.1%} an hour", ratio <= GROWTH_BOUND_RATIO if judged else None
    early, late = (reduce(operator.or_, third) for third in thirds(counts))  # the most entries of each store
    leak = LEAK_RATIO * (1 - WARM_UP_RATIO) * arrivals / 3
    grown = [f"{name} {early[name]} to {now}" for name, now in late.items() if now > LIVELY_RATIO * early[name] + leak]
    yield f"stores that grow, of {len(late)}: {', '.join(grown) or 'none'}", not grown if judged else None
    clock = [statistics.median(took for minute in third for took in minute.pass_seconds) for third in thirds(minutes)]
    first, last = (  # of the whole process, between the minutes of a third: what else runs here does not count
        (third[-1].cpu_seconds - third[0].cpu_seconds) / sum(len(minute.pass_seconds) for minute in third[1:])
        for third in thirds(minutes)
    )
    beside = f"by the clock {clock[0]:.2f} and {clock[1]:.2f} s"
    yield f"a pass takes {first:.3f} s of CPU, {last:.3f} at the end; {beside}", last <= SLOWER_BOUND_RATIO * first


def run(settings: Settings, arrivals: int) -> Iterator[Verdict]:
    """All of it."""
    kubectl = Kubectl(str(settings.kubectl), settings.kubeconfig)
    with ExitStack() as stack:
        collect = stack.enter_context(collecting(settings, FOLDER))
        namespace = stack.enter_context(kubectl.own_namespace())
        trainings = MovableTrainings(kubectl, namespace, PodShape(BASE_IMAGE), FOLDER)
        stack.enter_context(shared_volume(trainings))
        options = ["--scrape-interval", str(SCRAPE_SECONDS), "--lease-namespace", namespace, "--record", str(RECORDS)]
        controller = MeasuredController(None, settings.prometheus_url, *options, program=(str(COUNTED), str(STORES)))
        stack.enter_context(controller)
        with applied(kubectl, policy(namespace, INTERVAL_SECONDS, **SPEC)):
            minutes = come_and_go(trainings, controller, arrivals)
        changes = sum(line["applied"] for line in controller.passes())
        everything = ("get", "jobs,pods,jobgrowths", "-n", namespace, "-o", "name")
        eventually(lambda: not kubectl.run(*everything), SETTLE_SECONDS)
        left = kubectl.run(*everything).split()
        collect()
    yield from growth(minutes, arrivals)
    yield f"changes carried out: {changes}", changes > 0
    steps = {f"train-{number}": STEPS[number % len(STEPS)] for number in range(arrivals)}
    undone = [name for name, most in steps.items() if trainings.diary(name).steps != most]
    yield f"trainings, of {arrivals}, that lack a step: {', '.join(undone) or 'none'}", not undone
    yield f"left at the end: {', '.join(left) or 'nothing'}", not left
    found = contradictions(read(FOLDER), settled=True)
    yield "\n".join([f"contradictions of the history: {len(found)}", *map(str, found)]), not found


def main() -> int:
    """Print the figures; 1 when the gate is missed."""
    arrivals, held = round(max(LEAST_HOURS, float(sys.argv[1])) * 3600 / ARRIVAL_SECONDS), True
    configure_logging(level=logging.ERROR)
    settings = read_settings()
    bring_kinds(connect())
    shutil.rmtree(FOLDER, ignore_errors=True)
    RECORDS.mkdir(parents=True)
    try:
        with orderly_stop(print):
            for sentence, holds in run(settings, arrivals):
                print(f"{'not judged' if holds is None else 'held' if holds else 'MISSED'}: {sentence}", flush=True)
                held = held and holds is not False
    except Interrupted as stop:
        return stop.exit_code
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
