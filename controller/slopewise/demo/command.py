"""`slopewise demo`: checks the options and runs the policies.

Everything that can be wrong is checked before the first job starts, also whether the report can be written.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from slopewise.adapters.local.crashed_runs import refuse_running
from slopewise.adapters.local.machine_cpu import MachineCpu
from slopewise.adapters.local.nodes import split_machine
from slopewise.composition import composed_name, parts_of
from slopewise.config.jobs_file import JobSpec, identity_of, load_jobs, shown
from slopewise.config.pass_settings import runnable_name, with_interval
from slopewise.config.training_policy import (
    PlacementChoice,
    PolicyChoice,
    TrainingPolicy,
    load_training_policy,
    placement_parameters,
)
from slopewise.demo.report.results import DemoResult, RunResult
from slopewise.demo.runner import run_policy, with_times_to_quality
from slopewise.demo.workloads import (
    WorkloadName,
    build_workload,
    fewer_jobs,
    fitting_nodes,
    fitting_workload,
    reason_for,
    with_threads,
)
from slopewise.errors import UsageError
from slopewise.extras import require
from slopewise.local.live import Screen
from slopewise.local.plan import OWN_SCRAPE_SECONDS
from slopewise.local.workshop import Workshop
from slopewise.loop import calm_garbage_collector
from slopewise.model import CpuControl
from slopewise.own_policies.catalogue import name_of
from slopewise.reports.page import check_writable
from slopewise.signals import Interrupted
from slopewise.telemetry.metrics import configure_logging

BASELINE = "fair"
DEFAULT_THREADS = "fair-default-threads"
"""The baseline of the workload `threads`: fair sharing, with the threads that the libraries count."""

DEFAULT_POLICIES = ("flowcon", "marginal")
DEMO_INTERVAL_SECONDS = 5.0
"""Jobs of half a minute need short intervals; five scrapes of one second still make a level."""

DEMO_BEHAVIOUR = {"cooldownSeconds": 0, "maxStepRatio": 100, "minChangeRatio": 0.05}
"""FlowCon as published: it changes limits in every pass and by any factor. Guards of a cluster are tighter."""

MEASURED_SECONDS = 2.0
"""200 ticks of the kernel's clock for each core: half a percent."""

DEMO_CPU = {"min": "20m", "max": "64"}

DEMO_MIGRATION = {
    "enabled": True,
    "maxPerNodePerHour": 60,
    "maxConcurrent": 2,
    "minStaySeconds": 10,
    "horizonSeconds": 60,
}
"""Jobs of half a minute are moved after ten seconds or never; a cluster's stay of a minute would leave few."""

DEMO_PARAMETERS: Mapping[str, Mapping[str, object]] = {"specon": {"requireAllConverged": False}}
"""By policy. As published, SpeCon gives an idle node nothing while any job still grows: with four jobs left that is the
rest of the run."""


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
    nodes: int | None = None
    workload: WorkloadName | None = None
    repeat: int = 1
    """How many rounds: each policy runs once in each."""
    placement: str | None = None
    """The policy that chooses nodes beside the first of `policies`."""


def run_demo(options: DemoOptions, console: Console, announce: Callable[[str], None]) -> DemoResult:
    """Run the baseline and every policy; SlopewiseError in one sentence when something is missing or wrong."""
    base = _base(options)
    names = run_names(options, base)
    asked = names[1:] or names
    nodes = split_machine(options.nodes or fitting_nodes(asked, len(split_machine()[0].cpus)))
    cores = sum(each.node.cpu_cores for each in nodes)
    if options.report is not None:
        require("jinja2", "report", "--report needs jinja2")
        check_writable(options.report)
    configure_logging(level=logging.ERROR)  # the table shows what the log lines would
    interval = (base.spec.behaviour.interval_seconds if base else options.interval_seconds) or DEMO_INTERVAL_SECONDS
    jobs, workload = _jobs(options, asked, cores, announce)
    if workload == "threads" and len(nodes) > 1:
        raise UsageError(
            "--workload threads compares threads on one node; leave out --nodes and policies that place jobs."
        )
    calm_garbage_collector()
    identity = identity_of(options.jobs_file, jobs) if options.jobs_file else None
    with Workshop(actuator=options.actuator, announce=announce, jobs_identity=identity) as workshop:
        if options.jobs_file is not None and identity is not None:
            refuse_running(workshop.state_dir, identity, jobs, where=shown(options.jobs_file))
        control = options.control or workshop.best_control
        written = None if base is None else workshop.controlled(base)
        documents = {name: document(name, control, options, written) for name in names}
        if workload == "threads":
            documents = {DEFAULT_THREADS: documents[BASELINE], **documents}
        announce(f"CPU is given by {workshop.limiter.description}; Prometheus {workshop.binaries.version}.")
        if len(nodes) > 1:
            announce(f"{len(nodes)} nodes, each with cores of its own; a policy says where a job starts.")
        if workload is not None:
            _warm_up()
            machine = MachineCpu(frozenset().union(*(each.cpus for each in nodes)))
            jobs = beside_others(workload, options.scale, jobs, machine, announce)
        announce("Each run begins once Prometheus scrapes, about 5 s after its start.")

        def make(name: str, namespace: str) -> RunResult:
            setting = "off" if name == DEFAULT_THREADS else "follow"
            with Screen(console) as screen:
                run = run_policy(
                    workshop,
                    documents[name],
                    with_threads(jobs, setting) if workload == "threads" else jobs,
                    ours=workload is not None,
                    nodes=len(nodes),
                    show=screen.show,
                    namespace=namespace,
                )
            return replace(run, policy=name)

        rounds, stopped = run_rounds(list(documents), options.repeat, make, announce)
        every = iter(with_times_to_quality([run for of_round in rounds for run in of_round]))
        first, *others = [[next(every) for _ in of_round] for of_round in rounds]
        result = DemoResult(
            first,
            prometheus_version=workshop.binaries.version,
            actuator=workshop.limiter.description,
            node_cores=first[0].node_cores,
            interval_seconds=interval,
            nodes=len(nodes),
            workload=workload or "own",
            repeats=others,
            rounds_asked=options.repeat,
            stopped=stopped,
        )
    for run in (run for of_round in result.rounds for run in of_round):
        if run.note:
            announce(f"{run.policy}: {run.note}")
    return result


def run_rounds(
    names: Sequence[str], repeat: int, make: Callable[[str, str], RunResult], announce: Callable[[str], None]
) -> tuple[list[list[RunResult]], Interrupted | None]:
    """Every round's runs in the order of `names`, and what cut them short.

    Every second round goes through the policies backwards (A B, B A, A B), so that a machine that becomes slower or
    busier with time favours none of them. `Interrupted` goes on up until one round is whole.
    """
    rounds: list[list[RunResult]] = []
    for number in range(1, repeat + 1):
        made: dict[str, RunResult] = {}
        try:
            for name in names if number % 2 else reversed(names):
                if repeat > 1:
                    announce(f"Round {number} of {repeat}: {name}")
                made[name] = make(name, name if number == 1 else f"{name}-{number}")
        except Interrupted as stop:
            if not rounds:
                raise
            return rounds, stop
        rounds.append([made[name] for name in names])
    return rounds, None


def _base(options: DemoOptions) -> TrainingPolicy | None:
    """The user's policy document; UsageError when flags contradict it, or when it would change nothing."""
    if options.policy_file is None:
        return None
    flags = {
        "--policy": options.policies,
        "--placement": options.placement,
        "--control": options.control,
        "--interval": options.interval_seconds,
    }
    for flag, value in flags.items():
        if value:
            raise UsageError(f"{flag} and --policy-file contradict each other; write it into {options.policy_file}.")
    base = with_interval(load_training_policy(options.policy_file), OWN_SCRAPE_SECONDS)
    if base.spec.mode not in ("Canary", "Auto"):
        changes_nothing = f"spec.mode is {base.spec.mode}, in which nothing would be changed"
        raise UsageError(f"{options.policy_file}: {changes_nothing}; write Auto for a demo.")
    return base


def _warm_up() -> None:
    """Let the trainings' libraries be read from the disk once, or the first policy alone would pay for it."""
    command = [sys.executable, "-P", "-m", "slopewise.demo.trainings", "digits-mlp", "--steps", "1"]
    environment = {**os.environ, "SLOPEWISE_EXPORTER_DISABLED": "1", "SLOPEWISE_CHECKPOINT_FOLDER": ""}
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def beside_others(
    workload: WorkloadName, scale: float, jobs: list[JobSpec], machine: MachineCpu, announce: Callable[[str], None]
) -> list[JobSpec]:
    """The jobs for which other programs leave CPU, which takes two seconds to measure where it can matter."""
    cores = float(machine.cores)
    if len(fewer_jobs(workload, scale, jobs, cores, 0.0)) == len(jobs):
        return jobs
    before = machine.count()
    time.sleep(MEASURED_SECONDS)
    if (use := machine.use(before, machine.count())) is None:
        return jobs
    chosen = fewer_jobs(workload, scale, jobs, cores, cores - use.other_cores)
    if len(chosen) < len(jobs):
        announce(
            f"Other programs use {use.other_cores:.1f} of {cores:g} cores: {len(chosen)} of the {len(jobs)} jobs run, "
            "so that the demo takes no longer."
        )
    return chosen


def _jobs(
    options: DemoOptions, asked: Sequence[str], cores: float, announce: Callable[[str], None]
) -> tuple[list[JobSpec], WorkloadName | None]:
    """The user's jobs, or the built-in list that fits and its name; UsageError when both were chosen."""
    if options.jobs_file is not None:
        if options.workload is not None:
            raise UsageError("--workload and --jobs contradict each other; leave one of them out.")
        jobs = load_jobs(options.jobs_file)
        if len(jobs) < 2 and asked != [BASELINE]:
            raise UsageError(f"{options.jobs_file}: a policy shares CPU among several jobs; write a second one.")
        return jobs, None
    workload = options.workload or fitting_workload(asked)
    if options.workload is None and (reason := reason_for(asked, workload)):
        announce(reason)
    return build_workload(workload, options.scale, cores), workload


def run_names(options: DemoOptions, base: TrainingPolicy | None) -> list[str]:
    """The baseline first, then each policy once, in the order given; UsageError for one that cannot run here."""
    if base is not None:
        asked = [runnable_name(name_of(base.spec.policy.name))]
        if base.spec.placement is not None:
            asked[0] = composed_name(asked[0], runnable_name(name_of(base.spec.placement.name)))
    else:
        defaults = DEFAULT_POLICIES if options.placement is None else DEFAULT_POLICIES[:1]
        if options.workload == "threads":
            defaults = DEFAULT_POLICIES[1:]
        asked = [runnable_name(name_of(name)) for name in options.policies or defaults]
        if options.placement is not None:
            placement = PlacementChoice(name=runnable_name(name_of(options.placement)))
            placement_parameters(PolicyChoice(name=asked[0]), placement, where="spec")
            asked[0] = composed_name(asked[0], placement.name)
    return list(dict.fromkeys([BASELINE, *asked]))


def document(name: str, control: CpuControl, options: DemoOptions, base: TrainingPolicy | None) -> TrainingPolicy:
    """The TrainingPolicy of one run: the user's own, or the demo's, which acts (mode Auto) and acts at once."""
    if base is not None:
        if name != BASELINE or base.spec.policy_name == BASELINE:
            return base
        alone = {"policy": PolicyChoice(name=name), "placement": None, "studies": "Fair"}
        baseline = base.spec.model_copy(update=alone)  # read and looked at alike
        return base.model_copy(update={"spec": baseline})
    choices = [{"name": part, "parameters": DEMO_PARAMETERS.get(part, {})} for part in parts_of(name)]
    spec = {
        "mode": "Auto",
        **dict(zip(("policy", "placement"), choices, strict=False)),
        "resources": {"control": control, "cpu": DEMO_CPU},
        "behaviour": {"intervalSeconds": options.interval_seconds or DEMO_INTERVAL_SECONDS, **DEMO_BEHAVIOUR},
        "migration": DEMO_MIGRATION,
    }
    return TrainingPolicy.model_validate({"metadata": {"name": f"demo-{name}"}, "spec": spec})
