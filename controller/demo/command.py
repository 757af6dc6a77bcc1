"""`slopewise demo`: checks what the user gave, runs the policies, writes the report.

`cli.py` hands the options over and prints the result. Everything that can be wrong is looked at before the first
job starts: a report that cannot be written after five minutes would be a poor joke.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from controller import policies
from controller.demo.live import Screen
from controller.demo.report import check_writable, write_report
from controller.demo.results import DemoResult
from controller.demo.runner import run_policy, with_times_to_quality
from controller.demo.trainings.catalogue import demo_jobs, require_scikit_learn
from controller.jobs import JobSpec, load_jobs
from controller.loop import calm_garbage_collector
from controller.model import CpuControl
from controller.session import Workshop
from controller.settings import TrainingPolicy, load_training_policy
from controller.telemetry import configure_logging

BASELINE = "fair"
DEMO_INTERVAL_SECONDS = 5.0
"""Jobs of half a minute need quick looks; five scrapes of one second still make a level."""

DEMO_BEHAVIOUR = {"cooldownSeconds": 0, "maxStepRatio": 100, "minChangeRatio": 0.05}
"""FlowCon as printed: it changes limits at every look and by any factor. Guards of a cluster are tighter."""

DEMO_CPU = {"min": "20m", "max": "64"}


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What the command line was given."""

    policies: Sequence[str]
    jobs_file: Path | None
    policy_file: Path | None
    control: CpuControl | None
    interval_seconds: float | None
    scale: float
    actuator: str
    report: Path | None


def run_demo(options: DemoOptions, console: Console, announce: Callable[[str], None]) -> DemoResult:
    """Run the baseline and every policy; SlopewiseError in one sentence when something is missing or wrong."""
    jobs = _jobs(options)
    base = load_training_policy(options.policy_file) if options.policy_file else None
    names = _run_names(options, base)
    if options.report is not None:
        check_writable(options.report)
    _quiet_logs()
    calm_garbage_collector()
    with Workshop(actuator=options.actuator, announce=announce) as workshop:
        control = options.control or _best_control(workshop, base)
        documents = [document(name, control, options, base) for name in names]
        announce(f"CPU is given by {workshop.limiter.description}; Prometheus {workshop.binaries.version}.")
        runs = []
        for each in documents:
            with Screen(console) as screen:
                ours = options.jobs_file is None
                runs.append(run_policy(workshop, each, jobs, ours=ours, show=screen.show))
        result = DemoResult(
            with_times_to_quality(runs),
            prometheus_version=workshop.binaries.version,
            actuator=workshop.limiter.description,
            node_cores=runs[0].node_cores,
            interval_seconds=documents[0].spec.behaviour.interval_seconds,
        )
    if options.report is not None:
        write_report(result, options.report)
    return result


def _jobs(options: DemoOptions) -> list[JobSpec]:
    if options.jobs_file is not None:
        return load_jobs(options.jobs_file)
    require_scikit_learn()
    return demo_jobs(options.scale)


def _run_names(options: DemoOptions, base: TrainingPolicy | None) -> list[str]:
    """The baseline first, then each policy once, in the order given; UsageError for one that there is not."""
    asked = [base.spec.policy.name] if base else list(options.policies)
    names = list(dict.fromkeys([BASELINE, *asked]))
    for name in names:
        policies.find(name)
    return names


def document(name: str, control: CpuControl, options: DemoOptions, base: TrainingPolicy | None) -> TrainingPolicy:
    """The TrainingPolicy of one run: the user's own, or the demo's, which acts (mode Auto) and acts at once."""
    if base is not None and name == base.spec.policy.name:
        return base
    interval = options.interval_seconds or (base.spec.behaviour.interval_seconds if base else DEMO_INTERVAL_SECONDS)
    spec = {
        "mode": "Auto",
        "policy": {"name": name},
        "resources": {"control": control, "cpu": DEMO_CPU},
        "behaviour": {"intervalSeconds": interval, **DEMO_BEHAVIOUR},
    }
    return TrainingPolicy.model_validate({"metadata": {"name": f"demo-{name}"}, "spec": spec})


def _best_control(workshop: Workshop, base: TrainingPolicy | None) -> CpuControl:
    """Shares are the soft limits that FlowCon was written for; hard ones where shares cannot be had."""
    if base is not None:
        return base.spec.resources.control
    return "requests" if "requests" in workshop.limiter.controls else "limits"


def _quiet_logs() -> None:
    """The table shows what the log lines would; only trouble is worth a line beside it."""
    configure_logging(level=logging.ERROR)
