"""One pass, top to bottom: observe, decide, guard, act, report. Read this first.

The cluster, one machine, a dry run and the simulator run this function with different ports. A pass that cannot
observe, or whose policy fails, changes nothing and gives the reason in `PassReport.held`. The caller (`loop.py`) passes
the report to the log, the metrics, the decision record and the screen.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from slopewise import memory_sizing
from slopewise.errors import ObservationError, PolicyError
from slopewise.estimators import measurements, promises
from slopewise.feedback import move_tracking, rollback
from slopewise.feedback.originals import in_turn, remember_memory_resizes, remember_originals, remember_resizes
from slopewise.feedback.pass_settings import PassSettings
from slopewise.feedback.pass_timing import Stopwatch, next_pass_at_seconds
from slopewise.guards import at_target, moves
from slopewise.guards import memory as memory_guards
from slopewise.guards import resize as guards
from slopewise.model import PassReport, Resize, ResizeMemory, Results
from slopewise.move_attempts import Candidates
from slopewise.policies import PolicyProtocol
from slopewise.ports import Clock, Ports, attempt


def reconcile(ports: Ports, policy: PolicyProtocol, settings: PassSettings) -> PassReport:
    """Run one pass and return its report. Raises only when the memory's storage fails, or on a bug."""
    stopwatch = Stopwatch(ports.clock)

    # 1. Observe. The only read of the outside world; when it fails, nothing is changed.
    try:
        with stopwatch.timing("observe"):
            remembered = ports.memory.load()
            snapshot = ports.observer.observe()

        # 2. Decide. Pure: the same snapshot and memory always give the same decisions. A rollback of an earlier change
        #    replaces the policy's resize of that job. Earlier moves are followed up.
        with stopwatch.timing("decide"):
            measured = measurements.measure(snapshot, remembered, settings.measuring)
            reviewed = rollback.review(policy.decide(snapshot, measured), snapshot, settings.rollback)
            tracked = move_tracking.review(reviewed.decisions.memory, remembered, snapshot)
            decided = replace(reviewed.decisions, memory=replace(tracked.memory, classes=measured.classes))
    except (ObservationError, PolicyError) as error:
        return _held(error, ports.clock, stopwatch, settings)

    # 3. Guard. Ordered vetoes and clamps, each with its reason.
    with stopwatch.timing("guard"):
        stopping = at_target.review(decided, snapshot, settings.bounds)
        decisions = stopping.decisions
        candidates = Candidates.of(decisions.moves, snapshot, decisions.memory, settings.bounds)
        staying, withheld = moves.without_moving(decisions.resizes, candidates.allowed, snapshot.moving)
        allowed, vetoed = guards.review(staying, snapshot, decisions.memory, settings.bounds)
        withheld += stopping.resizes_withheld + vetoed
        for_memory = memory_sizing.resizes(snapshot, decisions.memory, settings.bounds.memory)
        memory_allowed, memory_withheld = memory_guards.review(for_memory, snapshot, decisions.memory, settings.bounds)

    # 4. Act. Originals and stops are stored before they are carried out; decreases make room for increases. A move that
    #    cannot be carried out uses up no budget.
    with stopwatch.timing("act"):
        due, waiting = in_turn(allowed, decisions.memory, settings.first_changes_a_pass)
        memory_due, memory_waiting = in_turn(memory_allowed, decisions.memory, settings.first_changes_a_pass)
        memory = remember_originals(decisions.memory, (*due, *memory_due), snapshot)
        ports.memory.save(memory)
        act = partial(attempt, ports.actuator)
        stops = tuple(map(act, stopping.due))
        resized = Results((*map(act, due), *waiting, *map(act, memory_due), *memory_waiting))
        moved = candidates.attempt_each(act)
        memory = remember_resizes(memory, resized.of(Resize), snapshot)
        memory = remember_memory_resizes(memory, resized.of(ResizeMemory), snapshot)
        begun = move_tracking.remember(memory, moved.outcomes, snapshot)
        memory = at_target.remember(begun.memory, stops)
        if due or memory_due or moved.outcomes or stops:
            ports.memory.save(memory)

    # 5. Report. All of the above as data.
    again = withheld or waiting or stops or stopping.withheld or allowed != tuple(decisions.resizes)
    outstanding = bool(again or settings.bounds.memory != "Ignore")
    return PassReport(
        taken_at_seconds=snapshot.taken_at_seconds,
        policy=settings.policy_name,
        seconds_by_verb=stopwatch.seconds,
        requeue_at_seconds=next_pass_at_seconds(snapshot, memory, settings, outstanding=outstanding),
        snapshot=snapshot,
        decisions=replace(decisions, memory=memory),
        results=Results(
            (*reviewed.late, *resized.outcomes, *moved.outcomes, *stops),
            (*withheld, *memory_withheld, *stopping.moves_withheld, *moved.withheld, *stopping.withheld),
            tracked.events + begun.events,
        ),
        standings=promises.standings(snapshot, memory),
    )


def _held(
    error: ObservationError | PolicyError, clock: Clock, stopwatch: Stopwatch, settings: PassSettings
) -> PassReport:
    """The report of a pass that could not observe or decide: retried after one interval, with no memory saved."""
    now, failed = clock.now(), isinstance(error, PolicyError)
    requeue_at = now + settings.measuring.interval_seconds
    return PassReport(now, settings.policy_name, stopwatch.seconds, requeue_at, held=str(error), policy_failed=failed)
