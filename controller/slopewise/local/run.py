"""`slopewise run --local --jobs FILE`: runs the user's own commands on this machine to their ends.

A terminal shows the live table; elsewhere the log is short lines, or with `--json-logs` one JSON object a line.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import structlog
from rich.console import Console

from slopewise.adapters.grafana.annotations import GrafanaAccess
from slopewise.adapters.local.crashed_runs import (
    NOTHING_EARLIER,
    EarlierRun,
    check_goes_on,
    check_not_running,
    descriptions,
    earlier_run,
)
from slopewise.adapters.local.service_socket import ServiceSocket, service_folder
from slopewise.config.jobs_file import JobSpec, identity_of, load_jobs, shown
from slopewise.config.pass_settings import runnable_name
from slopewise.config.training_policy import PolicyChoice, TrainingPolicy, TrainingPolicySpec, load_training_policy
from slopewise.decision_record.recorder import RecordOptions
from slopewise.errors import SlopewiseError, UsageError
from slopewise.local.live import NO_LOSS, Screen, configure_short_lines, live_rows
from slopewise.local.passes import FollowedPasses
from slopewise.local.plan import PrometheusInUse, SessionPlan, own_scrape_seconds
from slopewise.local.result import LocalResult, gather
from slopewise.local.service import Service
from slopewise.local.session import Session
from slopewise.local.workshop import Announce, Workshop
from slopewise.loop import calm_garbage_collector
from slopewise.model.learning import MEANINGS
from slopewise.own_policies import catalogue
from slopewise.signals import Interrupted
from slopewise.telemetry.log_lines import configure_logging

NAMESPACE = "local"
HOLDER = "slopewise run --local"
MAX_REPORTS = 10
"""A run may take weeks; the log and Prometheus have its history."""

LOG_EVERY_SECONDS = 60.0
"""Between two lines of each job, where there is no terminal."""

_ALIVE = frozenset({"starting", "training", "checkpointing", "moving", NO_LOSS})


@dataclass(frozen=True, slots=True)
class LocalRunOptions:
    """The options of the command line."""

    jobs_file: Path
    """Of `up`: none, it is given its jobs."""
    policy_file: Path | None
    actuator: str
    port: int
    json_logs: bool
    dry_run: bool = False
    prometheus: PrometheusInUse | None = None
    scrape_interval_seconds: float | None = None
    """Of the user's Prometheus; None: the run starts its own."""
    again: bool = False
    """Start every job, also those that an earlier controller had started before it was killed."""
    record: RecordOptions | None = None
    annotated: GrafanaAccess | None = None
    policy: str | None = None
    """Instead of a policy file: the name of a policy, or the path of one of the user's."""
    max_running: int | None = None
    """Jobs that run at the same time; None: all that have arrived."""


def run_local(options: LocalRunOptions, console: Console, announce: Announce) -> tuple[LocalResult, Interrupted | None]:
    """Run the jobs to their ends under the policy; after a signal, the result so far and that signal."""
    jobs = load_jobs(options.jobs_file)
    asked = document(options.policy_file, options.policy)
    on_screen = console.is_terminal and not console.is_dumb_terminal and not options.json_logs
    configure_logs(as_json=options.json_logs, on_screen=on_screen)
    calm_garbage_collector()
    stopped: Interrupted | None = None
    with ExitStack() as stack:
        identity = identity_of(options.jobs_file, jobs)
        workshop = stack.enter_context(Workshop(actuator=options.actuator, announce=announce, jobs_identity=identity))
        policy = workshop.controlled(asked)
        plan = SessionPlan(
            policy,
            jobs,
            NAMESPACE,
            ours=False,
            health_port=options.port,
            dry_run=options.dry_run,
            max_reports=MAX_REPORTS,
            scrape_interval_seconds=options.scrape_interval_seconds or own_scrape_seconds(policy),
            prometheus=options.prometheus,
            record=options.record,
            annotated=None if options.dry_run else options.annotated,
            earlier=earlier_jobs(workshop.state_dir, identity, options, jobs, announce),
        )
        passes = FollowedPasses(lambda: session.spec)
        session = Session(workshop, plan, [passes])
        stack.enter_context(session)
        announce_session(session, announce)
        service = Service(session, passes, HOLDER)
        with suppress(SlopewiseError):  # another session of this user is the one that the commands ask
            service.socket = stack.enter_context(ServiceSocket(service_folder(), HOLDER))
        try:
            watch(session, service, console if on_screen else None)
        except Interrupted as signal:
            stopped = signal
        cut_short = [
            name for name, record in session.supervisor.records.items() if record.state in ("running", "stopping")
        ]
    return gather(session, cut_short if stopped else ()), stopped


def announce_session(session: Session, announce: Announce) -> None:
    """How CPU is given, and where the session's figures are."""
    announce(f"CPU is given by {session.workshop.limiter.description}; mode is {session.document.spec.mode}.")
    announce(f"Prometheus: {session.prometheus.url}; /healthz and /metrics on port {session.health.port}.")


def earlier_jobs(
    state_dir: Path, identity: str, options: LocalRunOptions, jobs: Sequence[JobSpec], announce: Announce
) -> EarlierRun:
    """The jobs of a killed run to continue; SlopewiseError when they cannot be continued."""
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
        announce(f"{where}: its controller was killed, and this one goes on: {'; '.join(descriptions(earlier, jobs))}.")
    return earlier


def configure_logs(*, as_json: bool, on_screen: bool) -> None:
    """Beside a live table only warnings are logged."""
    if as_json:
        configure_logging(as_json=True)
    else:
        configure_short_lines(namespace=NAMESPACE, level=logging.WARNING if on_screen else logging.INFO)


def log_progress(session: Session) -> None:
    """`job progress` of each job that runs, with the known figures only, so that no line has a null."""
    for row in live_rows(session):
        if row.state not in _ALIVE:
            continue
        tally, allotted = session.tally.of(row.name), row.cpu_allotted_millicores_now
        known = {
            "state": row.state,
            "progress": tally.steps_total / tally.steps_planned if tally.steps_total and tally.steps_planned else None,
            "loss": row.loss if row.loss is not None and math.isfinite(row.loss) else None,
            "growth": row.growth,
            "seconds": row.pace_seconds,
            "objective_seconds": row.objective_seconds,
            "cores_used": row.cpu_cores_used,
            "cores_allotted": None if allotted is None else allotted / 1000,
            "job_class": row.job_class,
            "meaning": MEANINGS.get(row.job_class or ""),
            "note": row.note or None,
        }
        figures = {key: value for key, value in known.items() if value is not None}
        structlog.get_logger("slopewise").info("job progress", name=row.name, **figures)


def watch(session: Session, service: Service, console: Console | None) -> None:
    """Run the session to its end, answer the commands, and show its progress; `console`: of a terminal."""
    with nullcontext() if console is None else Screen(console, transient=True) as screen:
        log_at_seconds = LOG_EVERY_SECONDS

        def tick() -> None:
            nonlocal log_at_seconds
            service.tick()
            if screen is not None:
                screen.show(session, f"{session.spec.policy_name}, mode {session.spec.mode}")
            elif session.elapsed_seconds >= log_at_seconds:
                log_at_seconds = session.elapsed_seconds + LOG_EVERY_SECONDS
                log_progress(session)

        session.run(tick)


def document(policy_file: Path | None, policy: str | None) -> TrainingPolicy:
    """The user's TrainingPolicy, or the defaults; UsageError when the policy is named twice."""
    if policy_file is not None:
        if policy is not None:
            raise UsageError(f"--policy and --policy-file contradict each other; write it into {policy_file}.")
        return load_training_policy(policy_file)
    if policy is None:
        return TrainingPolicy(spec=TrainingPolicySpec())
    choice = PolicyChoice(name=runnable_name(catalogue.name_of(policy)))
    return TrainingPolicy(spec=TrainingPolicySpec(policy=choice))
