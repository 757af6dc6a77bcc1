"""One pass, top to bottom: observe, decide, guard, act, report. Read this first.

The cluster, one machine, a dry run and the simulator run this function with different ports. A pass that cannot
observe, or whose policy fails, changes nothing and gives the reason in `PassReport.held`. The caller (`loop.py`) passes
the report to the log, the metrics, the decision record and the screen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from slopewise import memory_sizing
from slopewise.errors import ObservationError, PolicyError
from slopewise.estimators import measurements, objectives
from slopewise.feedback import move_tracking, rollback
from slopewise.feedback.pass_settings import PassSettings, Stopwatch, next_pass_at_seconds
from slopewise.feedback.restore import in_turn, remember_changes, remember_originals
from slopewise.guards import at_target
from slopewise.guards.context import PassContext
from slopewise.guards.review import Reviewed, review
from slopewise.model import (
    ClusterSnapshot,
    Decision,
    Decisions,
    MemoryState,
    Observation,
    PassReport,
    Resize,
    ResizeMemory,
    Results,
    Stop,
    only,
)
from slopewise.move_attempts import attempt_moves
from slopewise.policies import PolicyProtocol
from slopewise.ports import Clock, Ports, attempt


def reconcile(ports: Ports, policy: PolicyProtocol, settings: PassSettings) -> PassReport:
    """Run one pass and return its report. Raises only when the memory's storage fails, or on a bug."""
    stopwatch, seen = Stopwatch(ports.clock), None

    # 1. Observe. The only read of the outside world; when it fails, nothing is changed.
    try:
        with stopwatch.timing("observe"):
            remembered = ports.memory.load()
            seen = ports.observer.observe()
            snapshot = seen.snapshot

        # 2. Decide. Pure: the same snapshot and memory always give the same decisions, from all that make some.
        with stopwatch.timing("decide"):
            decided = _decide(policy, snapshot, remembered, settings)
    except (ObservationError, PolicyError) as error:
        return _held(error, seen, ports.clock, stopwatch, settings)

    # 3. Guard. Ordered vetoes and clamps, each with its reason.
    with stopwatch.timing("guard"):
        context = PassContext(snapshot, decided.policy.memory, settings.bounds)
        reviewed = review(decided.decisions, context)

    # 4. Act. Originals and stops are stored before they are carried out; decreases make room for increases.
    with stopwatch.timing("act"):
        acted = _act(reviewed, context, ports, settings)

    # 5. Report. All of the above as data.
    memory, results, earlier = acted.memory, acted.results, decided.earlier
    return PassReport(
        taken_at_seconds=snapshot.taken_at_seconds,
        policy=settings.policy_name,
        seconds_by_verb=stopwatch.seconds,
        requeue_at_seconds=next_pass_at_seconds(
            snapshot, memory, settings, outstanding=acted.waits or _is_outstanding(decided, reviewed, settings)
        ),
        snapshot=snapshot,
        decisions=replace(decided.policy, memory=memory),
        results=Results(earlier.outcomes + results.outcomes, results.withheld, earlier.events + results.events),
        notes=seen.notes,
        objective_statuses=objectives.statuses(snapshot, memory),
    )


@dataclass(frozen=True, slots=True)
class _Decided:
    """What a pass decides, and what it has learned of earlier ones."""

    policy: Decisions
    """With rollbacks in place of the policy's resizes, and the memory that the guards see."""
    decisions: tuple[Decision, ...]
    """All of them."""
    earlier: Results


def _decide(
    policy: PolicyProtocol, snapshot: ClusterSnapshot, remembered: MemoryState, settings: PassSettings
) -> _Decided:
    """The policy's resizes and moves, rollbacks of earlier changes, changes of memory, and stops at the target."""
    measured = measurements.measure(snapshot, remembered, settings.measuring)
    reviewed = rollback.review(policy.decide(snapshot, measured), snapshot, settings.rollback)
    tracked = move_tracking.review(reviewed.decisions.memory, remembered, snapshot)
    stops, memory = at_target.stops(replace(tracked.memory, classes=measured.classes), snapshot)
    answered = replace(reviewed.decisions, memory=memory)
    sized = memory_sizing.resizes(snapshot, memory, settings.bounds.memory)
    return _Decided(
        answered, (*answered.resizes, *sized, *answered.moves, *stops), Results(reviewed.late, events=tracked.events)
    )


@dataclass(frozen=True, slots=True)
class _Acted:
    """The results of the decisions, and the memory with them."""

    memory: MemoryState
    results: Results
    waits: bool
    """A resize waits for its turn in a later pass."""


def _act(reviewed: Reviewed, context: PassContext, ports: Ports, settings: PassSettings) -> _Acted:
    """Carry out what is allowed. A move that cannot be carried out uses up no budget."""
    snapshot, most, act = context.snapshot, settings.first_changes_a_pass, partial(attempt, ports.actuator)
    stops = only(reviewed.allowed, Stop)
    resizes, waiting = in_turn(only(reviewed.allowed, Resize), context.memory, most)
    sizes, sizes_waiting = in_turn(only(reviewed.allowed, ResizeMemory), context.memory, most)
    memory = at_target.record(remember_originals(context.memory, (*resizes, *sizes), snapshot), stops, context)
    ports.memory.save(memory)
    stopped = list(map(act, stops))
    changed = (*map(act, resizes), *waiting, *map(act, sizes), *sizes_waiting)
    moved, not_moved = attempt_moves(reviewed, context, act)
    begun = move_tracking.remember(remember_changes(memory, changed, snapshot), moved, snapshot)
    memory = at_target.remember(begun.memory, stopped)
    if resizes or sizes or moved or stopped:
        ports.memory.save(memory)
    withheld = (*reviewed.withheld_of(Resize, ResizeMemory), *not_moved, *reviewed.withheld_of(Stop))
    return _Acted(memory, Results((*changed, *moved, *stopped), withheld, begun.events), bool(waiting))


def _is_outstanding(decided: _Decided, reviewed: Reviewed, settings: PassSettings) -> bool:
    """Whether a decided change is withheld or clamped, or ends a job: the next pass comes after one interval."""
    return bool(
        settings.bounds.memory != "Ignore"
        or only(decided.decisions, Stop)
        or only(reviewed.allowed, Resize) != list(decided.policy.resizes)
    )


def _held(
    error: ObservationError | PolicyError,
    seen: Observation | None,
    clock: Clock,
    stopwatch: Stopwatch,
    settings: PassSettings,
) -> PassReport:
    """The report of a pass that could not observe or decide: retried after one interval, with no memory saved."""
    now, failed = clock.now(), isinstance(error, PolicyError)
    requeue_at = now + settings.measuring.interval_seconds
    notes = None if seen is None else seen.notes
    return PassReport(
        now, settings.policy_name, stopwatch.seconds, requeue_at, str(error), notes=notes, policy_failed=failed
    )
