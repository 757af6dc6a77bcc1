"""Carries out the moves that the guards allow, and tries the next candidate in place of one that is refused.

A move that a disruption budget, an admission policy or an error refuses uses no slot of `maxConcurrent`, no memory and
no budget of its node: the moves that were withheld because of it are reviewed again. Each attempt is a few requests, so
the number of failed attempts a pass is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from slopewise.guards.move_budgets import JOINT_GUARDS, concurrency
from slopewise.guards.moves import ATTEMPTS, review_moves, units
from slopewise.guards.resize import Refusal, withheld_by
from slopewise.model import (
    Bounds,
    ClusterSnapshot,
    Decision,
    MemoryState,
    Move,
    Outcome,
    Withheld,
)

MAX_FAILED_ATTEMPTS = 10
"""Moves (of whole workloads) that may fail in one pass: each takes three to eight requests."""

_JOINT = frozenset(guard.__name__ for guard in JOINT_GUARDS)

Attempt = Callable[[Move], Outcome[Decision]]


@dataclass(frozen=True, slots=True)
class Attempted:
    """Outcomes of the attempts, in order, and the moves that were not attempted."""

    outcomes: tuple[Outcome[Decision], ...]
    withheld: tuple[Withheld[Move], ...]


@dataclass(frozen=True, slots=True)
class Candidates:
    """The moves of a pass after a review: those that are allowed, those that are withheld, and what both depend on."""

    allowed: tuple[Move, ...]
    withheld: tuple[Withheld[Move], ...]
    snapshot: ClusterSnapshot
    memory: MemoryState
    bounds: Bounds

    @classmethod
    def of(cls, moves: Sequence[Move], snapshot: ClusterSnapshot, memory: MemoryState, bounds: Bounds) -> Candidates:
        """The moves of a policy, reviewed."""
        return cls(*review_moves(moves, snapshot, memory, bounds), snapshot, memory, bounds)

    def attempt_each(self, attempt: Attempt) -> Attempted:
        """Attempt the allowed moves; each one that is refused makes room for the next candidate."""
        pending, withheld = list(units(self.allowed, self.snapshot)), self.withheld
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
            still_pending = [move for each in pending for move in each]
            allowed, withheld = self._review_again(withheld, [*begun, *still_pending])
            pending += units(allowed, self.snapshot)
        return Attempted(tuple(outcomes), _put_off(pending, withheld))

    def _review_again(
        self, withheld: Sequence[Withheld[Move]], begun: Sequence[Move]
    ) -> tuple[tuple[Move, ...], tuple[Withheld[Move], ...]]:
        """What was withheld for the sake of a move that could not be carried out may be allowed now.

        `begun`: also those that were allowed before and are yet to be tried.
        """
        again = [each.decision for each in withheld if each.guard in _JOINT]
        allowed, still = review_moves(again, self.snapshot, self.memory, self.bounds, begun)
        return allowed, (*(each for each in withheld if each.guard not in _JOINT), *still)


def _attempt_unit(unit: Sequence[Move], attempt: Attempt) -> Iterator[Outcome[Decision]]:
    """The moves that are made together: where the first one cannot be carried out, none of the others is tried."""
    first = attempt(unit[0])
    yield first
    for move in unit[1:]:
        if first.takes_a_slot:
            yield attempt(move)
        else:
            yield Outcome(move, first.result, first.detail)


def _put_off(pending: Sequence[Sequence[Move]], withheld: Sequence[Withheld[Move]]) -> tuple[Withheld[Move], ...]:
    """With what was not tried any more: the pending moves, and those that are withheld for the sake of these alone."""
    if not pending:
        return tuple(withheld)
    reason = f"{MAX_FAILED_ATTEMPTS} moves of this pass could not be carried out; its turn comes in the next pass"
    waiting = {each.decision.job_uid for each in withheld if each.guard == concurrency.__name__}
    put_off = [move for unit in pending for move in unit]
    put_off += [each.decision for each in withheld if each.decision.job_uid in waiting]
    others = (each for each in withheld if each.decision.job_uid not in waiting)
    return (*others, *(withheld_by(move, Refusal(ATTEMPTS, reason)) for move in put_off))
