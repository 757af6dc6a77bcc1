"""Carries out the moves that the guards allow, and tries the next candidate in place of one that is refused.

A move that a disruption budget, an admission policy or an error refuses uses no slot of `maxConcurrent`, no memory and
no budget of its node: the moves that were withheld because of it are reviewed again. Each attempt is a few requests, so
the number of failed attempts a pass is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from slopewise.guards.context import PassContext
from slopewise.guards.framework import ATTEMPTS, Refusal, withheld_by
from slopewise.guards.move_budgets import JOINT_GUARDS, concurrency
from slopewise.guards.moves import units
from slopewise.guards.review import Reviewed, review
from slopewise.model import Decision, Migrate, Move, Outcome, Place, Withheld, only

MAX_FAILED_ATTEMPTS = 10
"""Moves (of whole workloads) that may fail in one pass: each takes three to eight requests."""

_JOINT = frozenset(guard.__name__ for guard in JOINT_GUARDS)

Attempt = Callable[[Move], Outcome[Decision]]


def attempt_moves(
    reviewed: Reviewed, context: PassContext, attempt: Attempt
) -> tuple[list[Outcome[Decision]], list[Withheld[Move]]]:
    """Attempt the allowed moves; each one that is refused makes room for the next candidate.

    The outcomes of the attempts, in order, and the moves that were not attempted.
    """
    pending = units(only(reviewed.allowed, Place, Migrate), context.snapshot)
    withheld: list[Withheld[Move]] = list(reviewed.withheld_of(Place, Migrate))
    outcomes: list[Outcome[Decision]] = []
    begun: list[Move] = []
    failed = 0
    while pending and failed < MAX_FAILED_ATTEMPTS:
        unit = pending.pop(0)
        tried = list(_attempt_unit(unit, attempt))
        outcomes += tried
        if any(outcome.takes_a_slot for outcome in tried):
            begun += unit
            continue
        failed += 1
        # What was withheld for the sake of a move that could not be carried out may be allowed now.
        again = review(
            [each.decision for each in withheld if each.guard in _JOINT],
            context.after([*begun, *(move for each in pending for move in each)]),
        )
        withheld = [each for each in withheld if each.guard not in _JOINT]
        withheld += again.withheld_of(Place, Migrate)
        pending += units(only(again.allowed, Place, Migrate), context.snapshot)
    return outcomes, _put_off(pending, withheld)


def _attempt_unit(unit: Sequence[Move], attempt: Attempt) -> Iterator[Outcome[Decision]]:
    """The moves that are made together: where the first one cannot be carried out, none of the others is tried."""
    first = attempt(unit[0])
    yield first
    for move in unit[1:]:
        if first.takes_a_slot:
            yield attempt(move)
        else:
            yield Outcome(move, first.result, first.detail)


def _put_off(pending: Sequence[Sequence[Move]], withheld: Sequence[Withheld[Move]]) -> list[Withheld[Move]]:
    """With what was not tried any more: the pending moves, and those that are withheld for the sake of these alone."""
    if not pending:
        return list(withheld)
    reason = f"{MAX_FAILED_ATTEMPTS} moves of this pass could not be carried out; its turn comes in the next pass"
    waiting = {each.decision.job_uid for each in withheld if each.guard == concurrency.__name__}
    put_off = [move for unit in pending for move in unit]
    put_off += [each.decision for each in withheld if each.decision.job_uid in waiting]
    others = [each for each in withheld if each.decision.job_uid not in waiting]
    return [*others, *(withheld_by(move, Refusal(ATTEMPTS, reason)) for move in put_off)]
