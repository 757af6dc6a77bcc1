"""One policy over one drawn instance: simulated time on one side, the real pass on the other.

`run` plugs the simulated world into the ports of `controller.reconcile` and runs passes as `controller.loop` does: when
the last one asked for the next, and at once after a job started or ended. What neither a policy nor a guard placed,
the default scheduler places after the pass. `run_unmanaged` is the same world without a controller.
"""

from __future__ import annotations

from pathlib import Path

from controller.documents import bounds_of, patience_of
from controller.errors import SlopewiseError
from controller.growth import Measuring
from controller.memory_dictionary import DictionaryMemory
from controller.model import PassReport
from controller.own_policies import catalogue
from controller.policies import PolicyProtocol, Setting
from controller.ports import Ports
from controller.reconcile import PassSettings, reconcile
from controller.settings import PolicyChoice, policy_parameters
from controller.simulator.actuator import SimActuator
from controller.simulator.default_scheduler import DefaultScheduler
from controller.simulator.model import Instance, PolicyRun, RunOutcome
from controller.simulator.observer import EPOCH_SECONDS, SimObserver
from controller.simulator.outcomes import run_outcome
from controller.simulator.tallies import TimeMean
from controller.simulator.world import World

SOONEST_SECONDS = 0.1
"""A pass takes its time: one that asks for the next at once gets it after this."""

PASSES_PER_MOMENT = 100
"""Two or three are usual: before and after a placement. A policy that moves jobs that pause for 0 s could go on."""

UNMANAGED = "unmanaged"
"""What a run without a controller is called where a policy would be named."""


class SimClock:
    """The Clock port over simulated time; a pass takes none of it."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> float:
        """Unix time in seconds, as far as a simulated run knows it."""
        return EPOCH_SECONDS + self._world.now_seconds

    def monotonic(self) -> float:
        """Simulated seconds since the start of the run."""
        return self._world.now_seconds


class Controller:
    """The real pass over a simulated world, and what is told of its passes."""

    def __init__(self, world: World, policy: PolicyProtocol, settings: PassSettings, *, oracle: bool = False) -> None:
        """`oracle`: the policy is told what work is left."""
        self._world = world
        self._policy = policy
        self._settings = settings
        self.actuator = SimActuator(world)
        observer = SimObserver(world, oracle=oracle)
        self._ports = Ports(observer, self.actuator, DictionaryMemory(), SimClock(world))
        self._classes: dict[str, str | None] = {}
        self._efficiency = TimeMean()
        self._moment = (-1.0, 0)
        """(when the last pass was, how many there were at that very time)"""
        self.next_look_seconds = 0.0
        self.passes_total = 0
        self.withheld_total = 0

    @property
    def growth_efficiency_sum(self) -> float:
        """Mean, over the time in which passes saw a job, of the jobs' growth efficiencies together; 1/s of a node."""
        return self._efficiency.until(self._world.now_seconds)

    def one_pass(self) -> None:
        """Run a pass now, and note when the next one is wanted."""
        report = reconcile(self._ports, self._policy, self._settings)
        if report.policy_failed:
            raise SlopewiseError(f"{self._world.instance.scenario}: {report.held}.")
        now = self._world.now_seconds
        self._check_moment(now)
        self.passes_total += 1
        self.withheld_total += len(report.withheld) + len(report.moves_withheld)
        self.next_look_seconds = max(report.next_look_at_seconds - EPOCH_SECONDS, now + SOONEST_SECONDS)
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
        """Add up the growth efficiencies that were measured, and tell the trace which jobs changed their class."""
        now = self._world.now_seconds
        if report.snapshot is None or report.decisions is None or not report.snapshot.jobs:
            self._efficiency.change(now, None)
            return
        known, efficiency_sum = report.decisions.memory.jobs, 0.0
        for job in report.snapshot.jobs:
            memory = known[job.uid]
            if memory.growth is not None:
                efficiency_sum += memory.growth.cpu_efficiency or 0.0
            if memory.job_class != self._classes.get(job.uid):
                self._classes[job.uid] = memory.job_class
                self._world.tell("class", job.uid, job.node, {"class": memory.job_class})
        self._efficiency.change(now, efficiency_sum)


def run(instance: Instance, policy: PolicyRun, *, trace: bool = False) -> RunOutcome:
    """What becomes of the instance under this policy; the same twice.

    UsageError for a policy or a parameter that there is not; SlopewiseError for a run that would not end.
    """
    world = World(instance, policy.control, trace=trace)
    controller = controller_of(policy, world)
    drive(world, DefaultScheduler(world, instance.seed), controller)
    return run_outcome(
        world,
        policy=policy.label,
        growth_efficiency_sum=controller.growth_efficiency_sum,
        resizes_total=controller.actuator.resizes_total,
        migrations_total=controller.actuator.migrations_total,
        passes_total=controller.passes_total,
        withheld_total=controller.withheld_total,
    )


def controller_of(run: PolicyRun, world: World) -> Controller:
    """The real policy of that name, with its parameters, over this world."""
    if run.file is not None:
        catalogue.name_file(Path(run.file))  # in this process, which may be a worker, nobody has named it yet
    choice = PolicyChoice(name=run.name, parameters=dict(run.parameters))
    parameters = policy_parameters(choice, where=run.label)
    policy = catalogue.build(run.name, parameters, Setting(run.interval_seconds, run.control))
    return Controller(world, policy, pass_settings(run), oracle=catalogue.find(run.name).simulator_only)


def drive(world: World, scheduler: DefaultScheduler, controller: Controller) -> None:
    """Let time pass and passes run until the world's run is over."""
    while not world.over:
        if not world.woken:  # what a pass or the default scheduler started is looked at in this very moment
            world.pass_time(min(world.next_event_seconds, controller.next_look_seconds))
        if not world.over and (world.woken or world.now_seconds >= controller.next_look_seconds):
            world.woken = False
            controller.one_pass()
            scheduler.place_waiting()
    world.close()


def run_unmanaged(instance: Instance, tie_break_seed: int) -> RunOutcome:
    """The instance under the default scheduler and fair sharing alone, with ties falling by another seed."""
    world = World(instance, "requests")
    scheduler = DefaultScheduler(world, tie_break_seed)
    while not world.over:
        world.pass_time(world.next_event_seconds)
        scheduler.place_waiting()
    world.close()
    return run_outcome(world, policy=UNMANAGED)


def pass_settings(run: PolicyRun) -> PassSettings:
    """What each pass is told of a scenario's policy; a simulated controller always acts."""
    return PassSettings(
        run.name,
        Measuring(run.interval_seconds),
        bounds_of("Auto", run.cpu, run.behaviour, run.migration),
        patience_of(run.interval_seconds, run.behaviour),
    )
