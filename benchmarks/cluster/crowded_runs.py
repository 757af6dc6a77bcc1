"""Runs the six trainings of `crowded_node.py` under each policy file, and sets all runs side by side.

What the figures cannot show. Both nodes are on one machine, and the test-bed reports their sizes to the scheduler only;
`walls` makes them real: 2 CPUs for node-a's pods, 1 for node-b's. A machine of two cores cannot give all three: while
both nodes are busy each has one, less what the control plane and the controller take. In every second round the sides
are run backwards (`slopewise demo`'s rule); of one round no figure has an interval. The start is the worst there is for
a scheduler that never moves: with an empty large node it would have spread the jobs.
Ends are in whole seconds. Losses, pauses, and steps done twice are seen when they are scraped, every 5 s: what a move
costs, part by part, and that no single step is done twice, is `bench_moves.py`'s.
"""

from __future__ import annotations

import logging
import math
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import yaml
from crowded_node import GUEST, STEPS, CrowdedNode, walls  # also puts tests/, and with it `support`, on the path
from measured_controller import MeasuredController
from rich.console import Console
from setting import bring_kinds, connect, only
from support.cluster import Kubectl, PodShape
from support.images import bring_images, why_not_here
from support.movable import MovableTrainings, shared_volume
from support.scene import Scene

from slopewise.adapters.kube.client.client import KubeApi
from slopewise.adapters.kube.state.job_growth_object import growth_path
from slopewise.adapters.prometheus.reader import PrometheusReader
from slopewise.config.training_policy import EvaluationSettings
from slopewise.demo.command import run_rounds
from slopewise.demo.report.results import JCT, Curves, DemoResult, JobMove, JobResult, RunResult
from slopewise.demo.report.sections import report_of
from slopewise.demo.runner import with_times_to_quality
from slopewise.model import JobMemory, JobState
from slopewise.reports.report import terminal
from slopewise.signals import Interrupted, orderly_stop
from slopewise.telemetry.metrics import configure_logging
from testbed.settings import NODES, Settings, read_settings

SCRAPE_SECONDS = 5.0
INTERVAL_SECONDS = 20.0
METRIC, STAGE = "training_loss", {"stage": "eval"}
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "cluster"

_START_SECONDS = 60.0


@dataclass(frozen=True)
class Bench:
    """What both runs share."""

    api: KubeApi
    kubectl: Kubectl
    settings: Settings
    shape: PodShape

    def run(self, name: str, policy_file: str | None) -> RunResult:
        """One run, in a namespace that is empty again when it is over; without a file nothing manages it."""
        print(f"{name}:", flush=True)
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="slopewise-bench-"))
            namespace = stack.enter_context(self.kubectl.own_namespace())
            volume = MovableTrainings(self.kubectl, namespace, self.shape, Path(folder) / "shared")
            stack.enter_context(shared_volume(volume))
            crowd = CrowdedNode(self.api, Scene(self.kubectl, namespace, self.settings.prometheus_url, self.shape))
            controller = stack.enter_context(self._controller(policy_file, namespace)) if policy_file else None
            if controller is not None:
                controller.wait_for_passes(0, 1, _START_SECONDS)
            crowd.start()
            jobs = crowd.follow()
            used = 0.0 if controller is None else controller.cpu_seconds()
            result = self._result(name, namespace, crowd, jobs, used)
            print(f"mean completion {result.mean(JCT):.0f} s, makespan {result.makespan_seconds:.0f} s", flush=True)
            return result

    def _controller(self, policy_file: str, namespace: str) -> MeasuredController:
        document = yaml.safe_load((EXAMPLES / policy_file).read_text(encoding="utf-8"))
        document["spec"] |= {"mode": "Auto", "selector": only(namespace)}
        options = ("--scrape-interval", f"{SCRAPE_SECONDS:g}", "--lease-namespace", namespace)
        return MeasuredController(document, self.settings.prometheus_url, *options)

    def _result(
        self, name: str, namespace: str, crowd: CrowdedNode, jobs: Mapping[str, Any], cpu_seconds: float
    ) -> RunResult:
        """What the cluster and Prometheus know of a run that has ended."""
        arrived = {job: unix_seconds(seen["metadata"]["creationTimestamp"]) for job, seen in jobs.items()}
        ended = {job: unix_seconds(seen["status"]["completionTime"]) for job, seen in jobs.items()}
        begun = min(arrived.values())
        curves, last = self._losses(namespace, begun)
        moved, pods = moves_of(crowd, begun), crowd.pods()
        results = [
            JobResult(
                name=job,
                arrived_seconds=arrived[job] - begun,
                finished_seconds=ended[job] - begun,
                jct_seconds=ended[job] - arrived[job],
                time_to_90_seconds=None,  # known once both runs are over: see with_times_to_quality
                steps=None,
                loss_first=curves[job].loss[0][1],
                loss_last=last[pods[job]["metadata"]["name"]],
                cpu_seconds=None,
                state=JobState.FINISHED,
                node=pods[job]["spec"]["nodeName"],
                moves=moved.get(job, ()),
            )
            for job in (*STEPS, GUEST)
        ]
        return RunResult(
            policy=name,
            jobs=results,
            curves=curves,
            passes=0,
            passes_held=0,
            resizes_applied=resizes_of(crowd),
            withheld=0,
            controller_cpu_ratio=cpu_seconds / (max(ended.values()) - begun),
            moves_applied=sum(len(each.moves) for each in results),
        )

    def _losses(self, namespace: str, begun_seconds: float) -> tuple[dict[str, Curves], dict[str, float]]:
        """The held-out loss of each training over all of its pods, and of each pod the last that was scraped.

        A curve has a value every 5 s, and may end before the last scrape, which the trainer waits for.
        """
        now = time.time()
        asked, matchers = [EvaluationSettings(metric=METRIC)], {"namespace": namespace, **STAGE}
        curves: dict[str, Curves] = defaultdict(Curves)
        with PrometheusReader(
            self.settings.prometheus_url, matchers, SCRAPE_SECONDS, asked, INTERVAL_SECONDS
        ) as reader:
            last = reader.last_values(METRIC, now, now - begun_seconds)
            for pod, points in reader.range_curve(begun_seconds, now, SCRAPE_SECONDS).items():
                curves[pod.rpartition("-")[0]].loss.extend((at - begun_seconds, value) for at, value in points)
        for each in curves.values():
            each.loss.sort()
        return curves, last


def unix_seconds(timestamp: str) -> float:
    """Of a time as Kubernetes writes it."""
    return datetime.fromisoformat(timestamp).timestamp()


def resizes_of(crowd: CrowdedNode) -> int:
    """The changes of CPU that the JobGrowths still have, the last ten actions of each job."""
    actions = [action for growth in crowd.objects(growth_path("{}")) for action in growth["status"].get("history", ())]
    return sum((action["action"], action["result"]) == ("Resize", "applied") for action in actions)


def moves_of(crowd: CrowdedNode, begun_seconds: float) -> dict[str, tuple[JobMove, ...]]:
    """The moves of each training as the controller remembers them; how long saving took it does not."""
    moves: dict[str, tuple[JobMove, ...]] = {}
    for growth in crowd.objects(growth_path("{}")):
        stored = [pod.get("memory") or "{}" for pod in growth["status"].get("pods", ())]
        remembered = [msgspec.json.decode(each, type=JobMemory) for each in stored]
        moves[growth["spec"]["workload"]["name"]] = tuple(
            JobMove(
                at_seconds=move.at_seconds - begun_seconds,
                from_node=move.from_node,
                node=move.node,
                saving_seconds=math.nan,
                pause_seconds=move.pause_seconds,
                steps_lost=move.steps_lost,
            )
            for memory in remembered
            for move in memory.moves
        )
    return moves


def trained_alike(runs: Iterable[RunResult]) -> bool:
    """Whether each training ended with the same loss in all runs; prints those that did not."""
    losses: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        for job in run.jobs:
            losses[job.name].append(math.nan if job.loss_last is None else job.loss_last)
    unlike = {name: last for name, last in losses.items() if not math.isclose(min(last), max(last), rel_tol=1e-9)}
    for name, last in unlike.items():
        print(f"{name} ended with the losses {', '.join(f'{loss:.9g}' for loss in last)}")
    return not unlike


def run_sides(sides: Mapping[str, str | None], repeat: int = 1) -> list[list[RunResult]]:
    """So many rounds of one run of each, printed side by side; SystemExit 1 where this machine cannot.

    `sides`: by the name of a run, the file of its TrainingPolicy; None for one that nothing manages. Ctrl-C ends with
    the rounds that are whole.
    """
    if reason := why_not_here():
        print(reason)
        raise SystemExit(1)
    configure_logging(level=logging.ERROR)
    api, settings = connect(), read_settings()
    bring_kinds(api)
    print("the trainer's image: built where its sources have changed, loaded where a node lacks it", flush=True)
    shape = PodShape(bring_images(settings).trainer)
    bench = Bench(api, Kubectl(str(settings.kubectl), settings.kubeconfig), settings, shape)
    try:
        with orderly_stop(print), walls():
            rounds, stopped = run_rounds(list(sides), repeat, lambda name, _: bench.run(name, sides[name]), print)
    except Interrupted as stop:
        print(f"{stop}: no round is whole")
        raise SystemExit(stop.exit_code) from None
    timed = iter(with_times_to_quality([run for of_round in rounds for run in of_round]))
    first, *others = [[next(timed) for _ in of_round] for of_round in rounds]
    cores = float(sum(node.cpus for node in NODES))
    whole = DemoResult(
        first, "", "limits", cores, INTERVAL_SECONDS, len(NODES), repeats=others, rounds_asked=repeat, stopped=stopped
    )
    print()
    Console().print(terminal(report_of(whole)))
    return whole.rounds


def moved_cleanly(run: RunResult) -> bool:
    """Whether something was moved, and of each move it is known that no step was done twice; prints it.

    Of a job that ends within a pass or two of its move it is not: it is not seen at work again.
    """
    lost = [move.steps_lost for move in run.job_moves]
    repeated, unknown = sum(steps or 0.0 for steps in lost), lost.count(None)
    print(
        f"{run.policy}: moves {run.moves_applied}, steps done twice {repeated:g}, unknown of {unknown} moves; the "
        f"controller took {run.controller_cpu_ratio:.1%} of a core"
    )
    return bool(run.moves_applied) and not repeated and not unknown
