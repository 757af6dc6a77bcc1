"""`slopewise run --local --jobs FILE`: the user's own commands on this machine, to their ends.

On a terminal the live table of the demo shows them; elsewhere they are short lines of a log, and with `--json-logs` one
JSON object a line. `cli.py` prints what comes back: a table at the end, or one JSON object.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from controller.adapters.crashed_runs import (
    NOTHING_EARLIER,
    EarlierRun,
    check_goes_on,
    check_not_running,
    earlier_run,
    in_words,
)
from controller.demo.live import Screen
from controller.demo.runner import Progress
from controller.documents import runnable_name
from controller.errors import UsageError
from controller.interrupts import Interrupted
from controller.jobs import JobSpec, identity_of, load_jobs, shown
from controller.local_result import LocalResult, gather
from controller.log_lines import configure_logging
from controller.loop import calm_garbage_collector
from controller.own_policies import catalogue
from controller.progress_log import ProgressLog
from controller.session import OWN_SCRAPE_SECONDS, PrometheusInUse, Session, SessionPlan, Workshop
from controller.settings import PolicyChoice, TrainingPolicy, TrainingPolicySpec, load_training_policy
from controller.short_lines import configure_short_lines

NAMESPACE = "local"
REPORTS_KEPT = 10
"""A run may take weeks; the log and Prometheus have its history."""

Announce = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LocalRunOptions:
    """What the command line was given."""

    jobs_file: Path
    policy_file: Path | None
    dry_run: bool
    actuator: str
    port: int
    json_logs: bool
    prometheus: PrometheusInUse | None = None
    scrape_interval_seconds: float = OWN_SCRAPE_SECONDS
    again: bool = False
    """Start every job, also those that an earlier controller had started before it was killed."""
    policy: str | None = None
    """Instead of a policy file: the name of a policy, or the path of one of the user's."""


@dataclass(frozen=True, slots=True)
class LocalOutcome:
    """What became of a run."""

    result: LocalResult
    stopped: Interrupted | None = None
    """A signal came before all jobs had ended; the exit code is its."""


def run_local(options: LocalRunOptions, console: Console, announce: Announce) -> LocalOutcome:
    """Run the jobs to their ends under the policy. Stopped by a signal in mid-run, what there is by then."""
    jobs = load_jobs(options.jobs_file)
    policy = document(options)
    on_screen = console.is_terminal and not console.is_dumb_terminal and not options.json_logs
    _configure_logs(as_json=options.json_logs, on_screen=on_screen)
    calm_garbage_collector()
    plan = SessionPlan(
        policy,
        jobs,
        NAMESPACE,
        ours=False,
        health_port=options.port,
        dry_run=options.dry_run,
        reports_kept=REPORTS_KEPT,
        scrape_interval_seconds=options.scrape_interval_seconds,
        prometheus=options.prometheus,
    )
    stopped: Interrupted | None = None
    with ExitStack() as stack:
        identity = identity_of(options.jobs_file, jobs)
        workshop = stack.enter_context(Workshop(actuator=options.actuator, announce=announce, jobs_identity=identity))
        earlier = earlier_jobs(workshop.state_dir, identity, options, jobs, announce)
        session = stack.enter_context(Session(workshop, replace(plan, earlier=earlier)))
        announce(f"CPU is given by {workshop.limiter.description}; mode is {policy.spec.mode}.")
        announce(f"Prometheus: {session.prometheus.url}; /healthz and /metrics on port {session.health.port}.")
        try:
            _watch(session, console, on_screen=on_screen)
        except Interrupted as signal:
            stopped = signal
        cut_short = [name for name, record in session.supervisor.records.items() if record.state == "running"]
    return LocalOutcome(gather(session, cut_short if stopped else ()), stopped)


def earlier_jobs(
    state_dir: Path, identity: str, options: LocalRunOptions, jobs: Sequence[JobSpec], announce: Announce
) -> EarlierRun:
    """What is to be gone on with; SlopewiseError for what cannot be."""
    where = shown(options.jobs_file)
    earlier = earlier_run(state_dir, identity)
    if options.again:
        for name, job in earlier.jobs.items():
            if job.runs:
                announce(
                    f"{where}: {name} (process {job.started.pid}) of a controller that was killed runs on beside it."
                )
        earlier.forget()
        return NOTHING_EARLIER
    check_not_running(state_dir, identity, where=where, otherwise=", or start them twice with --again")
    check_goes_on(earlier, jobs, where=where)
    if earlier.jobs:
        announce(f"{where}: its controller was killed, and this one goes on: {'; '.join(in_words(earlier, jobs))}.")
    return earlier


def _configure_logs(*, as_json: bool, on_screen: bool) -> None:
    """The table says what the lines would; only trouble is worth a line above it."""
    if as_json:
        configure_logging(as_json=True)
    else:
        configure_short_lines(namespace=NAMESPACE, level=logging.WARNING if on_screen else logging.INFO)


def _watch(session: Session, console: Console, *, on_screen: bool) -> None:
    """Run to the end, and show how it goes."""
    spec, log = session.plan.policy.spec, ProgressLog(session)
    title = f"{spec.policy.name}, mode {spec.mode}"
    with Screen(console, transient=True) if on_screen else nullcontext() as screen:

        def tick() -> None:
            elapsed = session.clock.now() - session.supervisor.started_at_seconds
            if screen is not None:
                screen.show(Progress(session, title, elapsed))
            else:
                log.tick(elapsed)

        session.run(tick)


def document(options: LocalRunOptions) -> TrainingPolicy:
    """What the user wrote, or the defaults; UsageError where it was said twice which policy decides."""
    if options.policy_file is not None:
        if options.policy is not None:
            raise UsageError(f"--policy and --policy-file contradict each other; write it into {options.policy_file}.")
        return load_training_policy(options.policy_file)
    if options.policy is None:
        return TrainingPolicy()
    choice = PolicyChoice(name=runnable_name(catalogue.name_of(options.policy)))
    return TrainingPolicy(spec=TrainingPolicySpec(policy=choice))
