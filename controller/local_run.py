"""`slopewise run --local --jobs FILE`: the user's own commands on this machine, one log line a pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from controller.documents import runnable_name
from controller.errors import UsageError
from controller.jobs import load_jobs
from controller.loop import calm_garbage_collector
from controller.own_policies import catalogue
from controller.session import Session, SessionPlan, Workshop
from controller.settings import PolicyChoice, TrainingPolicy, TrainingPolicySpec, load_training_policy
from controller.telemetry import configure_logging

NAMESPACE = "local"
REPORTS_KEPT = 10
"""A run may take weeks; the log and Prometheus have its history."""


@dataclass(frozen=True, slots=True)
class LocalRunOptions:
    """What the command line was given."""

    jobs_file: Path
    policy_file: Path | None
    dry_run: bool
    actuator: str
    port: int
    json_logs: bool
    policy: str | None = None
    """Instead of a policy file: the name of a policy, or the path of one of the user's."""


def run_local(options: LocalRunOptions, announce: Callable[[str], None]) -> list[str]:
    """Run the jobs to their ends under the policy; the names of those that failed."""
    jobs = load_jobs(options.jobs_file)
    policy = document(options)
    configure_logging(as_json=options.json_logs)
    calm_garbage_collector()
    plan = SessionPlan(
        policy,
        jobs,
        NAMESPACE,
        ours=False,
        health_port=options.port,
        dry_run=options.dry_run,
        reports_kept=REPORTS_KEPT,
    )
    with Workshop(actuator=options.actuator, announce=announce) as workshop, Session(workshop, plan) as session:
        announce(f"CPU is given by {workshop.limiter.description}; mode is {policy.spec.mode}.")
        announce(f"Prometheus: {session.prometheus.url}; /healthz and /metrics on port {session.health.port}.")
        session.run()
        records = session.supervisor.records
    failed = [name for name, record in records.items() if record.state == "failed"]
    for name in failed:
        announce(f"{name}: ended with status {records[name].exit_status}: {records[name].last_words}")
    return failed


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
