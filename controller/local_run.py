"""`slopewise run --local --jobs FILE`: the user's own commands on this machine, one log line a pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from controller.jobs import load_jobs
from controller.loop import calm_garbage_collector
from controller.session import OWN_SCRAPE_SECONDS, PrometheusInUse, Session, SessionPlan, Workshop
from controller.settings import TrainingPolicy, load_training_policy
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
    prometheus: PrometheusInUse | None = None
    scrape_interval_seconds: float = OWN_SCRAPE_SECONDS


def run_local(options: LocalRunOptions, announce: Callable[[str], None]) -> list[str]:
    """Run the jobs to their ends under the policy; the names of those that failed."""
    jobs = load_jobs(options.jobs_file)
    policy = load_training_policy(options.policy_file) if options.policy_file else TrainingPolicy()
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
        scrape_interval_seconds=options.scrape_interval_seconds,
        prometheus=options.prometheus,
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
