"""One policy over one list of jobs on this machine: plugs the ports into passes and runs them to the end.

`Workshop` is what all runs of a command share (the journal, the limiter, the Prometheus program); a `Session` is one
run with a Prometheus of its own. `slopewise demo` runs one session after another, `slopewise run --local` one.
Whatever happens, leaving them puts everything back: limits, processes, cgroups, folders.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType

import structlog

from controller.adapters.clock import SystemClock
from controller.adapters.crashed_runs import NOTHING_EARLIER, EarlierRun
from controller.adapters.health import HealthServer
from controller.adapters.http_config import Endpoint
from controller.adapters.job_record import JobRecord
from controller.adapters.journal import Journal, clean_up_after_killed, default_state_dir, new_run_id
from controller.adapters.leftovers import EndedJob, RunOf, current_boot_id
from controller.adapters.limiters.base import Limiter
from controller.adapters.limiters.choose import choose_limiter
from controller.adapters.lives import LINGER_SCRAPES, LINGER_SECONDS, LOOPBACK
from controller.adapters.local import DryRunActuator, LocalActuator, LocalObserver
from controller.adapters.memory_file import FileMemory, inherit
from controller.adapters.missing_evaluations import MissingEvaluations, Remedies
from controller.adapters.nodes import split_machine
from controller.adapters.processes import Launcher
from controller.adapters.prometheus import PrometheusReader
from controller.adapters.prometheus_given import RUN_LABEL, GivenPrometheus, check_ours
from controller.adapters.prometheus_server import PrometheusBinaries, PrometheusServer, TargetGroup, find_prometheus
from controller.adapters.supervisor import Supervisor
from controller.documents import interval_mistake, pass_settings, policy_of
from controller.errors import SlopewiseError, UsageError
from controller.growth import SCRAPES_PER_WINDOW
from controller.jobs import JobSpec
from controller.loop import ControllerLoop, Sink
from controller.model import CpuControl, PassReport
from controller.ports import Actuator, Ports
from controller.reconcile import reconcile
from controller.restoring import give_back
from controller.settings import TrainingPolicy
from controller.tally import RunTally
from controller.telemetry import Telemetry

POLL_SECONDS = 0.1

OWN_SCRAPE_SECONDS = 1.0
"""Between two scrapes of a Prometheus that is started for one run."""

REMEDIES = Remedies(
    no_target="let one of its scrape_configs read the file that --targets-file names",
    scrape_fails="add the two lines of slopewise_exporter, or name the endpoint that it has with `port`",
    no_metrics="add the two lines of slopewise_exporter",
    failing_seconds=15.0,
    missing_seconds=15.0,
)
"""What helps a job on this machine that reports no loss. Python and its libraries take some seconds to start."""

REVIVE_SECONDS = 10.0
"""Between two tries to start a Prometheus again that has died."""

Announce = Callable[[str], None]


class _Leaving:
    """Leaving it undoes, in reverse order, what entering it did; also when it is left by a Ctrl-C."""

    _stack: ExitStack

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


class Workshop(_Leaving):
    """What the runs of one command share. Leaving it removes everything that was made."""

    def __init__(self, *, actuator: str, announce: Announce, jobs_identity: str | None = None) -> None:
        """`jobs_identity`: which of a user's jobs it is about (`jobs.identity_of`), so that no controller after a crash
        starts one of them a second time; None: the built-in ones, which end with us.
        """
        self.jobs_identity = jobs_identity
        self._actuator_choice = actuator
        self._announce = announce

    def __enter__(self) -> Workshop:
        state_dir = default_state_dir()
        for message in clean_up_after_killed(state_dir):
            self._announce(message)
        with ExitStack() as stack:
            self._state_dir = state_dir
            self.journal = Journal.open(state_dir, new_run_id())
            stack.callback(self._close_journal)
            self.limiter: Limiter = choose_limiter(self.journal, self._actuator_choice)
            stack.callback(self.limiter.close)
            self.launcher = Launcher(self.journal)
            self._stack = stack.pop_all()
        return self

    @cached_property
    def binaries(self) -> PrometheusBinaries:
        """The Prometheus of this machine, brought where there is none; nobody asks where the user has one running."""
        return find_prometheus(announce=self._announce)

    @property
    def state_dir(self) -> Path:
        """Where journals are, and what is kept of runs that were killed."""
        return self._state_dir

    @property
    def targets_folder(self) -> Path:
        """Where a user's Prometheus finds what to scrape, unless the user says where."""
        return self._state_dir / "targets"

    def announce(self, message: str) -> None:
        """One line to the user."""
        self._announce(message)

    def users_logs(self, namespace: str) -> Path:
        """A folder for what a user's commands write, which is the user's and stays."""
        folder = self._state_dir / "logs" / self.journal.run_id / namespace
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise SlopewiseError(f"{folder} cannot be made for the commands' output ({error.strerror}).") from error
        self._announce(f"Output of the commands: {folder}")
        return folder

    def _close_journal(self) -> None:
        """Whatever could not be put back is told; what was put back is what everybody expects."""
        for message in self.journal.close():
            if "cannot" in message:
                self._announce(message)


@dataclass(frozen=True, slots=True)
class PrometheusInUse:
    """A Prometheus that runs already and is to be used."""

    endpoint: Endpoint
    targets_file: Path | None = None
    """Where it reads what to scrape; None: a file in our own state folder."""


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """What one session is to do."""

    policy: TrainingPolicy
    jobs: Sequence[JobSpec]
    namespace: str
    scrape_interval_seconds: float = OWN_SCRAPE_SECONDS
    ours: bool = True
    health_port: int = 0
    dry_run: bool = False
    reports_kept: int | None = None
    """How many of the last passes are remembered; None: all, which a run of minutes can afford."""
    nodes: int = 1
    """Into how many nodes this machine's cores are split."""
    prometheus: PrometheusInUse | None = None
    """None: one of our own is started."""
    earlier: EarlierRun = NOTHING_EARLIER
    """What controllers that were killed have left of them."""


class Session(_Leaving):
    """One run. Enter it, call `run`, read the records and reports, leave it."""

    def __init__(self, workshop: Workshop, plan: SessionPlan, sinks: Sequence[Sink] = ()) -> None:
        self.workshop = workshop
        self.plan = plan
        self.clock = SystemClock()
        self.nodes = split_machine(plan.nodes)
        self._reports: deque[PassReport] = deque(maxlen=plan.reports_kept)
        self._reports_lock = threading.Lock()
        self._stopping = threading.Event()
        self.revive_at_seconds = 0.0
        self._log = structlog.get_logger("slopewise")
        self.tally = RunTally()
        self._sinks: tuple[Sink, ...] = (self._keep, self.tally.count, self._place_the_rest, *sinks)
        self._policy = policy_of(plan.policy)
        self._settings = pass_settings(plan.policy)
        _check_control(plan.policy, workshop.limiter)
        _check_interval(plan)

    def __enter__(self) -> Session:
        spec = self.plan.policy.spec
        interval = spec.behaviour.interval_seconds
        with ExitStack() as stack:
            self.folder = folder = self.workshop.journal.make_folder("run")
            if self.plan.earlier.memory is not None:
                inherit(self.plan.earlier.memory, folder / "memory.json")
            self.telemetry = Telemetry(control=spec.resources.control, interval_seconds=interval)
            logs = folder if self.plan.ours else self.workshop.users_logs(self.plan.namespace)
            self.supervisor = self._supervisor(logs)
            self.loop = ControllerLoop(self._one_pass, self.telemetry, interval, self._sinks)
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
            stack.callback(self.supervisor.stop)
            stack.callback(self.restore_originals)
            stack.callback(self.loop.stop)
            self._stack = stack.pop_all()
        return self

    def run(self, on_tick: Callable[[], None] = lambda: None) -> None:
        """Start the jobs as they arrive, run passes until all have ended; `on_tick` is called every `POLL_SECONDS`."""
        if self.plan.prometheus is not None:
            self.reader.read(self.clock.now())  # one that cannot be reached is told before anything starts
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
        """From here on the journal answers for the jobs, also for those that an earlier controller had started."""
        earlier, journal = self.plan.earlier, self.workshop.journal
        if self.workshop.jobs_identity is not None:
            begun = self.clock.now() if earlier.started_at_seconds is None else earlier.started_at_seconds
            memory = (self.folder / "memory.json").absolute()
            journal.record(RunOf(jobs=self.workshop.jobs_identity, started_at_seconds=begun, memory=memory))
            earlier.settle(journal)
        self.supervisor.start()

    def _note_end(self, record: JobRecord) -> None:
        """In the journal, so that no later controller starts a job that is over."""
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
                )
            )

    def stop(self) -> None:
        """End `run` at its next look, with jobs still running; safe from any thread."""
        self._stopping.set()

    def restore_originals(self) -> None:
        """Every job that still runs gets back what it had before our first change; one failure stops no other."""
        with suppress(SlopewiseError):  # a full disk: only the memory of a run that ends here could not be written
            give_back(self.ports.memory, self.ports.actuator)  # what fails is lifted by the release, which follows

    def _revive_prometheus(self) -> None:
        """Start our Prometheus again when it died (out of memory, say): without it every pass is held for ever."""
        if not self.prometheus.needs_restart or self.clock.monotonic() < self.revive_at_seconds:
            return
        self.revive_at_seconds = self.clock.monotonic() + REVIVE_SECONDS
        self._log.warning("prometheus has died and is started again")
        with suppress(SlopewiseError):  # tried again after a while
            self.prometheus.restart()
            self.loop.wake()

    @property
    def node_cores(self) -> dict[str, float]:
        """The cores of each node, by its name."""
        return {each.name: each.node.cpu_cores for each in self.nodes}

    @property
    def control(self) -> CpuControl:
        """Whether limits or requests are changed."""
        return self.plan.policy.spec.resources.control

    def all_reports(self) -> list[PassReport]:
        """Every pass that is remembered; safe to ask from any thread."""
        with self._reports_lock:
            return list(self._reports)

    def newest_report(self, *, observed: bool = False) -> PassReport | None:
        """The last pass, or the last that observed anything; None: there was none. Safe to ask from any thread."""
        with self._reports_lock:
            reports = reversed(self._reports)
            return next((report for report in reports if not observed or report.snapshot is not None), None)

    def _one_pass(self) -> PassReport:
        report = reconcile(self.ports, self._policy, self._settings)
        if self.observer.reading is not None:
            self.tally.see(self.observer.reading)
        return report

    def _keep(self, report: PassReport) -> None:
        with self._reports_lock:
            self._reports.append(report)

    def _place_the_rest(self, report: PassReport) -> None:
        self.supervisor.after_pass(report)

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
            on_event=lambda: self.loop.wake(),
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
        check_ours(file)
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
        )

    def _ports(self, folder: Path) -> Ports:
        limiter, supervisor = self.workshop.limiter, self.supervisor
        nodes = [each.node for each in self.nodes]
        evaluations, scrape = [self.plan.policy.spec.evaluation], self.plan.scrape_interval_seconds
        self.observer = LocalObserver(
            self.reader,
            limiter,
            supervisor.observed,
            self.clock,
            nodes,
            supervisor.waiting,
            supervisor.moving,
            MissingEvaluations(self.reader, evaluations, scrape, REMEDIES),
        )
        acting = LocalActuator(limiter, supervisor.place, supervisor.migrate)
        actuator: Actuator = DryRunActuator() if self.plan.dry_run else acting
        return Ports(self.observer, actuator, FileMemory(folder / "memory.json"), self.clock)


def _check_control(document: TrainingPolicy, limiter: Limiter) -> None:
    control = document.spec.resources.control
    if control not in limiter.controls:
        raise UsageError(
            f"spec.resources.control: {control} cannot be controlled here ({limiter.description}); "
            f"use {' or '.join(sorted(limiter.controls))}, or run where cgroups may be written."
        )


def _check_interval(plan: SessionPlan) -> None:
    mistake = interval_mistake(plan.policy, plan.scrape_interval_seconds)
    if mistake is not None:
        raise UsageError(f"{mistake}.")
