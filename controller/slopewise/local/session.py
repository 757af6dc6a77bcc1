"""Runs one policy over one list of jobs on this machine to the end: connects ports, loop, Prometheus and jobs.

A `Session` is one run with its Prometheus. `slopewise demo` runs one session after another, `slopewise run --local`
one. The exit of a session restores limits and ends what it started, whatever happened.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

import structlog

from slopewise.adapters.clock import SystemClock
from slopewise.adapters.grafana.annotations import DecisionAnnotations
from slopewise.adapters.health import HealthServer
from slopewise.adapters.http.config import Endpoint
from slopewise.adapters.local.cleanup import EndedJob, MadeFile, RunOf, current_boot_id
from slopewise.adapters.local.job_processes import LINGER_SCRAPES, LINGER_SECONDS, LOOPBACK, JobProcesses, last_losses
from slopewise.adapters.local.job_record import JobRecord
from slopewise.adapters.local.limiters.identity import ProcessIdentity
from slopewise.adapters.local.limiters.process_group import process_tree
from slopewise.adapters.local.machine_cpu import LeftByOthers, MachineCpu, RunningJobs
from slopewise.adapters.local.nodes import split_machine
from slopewise.adapters.local.other_sessions import OtherSessions
from slopewise.adapters.local.ports import DryRunActuator, FileMemory, LocalActuator, LocalObserver, forget, inherit
from slopewise.adapters.local.prometheus_given import RUN_LABEL, GivenPrometheus, check_owner
from slopewise.adapters.local.prometheus_server import PrometheusServer, TargetGroup
from slopewise.adapters.local.scrape_floors import ScrapeFloors
from slopewise.adapters.local.supervisor import Supervisor
from slopewise.adapters.prometheus.missing_evaluations import MissingEvaluations
from slopewise.adapters.prometheus.reader import PrometheusReader, PrometheusReading
from slopewise.config.jobs_file import JobSpec
from slopewise.config.metric_mappings import NO_OWN_MAPPINGS, OwnMappings
from slopewise.config.pass_settings import points_seconds
from slopewise.config.training_policy import TrainingPolicy, TrainingPolicySpec
from slopewise.errors import SlopewiseError
from slopewise.estimators.growth import SCRAPES_PER_WINDOW
from slopewise.feedback.restore import Outage, due, restore_originals
from slopewise.local.brought import Brought, brought, export
from slopewise.local.fair_replay import compare
from slopewise.local.plan import REMEDIES, PrometheusInUse, SessionPlan, deciding
from slopewise.local.tally import RunTally
from slopewise.local.workshop import ClosesStack, Workshop
from slopewise.loop import ControllerLoop, Sink
from slopewise.model import CpuControl, PassReport, acts
from slopewise.ports import Actuator, Observer, Ports
from slopewise.reconcile import reconcile
from slopewise.telemetry.metrics import Telemetry

_log = structlog.get_logger("slopewise")

POLL_SECONDS = 0.1

REVIVE_SECONDS = 10.0
"""Seconds between two attempts to restart a Prometheus that has died, or to name it other targets."""


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
        self.tally = RunTally()
        self._sinks: tuple[Sink, ...] = (
            self._keep,
            self.tally.count,
            lambda report: self.supervisor.after_pass(report),
            *sinks,
        )
        self._deciding = self._next = deciding(plan.policy, workshop.limiter, plan.scrape_interval_seconds)
        self._forgotten: deque[str] = deque()
        self._recorder = None if plan.record is None else plan.record.recorder(self._deciding.document)
        if self._recorder is not None:
            self._sinks += (self._recorder,)

    def __enter__(self) -> Self:
        interval = self._deciding.interval_seconds
        with ExitStack() as stack:
            self.folder = folder = self.workshop.journal.make_folder("run")
            if self.plan.earlier.memory is not None:
                inherit(self.plan.earlier.memory, folder / "memory.json")
            name, moving = self._deciding.document.metadata.name, self._deciding.settings.bounds.moving
            self.telemetry = Telemetry(control=self.control, interval_seconds=interval, moving=moving, document=name)
            self._outage = self._new_outage()
            logs = folder if self.plan.ours else self.workshop.users_logs(self.plan.namespace)
            self.supervisor = self._supervisor(logs)
            sinks = self._sinks
            if self.plan.annotated is not None:
                annotations = stack.enter_context(closing(DecisionAnnotations(self.plan.annotated)))
                sinks += (annotations.sink(self._deciding.document.metadata.name),)
            self.loop = ControllerLoop(self._one_pass, self.telemetry, interval, sinks)
            self.health = stack.enter_context(
                HealthServer(self.telemetry.registry, self.loop.is_alive, LOOPBACK, self.plan.health_port)
            )
            given = self.plan.prometheus
            if given is None:
                self.prometheus: PrometheusServer | GivenPrometheus = stack.enter_context(self._prometheus(folder))
            self.reader = self._reader()
            stack.callback(lambda: self.reader.close())
            if given is not None:
                self.prometheus = stack.enter_context(self._given_prometheus(given))
            self.ports = self._ports(folder)
            if self._recorder is not None:
                stack.callback(self._recorder.close)
            if not self.plan.serves:
                stack.callback(self.supervisor.stop)
            export(self.brought, self.telemetry.registry)
            stack.callback(self.restore_originals)
            stack.callback(self.loop.stop)
            self._stack = stack.pop_all()
        return self

    def run(self, on_tick: Callable[[], None] = lambda: None) -> None:
        """Start the jobs as they arrive, run passes until all have ended, or until it is stopped where it serves.

        `on_tick` is called every `POLL_SECONDS`.
        """
        if self.plan.prometheus is not None:
            self.reader.read(self.clock.now())  # an unreachable one is reported before anything starts
        self._tend_prometheus()
        self.prometheus.wait_for_targets()
        self._begin()
        self.supervisor.poll()
        self.loop.start()
        while (self.plan.serves or not self.supervisor.all_ended()) and not self._stopping.wait(POLL_SECONDS):
            on_tick()
            self.supervisor.poll()
            self._tend_prometheus()
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
        known = self.ports.memory.load().jobs
        self.tally.recall(earlier.jobs, self.supervisor.records, known, self.clock.now())

    def _note_end(self, record: JobRecord) -> None:
        """Record an end in the journal, so that no later controller starts the job again, and what was brought."""
        log_path = None if record.process is None else record.process.log_path
        self.tally.of(record.spec.name).end(last_losses(log_path), self.clock.now())
        if acts(self.spec.mode) and not self.plan.dry_run:
            compare(record.spec.name, self.supervisor, self.tally)
            if (gained := brought(record, self.tally.of(record.spec.name))) is not None:
                _log.info("job compared", name=record.spec.name, reason=gained.sentence)
        if self.workshop.jobs_identity is None or record.finished_at_seconds is None:
            return
        self.workshop.prune_logs(self.supervisor.records.values())
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

    def add(self, specs: Sequence[JobSpec], *, fresh: bool = True) -> None:
        """Take in further jobs, in place of those of the same names that have ended.

        UsageError when one cannot be started, and none is taken in. Not `fresh`: an earlier session has measured them.
        """
        self.supervisor.add(specs)
        self._taken(specs, fresh=fresh)

    def _taken(self, specs: Sequence[JobSpec], *, fresh: bool) -> None:
        if fresh:
            self._forgotten.extend(spec.name for spec in specs)
        for spec in specs:
            self.tally.jobs.pop(spec.name, None)

    def attach(self, spec: JobSpec, identity: ProcessIdentity, *, fresh: bool = True) -> None:
        """Take in a process that runs already, as `add` takes a job; UsageError when it cannot be managed here."""
        self.supervisor.attach(spec, identity)
        self._taken([spec], fresh=fresh)

    def forget(self, names: Collection[str]) -> None:
        """Show jobs no more that have ended."""
        self.supervisor.forget(names)
        for name in names:
            self.tally.jobs.pop(name, None)

    def use(self, policy: TrainingPolicy, store: Callable[[], None]) -> None:
        """Decide by another document from the next pass on, after `store`; UsageError when it cannot be used here."""
        new = deciding(policy, self.workshop.limiter, self.plan.scrape_interval_seconds)
        store()
        self._next = new
        self.loop.trigger()

    def brought(self) -> list[Brought]:
        """What is known of the jobs that have ended."""
        records = self.supervisor.records
        found = (brought(record, self.tally.of(name)) for name, record in records.items())
        return [each for each in found if each is not None]

    def stop(self) -> None:
        """End `run` at its next poll, with jobs still running; thread-safe."""
        self._stopping.set()

    def restore_originals(self) -> None:
        """Restore the allocation that each running job had before the first change; one failure stops no other."""
        with suppress(SlopewiseError):  # a full disk: only the memory of a run that ends here could not be written
            restore_originals(self.ports.memory, self.ports.actuator)  # the release that follows lifts what fails here

    def _tend_prometheus(self) -> None:
        """Have Prometheus scrape the jobs that there are, and restart one that died: without it every pass is held."""
        targets, prometheus, now = self._targets(), self.prometheus, self.clock.monotonic()
        if (targets == prometheus.targets and not prometheus.needs_restart) or now < self.revive_at_seconds:
            return
        try:
            prometheus.set_targets(targets)
            if not prometheus.needs_restart:
                return
            _log.warning("prometheus restarted")
            prometheus.restart()
            self.loop.trigger()
        except (SlopewiseError, OSError) as error:  # tried again after a while
            _log.warning("prometheus failed", reason=str(error))
        self.revive_at_seconds = now + REVIVE_SECONDS

    @property
    def control(self) -> CpuControl:
        """Whether limits or requests are changed."""
        return self.spec.resources.control

    @property
    def document(self) -> TrainingPolicy:
        """The policy document that the next pass decides by, with its interval."""
        return self._next.document

    @property
    def spec(self) -> TrainingPolicySpec:
        """Of the policy document that the last pass decided by."""
        return self._deciding.document.spec

    @property
    def elapsed_seconds(self) -> float:
        """Since the run was begun."""
        return self.clock.now() - self.supervisor.started_at_seconds

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
        self._change()
        lasted = self._outage.lasts
        report = self._outage.note(reconcile(self.ports, self._deciding.policy, self._deciding.settings))
        self.telemetry.record_outage(lasts=self._outage.lasts)
        if self._outage.lasts and not lasted:
            self.restore_originals()
        if isinstance(report.notes, PrometheusReading):
            self.tally.see(report.notes)
            self.supervisor.join({key.pod: series for key, series in report.notes.jobs.items()})
        return replace(report, notes=None)  # the reports of a run are kept

    def _change(self) -> None:
        """Follow a change of the document, and forget what is known of jobs whose names others have now.

        Where the memory cannot be written, the next pass does all of it again.
        """
        forgotten = [*self._forgotten]
        forget(self.ports.memory, {*forgotten})
        for _ in forgotten:
            self._forgotten.popleft()
        new, before = self._next, self._deciding
        if new is not before:
            spec, jobs = new.document.spec, self.ports.memory.load().jobs
            kept = jobs if spec.resources.control == before.document.spec.resources.control else ()
            lost = due(self.ports.memory.load(), spec.mode, spec.behaviour.canary_ratio, tuple(kept))
            restore_originals(self.ports.memory, self.ports.actuator, lost)
            self._deciding = new
            self.telemetry.describe(spec.resources.control, new.interval_seconds, new.settings.bounds.moving)
            self.loop.interval_seconds = new.interval_seconds
            self._outage = self._new_outage()
            if self._recorder is not None:
                self._recorder.follow(new.document)
        mapped = ((name, each.spec.mappings) for name, each in self.supervisor.records.items())
        if new is not before or any(self._mapped.get(name, NO_OWN_MAPPINGS) != own for name, own in mapped):
            self.reader.close()
            self.reader = self._reader()
            self.ports = self._ports(self.folder)

    def _new_outage(self) -> Outage:
        restores = acts(self.spec.mode) and not self.plan.dry_run
        return Outage(self._deciding.interval_seconds, self.clock.now(), restores=restores)

    def _keep(self, report: PassReport) -> None:
        with self._reports_lock:
            self._reports.append(report)

    def _supervisor(self, folder: Path) -> Supervisor:
        linger = max(LINGER_SECONDS, LINGER_SCRAPES * self.plan.scrape_interval_seconds)
        shop, plan = self.workshop, self.plan
        processes = JobProcesses(
            shop.launcher, shop.limiter, folder, self.clock, self.nodes, plan.ours, linger, self._note_end
        )
        return Supervisor(
            self.plan.jobs,
            self.plan.namespace,
            processes,
            on_event=lambda: self.loop.trigger(),
            earlier=self.plan.earlier,
            max_running=self.plan.max_running,
            reported=lambda name: self.tally.of(name).reported_state,
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
        file = given.targets_file or self.workshop.state_dir / "targets" / f"{run_id}.json"
        check_owner(file)
        self.workshop.journal.record(MadeFile(path=file.absolute()))  # before it is written
        shown = self.reader.shown_url
        return GivenPrometheus(shown, run_id, file, self._targets(), self.reader.targets, self.workshop.announce)

    def _targets(self) -> list[TargetGroup]:
        """The controller itself, and every job."""
        controller: TargetGroup = {"targets": [f"{LOOPBACK}:{self.health.port}"], "labels": {"job": "slopewise"}}
        return [controller, *self.supervisor.targets()]

    def _reader(self) -> PrometheusReader:
        given = self.plan.prometheus
        endpoint: Endpoint | str = self.prometheus.url if given is None else given.endpoint
        of_run = {} if self.plan.prometheus is None else {RUN_LABEL: self.workshop.journal.run_id}
        self._mapped = self._own_mappings()
        return PrometheusReader(
            endpoint,
            {"namespace": self.plan.namespace, **of_run},
            self.plan.scrape_interval_seconds,
            [self.spec.evaluation],
            window_seconds=SCRAPES_PER_WINDOW * self.plan.scrape_interval_seconds,
            responses=[self.spec.responses],
            own=self._mapped,
            points_seconds=points_seconds(self.spec),
            on_query=self.telemetry.record_query,
            on_left_out=self.telemetry.record_left_out,
        )

    def machine_cpu(self, cpus: Collection[int], others: OtherSessions | None = None) -> MachineCpu:
        """The counters of some cores. The run's processes are this one, its descendants, and those of the jobs."""

        def ours() -> set[int]:
            members = (self.workshop.limiter.members(job.name) for job in self.supervisor.running())
            return {*process_tree(os.getpid()), *(pid for of_job in members for pid in of_job)}

        return MachineCpu(cpus, ours, sessions=tuple if others is None else others.processes)

    def _own_mappings(self) -> dict[str, OwnMappings]:
        """Those of jobs that have any, by name, which on one machine is the pod."""
        specs = (record.spec for record in self.supervisor.records.values())
        return {spec.name: spec.mappings for spec in specs if spec.mappings != NO_OWN_MAPPINGS}

    def _ports(self, folder: Path) -> Ports:
        limiter, supervisor = self.workshop.limiter, self.supervisor
        others = OtherSessions(self.workshop.state_dir, self.workshop.journal.run_id)
        left = LeftByOthers(
            {each.name: self.machine_cpu(each.cpus, others if len(self.nodes) == 1 else None) for each in self.nodes},
            lambda: RunningJobs(len(supervisor.running()), len(others.jobs)),
        )
        scrape = self.plan.scrape_interval_seconds
        missing = MissingEvaluations(self.reader, [self.spec.evaluation], scrape, REMEDIES, self._mapped)
        missing.output = lambda key: supervisor.output_of(key.pod)
        local = LocalObserver(
            self.reader,
            limiter,
            supervisor.observed,
            self.clock,
            lambda: [left.of(each.node) for each in self.nodes],
            supervisor.waiting,
            supervisor.moving,
            missing,
        )
        local.policy, local.former_ends = self.spec.policy_name, supervisor.former_ends
        own_server = self.plan.prometheus is None
        observer: Observer = ScrapeFloors(local, self.reader.targets, scrape, self.control) if own_server else local
        acting = LocalActuator(limiter, supervisor.place, supervisor.migrate, supervisor.end_at_target)
        actuator: Actuator = DryRunActuator() if self.plan.dry_run else acting
        ports = Ports(observer, actuator, FileMemory(folder / "memory.json"), self.clock)
        return ports if self._recorder is None else self._recorder.ports(ports)
