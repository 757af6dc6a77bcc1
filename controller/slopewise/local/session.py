"""Runs one policy over one list of jobs on this machine to the end: connects ports, loop, Prometheus and jobs.

A `Session` is one run with its Prometheus. `slopewise demo` runs one session after another, `slopewise run --local`
one. The exit of a session restores limits and ends what it started, whatever happened.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import structlog

from slopewise.adapters.clock import SystemClock
from slopewise.adapters.grafana.annotations import DecisionAnnotations, GrafanaAccess
from slopewise.adapters.health import HealthServer
from slopewise.adapters.http.config import Endpoint
from slopewise.adapters.local.cleanup import EndedJob, RunOf, current_boot_id
from slopewise.adapters.local.crashed_runs import NOTHING_EARLIER, EarlierRun
from slopewise.adapters.local.job_processes import LINGER_SCRAPES, LINGER_SECONDS, LOOPBACK
from slopewise.adapters.local.job_record import JobRecord
from slopewise.adapters.local.limiters.base import Limiter
from slopewise.adapters.local.machine_cpu import LeftByOthers, MachineCpu, descendants
from slopewise.adapters.local.nodes import split_machine
from slopewise.adapters.local.ports import DryRunActuator, FileMemory, LocalActuator, LocalObserver, inherit
from slopewise.adapters.local.prometheus_given import RUN_LABEL, GivenPrometheus, check_owner
from slopewise.adapters.local.prometheus_server import PrometheusServer, TargetGroup
from slopewise.adapters.local.supervisor import Supervisor
from slopewise.adapters.prometheus.missing_evaluations import MissingEvaluations, Remedies
from slopewise.adapters.prometheus.reader import PrometheusReader, PrometheusReading
from slopewise.config.jobs_file import JobSpec
from slopewise.config.metric_mappings import NO_OWN_MAPPINGS, OwnMappings
from slopewise.config.pass_settings import (
    MIN_INTERVAL_SECONDS,
    interval_mistake,
    local_memory_mistake,
    pass_settings,
    points_seconds,
    policy_of,
    with_interval,
)
from slopewise.config.training_policy import TrainingPolicy
from slopewise.decision_record.recorder import RecordOptions
from slopewise.errors import SlopewiseError, UsageError
from slopewise.estimators.growth import SCRAPES_PER_WINDOW
from slopewise.feedback.restore import Outage, restore_originals
from slopewise.local.tally import RunTally
from slopewise.local.workshop import ClosesStack, Workshop
from slopewise.loop import ControllerLoop, Sink
from slopewise.model import CpuControl, PassReport, acts
from slopewise.ports import Actuator, Ports
from slopewise.reconcile import reconcile
from slopewise.telemetry.metrics import Telemetry

POLL_SECONDS = 0.1

OWN_SCRAPE_SECONDS = 1.0
"""Between two scrapes of a Prometheus that is started for one run, at the least; the demo's."""

PATIENT_SCRAPE_SECONDS = 5.0
"""Between two of a user's jobs, where the interval has four. It is the timeout, too, which Prometheus allows no longer:
with 0.02 core among ten jobs a scrape takes 1.0 s in the median and 1.6 s at worst (`benchmarks/bench_squeezed.py`)."""

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

REVIVE_SECONDS = 10.0
"""Seconds between two attempts to restart a Prometheus that has died."""


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


class Session(ClosesStack):
    """One run. Enter it, call `run`, read the records and reports, leave it."""

    def __init__(self, workshop: Workshop, plan: SessionPlan, sinks: Sequence[Sink] = ()) -> None:
        self.workshop = workshop
        self.plan = plan
        self.clock = SystemClock()
        self.nodes = split_machine(plan.nodes)
        self._reports: deque[PassReport] = deque(maxlen=plan.max_reports)
        self._reports_lock = threading.Lock()
        self._stopping = threading.Event()
        self.revive_at_seconds = 0.0
        self._log = structlog.get_logger("slopewise")
        self.tally = RunTally()
        self._sinks: tuple[Sink, ...] = (
            self._keep,
            self.tally.count,
            lambda report: self.supervisor.after_pass(report),
            *sinks,
        )
        _check_control(plan.policy, workshop.limiter)
        _check_memory(plan.policy)
        _check_interval(plan)
        self._document = with_interval(plan.policy, plan.scrape_interval_seconds)
        self._policy = policy_of(self._document)
        self._settings = pass_settings(self._document)
        self._recorder = None if plan.record is None else plan.record.recorder(self._document)
        if self._recorder is not None:
            self._sinks += (self._recorder,)

    def __enter__(self) -> Self:
        spec = self._document.spec
        interval = spec.behaviour.evaluation_seconds
        with ExitStack() as stack:
            self.folder = folder = self.workshop.journal.make_folder("run")
            if self.plan.earlier.memory is not None:
                inherit(self.plan.earlier.memory, folder / "memory.json")
            self.telemetry = Telemetry(
                control=spec.resources.control,
                interval_seconds=interval,
                moving=self._settings.bounds.moving,
                document=self._document.metadata.name,
            )
            self._outage = Outage(interval, self.clock.now(), restores=acts(spec.mode) and not self.plan.dry_run)
            logs = folder if self.plan.ours else self.workshop.users_logs(self.plan.namespace)
            self.supervisor = self._supervisor(logs)
            sinks = (*self._sinks, *self._annotation_sinks(stack))
            self.loop = ControllerLoop(self._one_pass, self.telemetry, interval, sinks)
            self.health = stack.enter_context(
                HealthServer(self.telemetry.registry, self.loop.is_alive, LOOPBACK, self.plan.health_port)
            )
            given = self.plan.prometheus
            if given is None:
                self.prometheus: PrometheusServer | GivenPrometheus = stack.enter_context(self._prometheus(folder))
            self.reader = self._reader(self.prometheus.url if given is None else given.endpoint)
            stack.callback(self.reader.close)
            if given is not None:
                self.prometheus = stack.enter_context(self._given_prometheus(given))
            self.ports = self._ports(folder)
            if self._recorder is not None:
                self.ports = self._recorder.ports(self.ports)
                stack.callback(self._recorder.close)
            stack.callback(self.supervisor.stop)
            stack.callback(self.restore_originals)
            stack.callback(self.loop.stop)
            self._stack = stack.pop_all()
        return self

    def _annotation_sinks(self, stack: ExitStack) -> tuple[Sink, ...]:
        if self.plan.annotated is None:
            return ()
        annotations = DecisionAnnotations(self.plan.annotated)
        stack.callback(annotations.close)
        return (annotations.sink(self._document.metadata.name),)

    def run(self, on_tick: Callable[[], None] = lambda: None) -> None:
        """Start the jobs as they arrive, run passes until all have ended; `on_tick` is called every `POLL_SECONDS`."""
        if self.plan.prometheus is not None:
            self.reader.read(self.clock.now())  # an unreachable one is reported before anything starts
        self.prometheus.wait_for_targets()
        self._begin()
        self.supervisor.poll()
        self.loop.start()
        while not self.supervisor.all_ended() and not self._stopping.wait(POLL_SECONDS):
            on_tick()
            self.supervisor.poll()
            self._revive_prometheus()
        self.loop.stop()
        with suppress(SlopewiseError):  # how the last jobs ended; without it their figures are those of the last pass
            self.tally.see(self.reader.read(self.clock.now()))
        on_tick()

    def _begin(self) -> None:
        """Start the jobs, and record the run in the journal, together with the jobs of an earlier controller."""
        earlier, journal = self.plan.earlier, self.workshop.journal
        if self.workshop.jobs_identity is not None:
            begun = self.clock.now() if earlier.started_at_seconds is None else earlier.started_at_seconds
            memory = (self.folder / "memory.json").absolute()
            journal.record(RunOf(jobs=self.workshop.jobs_identity, started_at_seconds=begun, memory=memory))
            earlier.settle(journal)
        self.supervisor.start()

    def _note_end(self, record: JobRecord) -> None:
        """Record an end in the journal, so that no later controller starts the job again."""
        if self.workshop.jobs_identity is None or record.finished_at_seconds is None:
            return
        with suppress(SlopewiseError):  # a full disk: a job that is over must not stop the others
            self.workshop.journal.record(
                EndedJob(
                    name=record.spec.name,
                    boot_id=current_boot_id(),
                    status=record.exit_status,
                    at_seconds=record.finished_at_seconds,
                    arrived_at_seconds=record.arrived_at_seconds or record.finished_at_seconds,
                    cpu_seconds=record.cpu_seconds,
                    stopped_at_target=record.stopped_at_target,
                )
            )

    def stop(self) -> None:
        """End `run` at its next poll, with jobs still running; thread-safe."""
        self._stopping.set()

    def restore_originals(self) -> None:
        """Restore the allocation that each running job had before the first change; one failure stops no other."""
        with suppress(SlopewiseError):  # a full disk: only the memory of a run that ends here could not be written
            restore_originals(self.ports.memory, self.ports.actuator)  # the release that follows lifts what fails here

    def _revive_prometheus(self) -> None:
        """Restart the session's Prometheus when it died (e.g. out of memory): without it every pass is held."""
        if not self.prometheus.needs_restart or self.clock.monotonic() < self.revive_at_seconds:
            return
        self.revive_at_seconds = self.clock.monotonic() + REVIVE_SECONDS
        self._log.warning("prometheus restarted")
        with suppress(SlopewiseError):  # tried again after a while
            self.prometheus.restart()
            self.loop.trigger()

    @property
    def node_cores(self) -> dict[str, float]:
        """The cores of each node, by its name."""
        return {each.name: each.node.cpu_cores for each in self.nodes}

    @property
    def control(self) -> CpuControl:
        """Whether limits or requests are changed."""
        return self.plan.policy.spec.resources.control

    def all_reports(self) -> list[PassReport]:
        """Every pass that is kept; thread-safe."""
        with self._reports_lock:
            return list(self._reports)

    def newest_report(self, *, observed: bool = False) -> PassReport | None:
        """The last pass, or the last with a snapshot; None: there was none. Thread-safe."""
        with self._reports_lock:
            reports = reversed(self._reports)
            return next((report for report in reports if not observed or report.snapshot is not None), None)

    def _one_pass(self) -> PassReport:
        lasted = self._outage.lasts
        report = self._outage.note(reconcile(self.ports, self._policy, self._settings))
        self.telemetry.record_outage(lasts=self._outage.lasts)
        if self._outage.lasts and not lasted:
            self.restore_originals()
        if isinstance(report.notes, PrometheusReading):
            self.tally.see(report.notes)
        return replace(report, notes=None)  # the reports of a run are kept

    def _keep(self, report: PassReport) -> None:
        with self._reports_lock:
            self._reports.append(report)

    def _supervisor(self, folder: Path) -> Supervisor:
        return Supervisor(
            self.plan.jobs,
            self.plan.namespace,
            self.workshop.launcher,
            self.workshop.limiter,
            folder,
            self.clock,
            self.nodes,
            ours=self.plan.ours,
            on_event=lambda: self.loop.trigger(),
            earlier=self.plan.earlier,
            on_end=self._note_end,
            linger_seconds=max(LINGER_SECONDS, LINGER_SCRAPES * self.plan.scrape_interval_seconds),
        )

    def _prometheus(self, folder: Path) -> PrometheusServer:
        return PrometheusServer(
            self.workshop.binaries,
            folder / "prometheus",
            scrape_interval_seconds=self.plan.scrape_interval_seconds,
            targets=self._targets(),
            start_process=self.workshop.launcher.start,
        )

    def _given_prometheus(self, given: PrometheusInUse) -> GivenPrometheus:
        run_id = self.workshop.journal.run_id
        file = given.targets_file or self.workshop.targets_folder / f"{run_id}.json"
        check_owner(file)
        self.workshop.journal.record_file(file)
        shown = self.reader.shown_url
        return GivenPrometheus(shown, run_id, file, self._targets(), self.reader.targets, self.workshop.announce)

    def _targets(self) -> list[TargetGroup]:
        """The controller itself, and every job."""
        controller: TargetGroup = {"targets": [f"{LOOPBACK}:{self.health.port}"], "labels": {"job": "slopewise"}}
        return [controller, *self.supervisor.targets()]

    def _reader(self, endpoint: Endpoint | str) -> PrometheusReader:
        of_run = {} if self.plan.prometheus is None else {RUN_LABEL: self.workshop.journal.run_id}
        return PrometheusReader(
            endpoint,
            {"namespace": self.plan.namespace, **of_run},
            self.plan.scrape_interval_seconds,
            [self.plan.policy.spec.evaluation],
            window_seconds=SCRAPES_PER_WINDOW * self.plan.scrape_interval_seconds,
            responses=[self.plan.policy.spec.responses],
            own=self._own_mappings(),
            points_seconds=points_seconds(self._document.spec),
            on_query=self.telemetry.record_query,
            on_left_out=self.telemetry.record_left_out,
        )

    def machine_cpu(self, cpus: Collection[int]) -> MachineCpu:
        """The counters of some cores. The run's processes are this one, its descendants, and those of the jobs."""

        def ours() -> set[int]:
            members = (self.workshop.limiter.members(job.name) for job in self.supervisor.running())
            return {*descendants(), *(pid for of_job in members for pid in of_job)}

        return MachineCpu(cpus, ours)

    def _own_mappings(self) -> dict[str, OwnMappings]:
        """Those of jobs that have any, by name, which on one machine is the pod."""
        return {job.name: job.mappings for job in self.plan.jobs if job.mappings != NO_OWN_MAPPINGS}

    def _ports(self, folder: Path) -> Ports:
        limiter, supervisor = self.workshop.limiter, self.supervisor
        left = LeftByOthers({each.name: self.machine_cpu(each.cpus) for each in self.nodes})
        evaluations, scrape = [self.plan.policy.spec.evaluation], self.plan.scrape_interval_seconds
        observer = LocalObserver(
            self.reader,
            limiter,
            supervisor.observed,
            self.clock,
            lambda: [left.of(each.node) for each in self.nodes],
            supervisor.waiting,
            supervisor.moving,
            MissingEvaluations(
                self.reader,
                evaluations,
                scrape,
                REMEDIES,
                self._own_mappings(),
                lambda key: supervisor.output_of(key.pod),
            ),
        )
        acting = LocalActuator(limiter, supervisor.place, supervisor.migrate, supervisor.end_at_target)
        actuator: Actuator = DryRunActuator() if self.plan.dry_run else acting
        return Ports(observer, actuator, FileMemory(folder / "memory.json"), self.clock)


def _check_control(document: TrainingPolicy, limiter: Limiter) -> None:
    control = document.spec.resources.control
    if control not in limiter.controls:
        raise UsageError(
            f"spec.resources.control: {control} cannot be controlled here ({limiter.description}); "
            f"leave it out or use {' or '.join(sorted(limiter.controls))}, or run where cgroups may be written."
        )


def _check_memory(document: TrainingPolicy) -> None:
    mistake = local_memory_mistake(document)
    if mistake is not None:
        raise UsageError(f"{mistake}.")


def _check_interval(plan: SessionPlan) -> None:
    mistake = interval_mistake(plan.policy, plan.scrape_interval_seconds)
    if mistake is not None:
        raise UsageError(f"{mistake}.")
