"""The simulated world: nodes, jobs, and the events that move them. It decides nothing and observes nothing.

`engine.py` lets time pass in it and runs passes; `actuator.py` changes it, `observer.py` looks at it. Between two
events every job goes on at a constant rate (`sharing.py`), so nothing has to be stepped: a node's jobs are brought up
to date only when one of them comes, goes, stops, or is given something else.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count

from slopewise.errors import SlopewiseError
from slopewise.estimators.growth import SCRAPES_PER_WINDOW
from slopewise.model import CpuAllocation, CpuControl
from slopewise.simulator.world.model import Instance, MoveKind, TraceEvent, horizon_seconds, refuse_endless
from slopewise.simulator.world.running import RunningJob
from slopewise.simulator.world.sharing import IDLE, Rate, limit_cores, rates
from slopewise.simulator.world.tallies import ClusterTally
from slopewise.simulator.world.threads import FIRST_READING_SECONDS, STEPS_PER_WORK
from slopewise_exporter.threads.cpu import Reading

Action = Callable[[], None]


class World:
    """Everything there is, at `now_seconds`.

    `woken` is set by what a controller sees at once: a job arrived, started, ended, or works again after a pause.
    """

    def __init__(self, instance: Instance, control: CpuControl, *, trace: bool = False) -> None:
        refuse_endless(instance)
        self.instance = instance
        self.control = control
        self.physics = instance.physics
        self.nodes = instance.nodes
        self.now_seconds = 0.0
        self.woken = False
        self.jobs = [RunningJob(job, index) for index, job in enumerate(instance.jobs)]
        self.by_uid = {job.name: running for job, running in zip(instance.jobs, self.jobs, strict=True)}
        self.waiting: dict[str, RunningJob] = {}
        """Arrived and on no node, by uid, in the order of arrival."""
        self.present: dict[str, RunningJob] = {}
        """On a node and not ended, by uid, in the order in which they started."""
        self.tally = ClusterTally()
        self.events: list[TraceEvent] = []
        self._trace = trace
        self._kept_scrapes = SCRAPES_PER_WINDOW + 1
        self._on_node: list[dict[str, RunningJob]] = [{} for _ in instance.nodes]
        self._memory_left = [float(node.memory_bytes) for node in instance.nodes]
        """Of each node, the memory that its jobs do not request, in bytes."""
        self._plans = [0] * len(instance.nodes)
        """The latest planned stop of each node; earlier ones are void."""
        self._changed: dict[int, None] = {}
        self._agenda: list[tuple[float, int, Action]] = []
        self._numbers = count()
        self._left = len(self.jobs)
        self._horizon_seconds = horizon_seconds(instance)
        self._node_numbers = {node.name: number for number, node in enumerate(instance.nodes)}
        for running in self.jobs:
            self._plan(running.job.arrive_seconds, partial(self._arrive, running))
        if instance.duration_seconds is not None:
            self._plan(instance.duration_seconds / 2, self._note_half_time)

    # --- time -------------------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """True when all jobs have ended, or the run's duration has passed."""
        if self.instance.duration_seconds is None:
            return self._left == 0
        return self.now_seconds >= self.instance.duration_seconds

    @property
    def next_event_seconds(self) -> float:
        """When something happens next by itself; infinite when nothing ever will."""
        planned = self._agenda[0][0] if self._agenda else math.inf
        duration = self.instance.duration_seconds
        return planned if duration is None else min(planned, duration)

    def pass_time(self, to_seconds: float) -> None:
        """Let time pass up to a moment no later than the next event, and let happen what is due then."""
        self._check_horizon(to_seconds)
        self.now_seconds = max(self.now_seconds, to_seconds)
        while self._agenda and self._agenda[0][0] <= self.now_seconds and not self._ended_by_duration():
            heapq.heappop(self._agenda)[2]()
            if not self._agenda or self._agenda[0][0] > self.now_seconds:
                self.settle()

    def close(self) -> None:
        """The run is over: bring every counter to its last moment."""
        for running in self.present.values():
            self.bring_up_to_date(running)
        self._recount()

    def settle(self) -> None:
        """Recompute the CPU shares of every node on which something changed."""
        for number in self._changed:
            self._share_out(number)
        self._changed.clear()

    def _ended_by_duration(self) -> bool:
        """A run of a fixed duration ends before anything that would happen at its last moment."""
        return self.instance.duration_seconds is not None and self.over

    def _plan(self, at_seconds: float, action: Action) -> None:
        heapq.heappush(self._agenda, (at_seconds, next(self._numbers), action))

    def _check_horizon(self, to_seconds: float) -> None:
        if to_seconds <= self._horizon_seconds:
            return
        stuck = next(running for running in self.jobs if running.finished_seconds is None)
        where = "waits for a node" if stuck.node is None else f"has done {stuck.done_ratio:.1%} of its work"
        raise SlopewiseError(
            f"{self.instance.scenario}: after {self._horizon_seconds:.0f} s job {stuck.job.name} still {where}, so "
            "this run would not end; raise the floor (cpu.min) or give the nodes more room."
        )

    # --- what happens by itself -------------------------------------------------------------------------

    def _arrive(self, running: RunningJob) -> None:
        self.waiting[running.job.name] = running
        self.woken = True
        self.emit("arrived", running.job.name, "")

    def _stop_on(self, number: int, plan: int) -> None:
        """A job of this node has come to its end or to a crash."""
        if plan != self._plans[number]:
            return
        self._bring_up_to_date(number)
        for running in [running for running in self._on_node[number].values() if running.at_stop()]:
            if running.paused:
                continue
            if running.crashes():
                self.emit("crashed", running.job.name, running.node_name)
                self._pause(running, running.job.restart_seconds)
            else:
                self._end(running)
        self._changed[number] = None

    def _end(self, running: RunningJob) -> None:
        running.finish()
        self._gone(running, "ended")

    def _gone(self, running: RunningJob, how: str) -> None:
        self.emit(how, running.job.name, running.node_name)
        self._remove(running)
        del self.present[running.job.name]
        self._left -= 1
        self.woken = True
        self._recount()

    def _pause(self, running: RunningJob, seconds: float) -> None:
        self._set_rate(running, IDLE)
        self._plan(running.pause(seconds), partial(self._resume, running, running.incarnation))

    def _resume(self, running: RunningJob, incarnation: int) -> None:
        if running.node is None or running.incarnation != incarnation:
            return
        self._bring_up_to_date(running.node)
        running.revision += 1
        self._begin_threads(running, running.node)
        self._changed[running.node] = None
        self.woken = True
        self.emit("resumed", running.job.name, running.node_name)

    def _take_effect(self, running: RunningJob, incarnation: int, allocation: CpuAllocation) -> None:
        if running.node is not None and running.incarnation == incarnation:
            self.bring_up_to_date(running)  # until now it was allocated what was in effect before
            running.in_effect = allocation
            self._changed[running.node] = None

    def _begin_threads(self, running: RunningJob, number: int) -> None:
        """A process begins, which counts its cores; where its threads follow them, they are read again and again."""
        running.begin_threads(limit_cores(running.in_effect, self.nodes[number], self.control))
        if running.threads is not None and running.threads.follows:
            self._plan_reading(running, FIRST_READING_SECONDS)

    def _plan_reading(self, running: RunningJob, seconds: float) -> None:
        self._plan(self.now_seconds + seconds, partial(self._read_threads, running, running.incarnation))

    def _read_threads(self, running: RunningJob, incarnation: int) -> None:
        if running.node is None or running.threads is None or running.incarnation != incarnation:
            return
        limit = limit_cores(running.in_effect, self.nodes[running.node], self.control)
        rate = running.rate
        if running.threads.read(Reading(limit, rate.cores, rate.waited_ratio, STEPS_PER_WORK * rate.speed)):
            self._changed[running.node] = None
        self._plan_reading(running, running.threads.next_reading_seconds)

    def _note_half_time(self) -> None:
        for running in self.present.values():
            self.bring_up_to_date(running)
            running.half_time = running.now

    # --- what a scheduler or a controller does ----------------------------------------------------------

    def node_number(self, name: str) -> int | None:
        """The place of a node in `nodes`; None when there is none of that name."""
        return self._node_numbers.get(name)

    def fits(self, running: RunningJob, number: int) -> bool:
        """True when the node has the memory that the job requests, and its accelerators free."""
        wanted = running.job.accelerator
        if wanted is not None and wanted.count > self.free_accelerators(number):
            return False
        return (running.job.memory_bytes or 0.0) <= self._memory_left[number]

    def free_accelerators(self, number: int) -> int:
        """The accelerators of a node that no job on it has."""
        taken = (running.job.accelerator for running in self._on_node[number].values())
        return self.nodes[number].accelerators - sum(each.count for each in taken if each is not None)

    def place(self, running: RunningJob, number: int) -> None:
        """Start a waiting job on a node that it fits on; its first process is at work at once."""
        uid = running.job.name
        del self.waiting[uid]
        self.present[uid] = running
        self._add(running, number, "placed")
        self.woken = True
        self._recount()
        self.emit("placed", running.job.name, running.node_name)

    def migrate(self, running: RunningJob, number: int, came: MoveKind) -> None:
        """Take a job to another node that it fits on: it is there at once, and works again after its pause."""
        self.bring_up_to_date(running)
        self._remove(running)
        self._add(running, number, came)
        self._recount()
        self.emit(came, running.job.name, running.node_name, {"from": running.stays[-1].node})
        self._pause(running, running.job.checkpoint_seconds + running.job.restart_seconds)

    def stop(self, running: RunningJob) -> None:
        """End a job that is on a node before its work is done."""
        self.bring_up_to_date(running)
        running.stop()
        self._gone(running, "stopped")

    def write(self, running: RunningJob, allocation: CpuAllocation) -> None:
        """Give a job that is on a node another allocation: written now, in effect a moment later."""
        running.allocation = allocation
        running.revision += 1
        effect = partial(self._take_effect, running, running.incarnation, allocation)
        self._plan(self.now_seconds + self.physics.resize_seconds, effect)
        given = {"limit_millicores": allocation.limit_millicores, "request_millicores": allocation.request_millicores}
        self.emit("resized", running.job.name, running.node_name, given)

    def requests_millicores(self, number: int) -> int:
        """What the requests of a node's jobs add up to, as written."""
        return sum(running.allocation.request_millicores for running in self._on_node[number].values())

    def jobs_on(self, number: int) -> int:
        """How many jobs are on a node, paused ones among them."""
        return len(self._on_node[number])

    def useful_cores(self, number: int) -> float:
        """The cores that a node's jobs can use together, each as far as the node goes."""
        cores = self.nodes[number].cpu_cores
        return math.fsum(min(running.job.parallelism_cores, cores) for running in self._on_node[number].values())

    def cpu_used_ratio(self, number: int) -> float:
        """The part of a node's CPU that its jobs use since the last `settle`; a paused job uses none."""
        return (
            math.fsum(running.rate.cores for running in self._on_node[number].values()) / self.nodes[number].cpu_cores
        )

    def _add(self, running: RunningJob, number: int, came: MoveKind) -> None:
        self._bring_up_to_date(number)
        running.start(number, self.nodes[number].name, came, self.now_seconds)
        self._begin_threads(running, number)
        self._on_node[number][running.job.name] = running
        self._note_change(number)

    def _remove(self, running: RunningJob) -> None:
        number = running.node
        if number is None:
            raise SlopewiseError(f"job {running.job.name} is on no node")
        self._bring_up_to_date(number)
        self._set_rate(running, IDLE)
        running.leave(self.now_seconds)
        del self._on_node[number][running.job.name]
        self._note_change(number)

    def _note_change(self, number: int) -> None:
        """Mark a node whose jobs changed, and sum its memory again.

        Adding and subtracting would drift: a node that was full once could stay a millionth of a byte short.
        """
        taken = math.fsum(running.job.memory_bytes or 0.0 for running in self._on_node[number].values())
        self._memory_left[number] = self.nodes[number].memory_bytes - taken
        self._changed[number] = None

    def _recount(self) -> None:
        self.tally.recount(self.now_seconds, [len(jobs) for jobs in self._on_node])

    # --- CPU --------------------------------------------------------------------------------------------

    def keep_scrapes(self, scrapes: int) -> None:
        """Keep the counters of at least so many scrapes."""
        self._kept_scrapes = max(self._kept_scrapes, scrapes + 1)

    def bring_up_to_date(self, running: RunningJob) -> None:
        """Bring one job's counters to now."""
        kept_seconds = self._kept_scrapes * self.physics.scrape_seconds
        keep = self.now_seconds - self.physics.scrape_delay_seconds - kept_seconds
        running.advance(self.now_seconds, keep)

    def _bring_up_to_date(self, number: int) -> None:
        for running in self._on_node[number].values():
            self.bring_up_to_date(running)

    def _share_out(self, number: int) -> None:
        """New rates for the jobs of one node, and the next moment at which one of them ends or crashes."""
        self._bring_up_to_date(number)
        node, here = self.nodes[number], self._on_node[number].values()
        working = [running for running in here if not running.paused]
        demands = [running.demand for running in working]
        wanted = math.fsum(min(demand.parallelism_cores, node.cpu_cores) for demand in demands)
        self.tally.recount_cpu(self.now_seconds, number, wanted, node.cpu_cores)
        given = rates(demands, node, self.control, self.physics)
        for running, rate in zip(working, given, strict=True):
            self._set_rate(running, rate)
        self._plans[number] += 1
        stops = min((running.next_stop_seconds for running in working), default=math.inf)
        if math.isfinite(stops):
            self._plan(stops, partial(self._stop_on, number, self._plans[number]))

    def _set_rate(self, running: RunningJob, rate: Rate) -> None:
        if rate != running.rate:
            running.rate = rate
            if self._trace:
                self.emit("cpu", running.job.name, running.node_name, {"cores": rate.cores, "speed": rate.speed})

    def emit(self, kind: str, uid: str, node: str, detail: Mapping[str, object] | None = None) -> None:
        """Add an event to the trace, if there is one."""
        if self._trace:
            self.events.append(TraceEvent(self.now_seconds, kind, uid, node, detail or {}))
