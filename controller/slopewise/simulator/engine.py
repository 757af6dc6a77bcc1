"""Runs one policy over one drawn instance: the real pass in simulated time.

`run` plugs the simulated world into the ports of `slopewise.reconcile` and runs passes as `slopewise.loop` does: when
the last one asked for the next, and at once after a job started or ended. What neither a policy nor a guard placed,
the default scheduler places after the pass. `run_unmanaged` is the same world without a
controller.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from msgspec import structs

from slopewise.composition import composed_name
from slopewise.config.pass_settings import bounds_of, build_policy, measuring_of, rollback_settings_of
from slopewise.config.training_policy import PolicyChoice
from slopewise.errors import SlopewiseError
from slopewise.feedback.pass_settings import PassSettings
from slopewise.memory_in_process import DictionaryMemory
from slopewise.model import MemoryState, Migrate, PassReport, Place, Resize
from slopewise.own_policies import catalogue
from slopewise.policies import PolicyProtocol, Setting
from slopewise.ports import Ports
from slopewise.reconcile import reconcile
from slopewise.simulator.results.outcomes import run_outcome
from slopewise.simulator.world.actuator import SimActuator
from slopewise.simulator.world.default_scheduler import DefaultScheduler
from slopewise.simulator.world.model import Instance, PolicyRun, RunOutcome
from slopewise.simulator.world.observer import EPOCH_SECONDS, SimObserver
from slopewise.simulator.world.tallies import TimeMean
from slopewise.simulator.world.world import World

SOONEST_SECONDS = 0.1
"""Shortest time between two passes."""

PASSES_PER_MOMENT = 100
"""Two or three are usual: before and after a placement. A policy that moves jobs that pause for 0 s could go on."""

UNMANAGED = "unmanaged"
"""What a run without a controller is called where a policy would be named."""


class SimClock:
    """The Clock port over simulated time; a pass takes none of it."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> float:
        """The simulated Unix time in seconds."""
        return EPOCH_SECONDS + self._world.now_seconds

    def monotonic(self) -> float:
        """Simulated seconds since the start of the run."""
        return self._world.now_seconds


class Controller:
    """Runs real passes over a simulated world, and records them."""

    def __init__(
        self,
        world: World,
        policy: PolicyProtocol,
        settings: PassSettings,
        *,
        oracle: bool = False,
        points: bool = False,
        memory: MemoryState | None = None,
    ) -> None:
        """`oracle`: the policy gets the remaining work; `points`: raw points; `memory`: of jobs before the run."""
        self._world = world
        self._policy = policy
        self._settings = settings
        self.actuator = SimActuator(world)
        observer = SimObserver(world, oracle=oracle, points=points)
        self._memory = DictionaryMemory()
        if memory is not None:
            self._memory.save(memory)
        self._ports = Ports(observer, self.actuator, self._memory, SimClock(world))
        self._classes: dict[str, str | None] = {}
        self._efficiency = TimeMean()
        self._moment = (-1.0, 0)
        """(when the last pass was, how many there were at that very time)"""
        self.requeue_seconds = 0.0
        self.passes_total = 0
        self.withheld_total = 0

    @property
    def growth_efficiency_sum(self) -> float:
        """Mean, over the time in which passes saw a job, of the jobs' growth efficiencies together; 1/s of a node."""
        return self._efficiency.until(self._world.now_seconds)

    @property
    def records_of_classes(self) -> MemoryState:
        """What is remembered of jobs after them, with its times before the beginning of another run."""
        elapsed = self._world.now_seconds
        classes = {
            name: tuple(structs.replace(each, at_seconds=each.at_seconds - elapsed) for each in record)
            for name, record in self._memory.load().classes.items()
        }
        return MemoryState(classes=classes)

    def one_pass(self) -> None:
        """Run a pass now, and note when the next one is wanted."""
        report = reconcile(self._ports, self._policy, self._settings)
        if report.policy_failed:
            raise SlopewiseError(f"{self._world.instance.scenario}: {report.held}.")
        now = self._world.now_seconds
        self._check_moment(now)
        self.passes_total += 1
        self.withheld_total += len(report.results.withheld_of(Resize, Place, Migrate))
        self.requeue_seconds = max(report.requeue_at_seconds - EPOCH_SECONDS, now + SOONEST_SECONDS)
        self._follow(report)

    def _check_moment(self, now_seconds: float) -> None:
        moment, passes = self._moment
        self._moment = (now_seconds, passes + 1 if moment == now_seconds else 1)
        if self._moment[1] > PASSES_PER_MOMENT:
            raise SlopewiseError(
                f"{self._world.instance.scenario}: policy {self._settings.policy_name} asks for one pass after another "
                f"at {now_seconds:g} s and time stands still; give its moved jobs a restart that takes time."
            )

    def _follow(self, report: PassReport) -> None:
        """Add up the measured growth efficiencies, and trace changes of class."""
        now = self._world.now_seconds
        if report.snapshot is None or report.decisions is None or not report.snapshot.jobs:
            self._efficiency.change(now, None)
            return
        known, efficiency_sum = report.decisions.memory.jobs, 0.0
        for job in report.snapshot.jobs:
            memory = known[job.uid]
            if memory.growth is not None:
                efficiency_sum += memory.growth.cpu_efficiency or 0.0
            if memory.decided.job_class != self._classes.get(job.uid):
                self._classes[job.uid] = memory.decided.job_class
                self._world.emit("class", job.uid, job.node, {"class": memory.decided.job_class})
        self._efficiency.change(now, efficiency_sum)


def run(instance: Instance, policy: PolicyRun, *, trace: bool = False) -> RunOutcome:
    """What becomes of the instance under this policy; the same twice.

    UsageError for a policy or a parameter that there is not; SlopewiseError for a run that would not end.
    """
    instance = replace(instance, default_scheduler=policy.default_scheduler or instance.default_scheduler)
    world = World(instance, policy.control, trace=trace)
    memory = _of_history(instance, policy) if instance.history else None
    controller = controller_of(policy, world, memory)
    drive(world, DefaultScheduler(world, instance.seed, instance.default_scheduler), controller)
    return replace(
        run_outcome(world, policy.label),
        growth_efficiency_sum=controller.growth_efficiency_sum,
        resizes_total=controller.actuator.resizes_total,
        migrations_total=controller.actuator.migrations_total,
        passes_total=controller.passes_total,
        withheld_total=controller.withheld_total,
    )


def _of_history(instance: Instance, policy: PolicyRun) -> MemoryState:
    """The records of classes after the jobs that ended before the run; they are run under the same policy."""
    before = replace(instance, jobs=instance.history, history=(), duration_seconds=None)
    world = World(before, policy.control)
    controller = controller_of(policy, world)
    drive(world, DefaultScheduler(world, instance.seed, instance.default_scheduler), controller)
    controller.one_pass()  # the last one has ended since the last pass
    return controller.records_of_classes


def controller_of(run: PolicyRun, world: World, memory: MemoryState | None = None) -> Controller:
    """The real policy of that name, with its parameters, over this world; `memory`: of jobs before the run."""
    for file in run.files:
        catalogue.name_file(Path(file))  # this process may be a worker that has not loaded it yet
    choice = PolicyChoice(name=run.name, parameters=dict(run.parameters))
    setting = Setting(run.interval_seconds, run.control, run.accelerators, run.studies)
    policy = build_policy(choice, run.placement, setting, where=run.label)
    found = [catalogue.find(each.name) for each in (choice, run.placement) if each is not None]
    oracle, points = any(each.simulator_only for each in found), any(each.reads_points for each in found)
    return Controller(world, policy, pass_settings(run), oracle=oracle, points=points, memory=memory)


def drive(world: World, scheduler: DefaultScheduler, controller: Controller) -> None:
    """Let time pass and passes run until the world's run is over."""
    while not world.over:
        if not world.woken:  # what a pass or the default scheduler started is looked at in this very moment
            world.pass_time(min(world.next_event_seconds, controller.requeue_seconds))
        if not world.over and (world.woken or world.now_seconds >= controller.requeue_seconds):
            world.woken = False
            controller.one_pass()
            scheduler.place_waiting()
    world.close()


def run_unmanaged(instance: Instance, tie_break_seed: int) -> RunOutcome:
    """The instance under the default scheduler and fair sharing alone, with ties falling by another seed."""
    limited = any(job.allocation.limit_millicores is not None for job in instance.jobs)
    world = World(instance, "limits" if limited else "requests")
    scheduler = DefaultScheduler(world, tie_break_seed, instance.default_scheduler)
    while not world.over:
        world.pass_time(world.next_event_seconds)
        scheduler.place_waiting()
    world.close()
    return run_outcome(world, policy=UNMANAGED)


def pass_settings(run: PolicyRun) -> PassSettings:
    """The pass settings of a scenario's policy; a simulated controller always acts."""
    return PassSettings(
        composed_name(run.name, None if run.placement is None else run.placement.name),
        measuring_of(run.interval_seconds, run.evaluation),
        replace(bounds_of("Auto", run.cpu, run.behaviour, run.migration), accelerators=run.accelerators),
        rollback_settings_of(run.name, run.interval_seconds, run.behaviour),
    )
