"""One pass, top to bottom: observe, decide, guard, act, report. Read this first.

The cluster, this machine, a dry run and the simulator run exactly this; they differ in the ports. A pass that
cannot observe, or whose policy fails, changes nothing and says why (`PassReport.held`). Whoever calls (`loop.py`)
hands the report on to the log, the metrics, the decision record and the screen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from controller import corrections, growth, guards, move_guards, move_review, pace
from controller.bounds import Bounds
from controller.errors import ActuationError, ObservationError, PolicyError
from controller.model import (
    Change,
    ClusterSnapshot,
    CpuAllocation,
    JobMemory,
    MemoryState,
    Move,
    MoveOutcome,
    Outcome,
    PassReport,
    Resize,
    Vitals,
)
from controller.move_attempts import Candidates
from controller.policies import PolicyProtocol
from controller.ports import Actuator, Clock, Ports


@dataclass(frozen=True, slots=True)
class PassSettings:
    """What a pass is told by the user, besides the policy itself."""

    policy_name: str
    measuring: growth.Measuring
    bounds: Bounds
    patience: corrections.Patience
    first_changes_a_pass: int | None = None
    """Jobs of how many workloads may be changed for the first time in one pass: their originals are stored before
    anything else is done, a write for each workload, and everything else waits for that. None: any number."""


def reconcile(ports: Ports, policy: PolicyProtocol, settings: PassSettings) -> PassReport:
    """Run one pass and tell all about it. Raises only when the memory's storage fails, or by a mistake of ours."""
    stopwatch = Stopwatch(ports.clock)

    # 1. Observe. The only read of the world; when it fails, nothing is changed.
    try:
        with stopwatch.timing("observe"):
            remembered = ports.memory.load()
            snapshot = ports.observer.observe()

        # 2. Decide. Pure: the same snapshot and memory always give the same decisions. What an earlier change has
        #    harmed gets back what it had, whatever the policy wishes; what became of earlier moves is found out.
        with stopwatch.timing("decide"):
            grown = growth.measure(snapshot, remembered, settings.measuring)
            measured = pace.measure(snapshot, grown, settings.measuring.interval_seconds)
            corrected = corrections.review(policy.decide(snapshot, measured), snapshot, settings.patience)
            followed = move_review.review(corrected.decisions.memory, remembered, snapshot)
            decisions = replace(corrected.decisions, memory=followed.memory)
    except (ObservationError, PolicyError) as error:
        return _held(error, ports.clock, stopwatch, settings)

    # 3. Guard. Ordered vetoes and clamps, each with its reason.
    with stopwatch.timing("guard"):
        candidates = Candidates.of(decisions.moves, snapshot, decisions.memory, settings.bounds)
        staying, withheld = move_guards.without_moving(decisions.resizes, candidates.allowed, snapshot.moving)
        allowed, vetoed = guards.review(staying, snapshot, decisions.memory, settings.bounds)
        withheld += vetoed

    # 4. Act. Originals are stored before the first change; decreases make room for increases. A move that cannot be
    #    carried out takes nothing from the next candidate.
    with stopwatch.timing("act"):
        due, waiting = in_turn(decreases_first(allowed), decisions.memory, settings.first_changes_a_pass)
        memory = remember_originals(decisions.memory, due, snapshot)
        ports.memory.save(memory)
        outcomes = (*(_carry_out(resize, ports.actuator) for resize in due), *waiting)
        moved = candidates.attempt_each(partial(_carry_out_move, actuator=ports.actuator))
        begun = move_review.remember(_remember_resizes(memory, outcomes, snapshot), moved.outcomes, snapshot)
        memory = begun.memory
        if due or moved.outcomes:
            ports.memory.save(memory)

    # 5. Report. Everything above as data; the log, the metrics and the screen are the caller's.
    outstanding = bool(withheld or waiting or allowed != tuple(decisions.resizes))
    return PassReport(
        taken_at_seconds=snapshot.taken_at_seconds,
        policy=settings.policy_name,
        seconds_by_verb=stopwatch.seconds,
        next_look_at_seconds=_next_look_at_seconds(snapshot, memory, settings, outstanding=outstanding),
        snapshot=snapshot,
        decisions=replace(decisions, memory=memory),
        outcomes=corrected.late + outcomes,
        withheld=withheld,
        moves=moved.outcomes,
        moves_withheld=moved.withheld,
        moves_told=followed.news + begun.news,
    )


def _next_look_at_seconds(
    snapshot: ClusterSnapshot, memory: MemoryState, settings: PassSettings, *, outstanding: bool
) -> float:
    """When the next pass is due; `outstanding`: something that was wanted is not done."""
    looks = [node.look_at_seconds for node in memory.nodes.values()]
    first_look = growth.first_look_at_seconds(snapshot, memory, settings.measuring)
    confirm_look = growth.confirm_at_seconds(snapshot, memory)
    back_look = move_review.next_look_at_seconds(memory, snapshot, settings.bounds.moving)
    looks += [at for at in (first_look, confirm_look, back_look) if at is not None]
    one_interval = snapshot.taken_at_seconds + settings.measuring.interval_seconds
    if outstanding or corrections.watches(memory, snapshot, settings.patience):
        looks.append(one_interval)  # it must not wait for the own look of a node in back-off
    return min(looks, default=one_interval)


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """Times each verb of the pass, so that the dashboard's parts cannot drift from the code's."""

    clock: Clock
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timing(self, verb: str) -> Iterator[None]:
        """Record the duration of the block as `verb`, also when it raises."""
        start = self.clock.monotonic()
        try:
            yield
        finally:
            self.seconds[verb] = self.clock.monotonic() - start


def _held(
    error: ObservationError | PolicyError, clock: Clock, stopwatch: Stopwatch, settings: PassSettings
) -> PassReport:
    """A pass that could not observe or decide: it looks again after one interval, and remembers nothing new."""
    now = clock.now()
    next_look = now + settings.measuring.interval_seconds
    failed = isinstance(error, PolicyError)
    return PassReport(now, settings.policy_name, stopwatch.seconds, next_look, held=str(error), policy_failed=failed)


def decreases_first(resizes: Sequence[Resize]) -> list[Resize]:
    """Decreases before increases, so that a node is never promised twice; otherwise in the given order."""
    return sorted(resizes, key=lambda resize: resize.raises)


def in_turn(resizes: Sequence[Resize], memory: MemoryState, most: int | None) -> tuple[list[Resize], list[Outcome]]:
    """Those whose jobs were changed before, or are of the first `most` other workloads; what becomes of the rest."""
    if most is None:
        return list(resizes), []
    due: list[Resize] = []
    waiting: list[Outcome] = []
    first: set[str] = set()
    why = f"no more than {most} workloads are changed for the first time in one pass; its turn comes in a later one"
    for resize in resizes:
        known = memory.jobs.get(resize.job_uid)
        if known is None or known.original is None:
            workload = resize.job_uid.rpartition(":")[0] or resize.job_uid  # `UID:SLOT` on a cluster
            if workload not in first and len(first) == most:
                waiting.append(Outcome(resize, "deferred", why))
                continue
            first.add(workload)
        due.append(resize)
    return due, waiting


def _carry_out(resize: Resize, actuator: Actuator) -> Outcome:
    """One resize; its failure becomes its outcome and stops no other."""
    try:
        return actuator.resize(resize)
    except ActuationError as error:
        return Outcome(resize, "failed", str(error))


def _carry_out_move(move: Move, actuator: Actuator) -> MoveOutcome:
    """One placement or migration; its failure becomes its outcome and stops no other."""
    try:
        return actuator.move(move)
    except ActuationError as error:
        return MoveOutcome(move, "failed", str(error))


def remember_originals(memory: MemoryState, allowed: Sequence[Resize], snapshot: ClusterSnapshot) -> MemoryState:
    """Memory with what each job had before its first change; what is stored already is never overwritten."""
    found = {job.uid: job.allocation for job in snapshot.jobs}
    return _update_jobs(
        memory,
        {
            resize.job_uid: _with_original(memory.jobs.get(resize.job_uid) or JobMemory(), found[resize.job_uid])
            for resize in allowed
        },
    )


def _with_original(known: JobMemory, allocation: CpuAllocation) -> JobMemory:
    return known if known.original else known.altered(original=allocation)


def _remember_resizes(memory: MemoryState, outcomes: Sequence[Outcome], snapshot: ClusterSnapshot) -> MemoryState:
    """Memory with each resize that was carried out: for the cooldown, and for corrections."""
    now_seconds = snapshot.taken_at_seconds
    vitals = {job.uid: job.vitals for job in snapshot.jobs}
    return _update_jobs(
        memory,
        {
            outcome.resize.job_uid: _with_change(memory, outcome.resize, vitals[outcome.resize.job_uid], now_seconds)
            for outcome in outcomes
            if outcome.result == "applied"
        },
    )


def _with_change(memory: MemoryState, resize: Resize, vitals: Vitals | None, now_seconds: float) -> JobMemory:
    """The job's memory with how it fared before this change, which is what it is judged by."""
    known = memory.jobs[resize.job_uid]
    change = Change(
        now_seconds,
        resize.control,
        resize.from_millicores,
        resize.to_millicores,
        vitals,
        known.growth,
        known.previous_growth,
        known.paces[-1] if known.paces else None,
        gives_back=resize.gives_back,
    )
    return known.altered(last_resized_at_seconds=now_seconds, change=change)


def _update_jobs(memory: MemoryState, changed: Mapping[str, JobMemory]) -> MemoryState:
    return replace(memory, jobs={**memory.jobs, **changed}) if changed else memory
