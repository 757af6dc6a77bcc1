"""The settings of one session on this machine, and what its passes decide by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slopewise.adapters.grafana.annotations import GrafanaAccess
from slopewise.adapters.http.config import Endpoint
from slopewise.adapters.local.crashed_runs import NOTHING_EARLIER, EarlierRun
from slopewise.adapters.local.limiters.choose import Limiter
from slopewise.adapters.prometheus.missing_evaluations import Remedies
from slopewise.config.jobs_file import JobSpec
from slopewise.config.pass_settings import (
    MIN_INTERVAL_SECONDS,
    interval_mistake,
    local_memory_mistake,
    pass_settings,
    policy_of,
    with_interval,
)
from slopewise.config.training_policy import TrainingPolicy
from slopewise.decision_record.recorder import RecordOptions
from slopewise.errors import UsageError
from slopewise.estimators.growth import SCRAPES_PER_WINDOW
from slopewise.feedback.pass_settings import PassSettings
from slopewise.policies import PolicyProtocol

OWN_SCRAPE_SECONDS = 1.0
"""Between two scrapes of a Prometheus that is started for one run, at the least; the demo's."""

PATIENT_SCRAPE_SECONDS = 5.0
"""Between two of a user's jobs, where the interval has four. It is the timeout, too, which Prometheus allows no longer:
with 0.02 core among ten busy processes a scrape took 1.0 s in the median and 1.6 s at worst (60 of them)."""

REMEDIES = Remedies(
    no_target="let one of its scrape_configs read the file that --targets-file names",
    scrape_fails="if its output has a loss, find it with `lossPattern`; else add the two lines of slopewise_exporter, "
    "or name the endpoint that it has with `port`",
    no_metrics="find the loss in its output with `lossPattern`, or add the two lines of slopewise_exporter",
    failing_seconds=60.0,
    missing_seconds=15.0,
)
"""Remedies for a local job that reports no loss. Where thirty start at once its libraries take half a minute; one that
answers has three scrapes."""


def own_scrape_seconds(policy: TrainingPolicy) -> float:
    """Seconds between two scrapes of a user's jobs: 5 for an interval of 20 s, 1.25 for one of 5 s."""
    interval = policy.spec.behaviour.interval_seconds or MIN_INTERVAL_SECONDS
    return min(PATIENT_SCRAPE_SECONDS, max(OWN_SCRAPE_SECONDS, interval / SCRAPES_PER_WINDOW))


@dataclass(frozen=True, slots=True)
class PrometheusInUse:
    """A running Prometheus of the user's."""

    endpoint: Endpoint
    targets_file: Path | None = None
    """The file from which it reads its targets; None: a file in the state folder."""


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """The settings of one session."""

    policy: TrainingPolicy
    jobs: Sequence[JobSpec]
    namespace: str
    scrape_interval_seconds: float = OWN_SCRAPE_SECONDS
    ours: bool = True
    health_port: int = 0
    dry_run: bool = False
    max_reports: int | None = None
    """How many of the last passes are kept; None: all, for runs of minutes."""
    nodes: int = 1
    """The number of nodes into which this machine's cores are split."""
    prometheus: PrometheusInUse | None = None
    """None: the session starts its own."""
    record: RecordOptions | None = None
    """Where the passes are recorded; None: nowhere."""
    annotated: GrafanaAccess | None = None
    """The Grafana in which decisions are annotated; None: none."""
    earlier: EarlierRun = NOTHING_EARLIER
    """The same jobs of killed controllers."""
    max_running: int | None = None
    """Jobs that run at the same time; None: all that have arrived."""
    serves: bool = False
    """It waits for jobs until it is stopped, and its end leaves them running for the next session."""


@dataclass(frozen=True, slots=True)
class Deciding:
    """What passes decide by."""

    document: TrainingPolicy
    """With its interval."""
    policy: PolicyProtocol
    settings: PassSettings

    @property
    def interval_seconds(self) -> float:
        """Seconds between two passes."""
        return self.document.spec.behaviour.evaluation_seconds


def deciding(policy: TrainingPolicy, limiter: Limiter, scrape_interval_seconds: float) -> Deciding:
    """By a document; UsageError when it cannot be used on this machine."""
    control = policy.spec.resources.control
    if control not in limiter.controls:
        raise UsageError(
            f"spec.resources.control: {control} cannot be controlled here ({limiter.description}); "
            f"leave it out or use {' or '.join(sorted(limiter.controls))}, or run where cgroups may be written."
        )
    mistake = local_memory_mistake(policy) or interval_mistake(policy, scrape_interval_seconds)
    if mistake is not None:
        raise UsageError(f"{mistake}.")
    document = with_interval(policy, scrape_interval_seconds)
    return Deciding(document, policy_of(document), pass_settings(document))
