"""Carries out the moves that the guards allow; where one cannot be carried out, tries the next candidate in its place.

`reconcile.py` calls this in its `act` step. A move that a disruption budget, an admission policy or an error refuses
takes no slot of `maxConcurrent`, no room and no budget of its node: the moves that were withheld because of it are
reviewed again, with what was begun so far. Each such try is a few requests, so their number is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from controller.bounds import Bounds
from controller.joint_move_guards import JOINT_GUARDS, concurrency
from controller.model import ClusterSnapshot, MemoryState, Move, MoveOutcome, WithheldMove
from controller.move_guards import ATTEMPTS, review_moves, units, withheld_by

MAX_FAILED_ATTEMPTS = 10
"""Moves (of whole workloads) that are tried in vain in one pass: each asks the API server three to eight times."""

_JOINT = frozenset(guard.__name__ for guard in JOINT_GUARDS)

Attempt = Callable[[Move], MoveOutcome]


@dataclass(frozen=True, slots=True)
class Attempted:
    """What became of the moves that were tried, in that order, and what was not tried, and why."""

    outcomes: tuple[MoveOutcome, ...]
    withheld: tuple[WithheldMove, ...]


@dataclass(frozen=True, slots=True)
class Candidates:
    """The moves of a pass after a review: those that are allowed, those that are withheld, and what both depend on."""

    allowed: tuple[Move, ...]
    withheld: tuple[WithheldMove, ...]
    snapshot: ClusterSnapshot
    memory: MemoryState
    bounds: Bounds

    @classmethod
    def of(cls, moves: Sequence[Move], snapshot: ClusterSnapshot, memory: MemoryState, bounds: Bounds) -> Candidates:
        """The moves that a policy asks for, reviewed."""
        return cls(*review_moves(moves, snapshot, memory, bounds), snapshot, memory, bounds)

    def attempt_each(self, attempt: Attempt) -> Attempted:
        """Try the allowed ones, and in the place of each that cannot be carried out the next one that may be."""
        pending, withheld = list(units(self.allowed, self.snapshot)), self.withheld
        outcomes: list[MoveOutcome] = []
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
        self, withheld: Sequence[WithheldMove], begun: Sequence[Move]
    ) -> tuple[tuple[Move, ...], tuple[WithheldMove, ...]]:
        """What was withheld for the sake of a move that could not be carried out may be allowed now.

        `begun`: also those that were allowed before and are yet to be tried.
        """
        again = [each.move for each in withheld if each.guard in _JOINT]
        allowed, still = review_moves(again, self.snapshot, self.memory, self.bounds, begun)
        return allowed, (*(each for each in withheld if each.guard not in _JOINT), *still)


def _attempt_unit(unit: Sequence[Move], attempt: Attempt) -> Iterator[MoveOutcome]:
    """The moves that are made together: where the first one cannot be carried out, none of the others is tried."""
    first = attempt(unit[0])
    yield first
    for move in unit[1:]:
        if first.takes_a_slot:
            yield attempt(move)
        else:
            yield MoveOutcome(move, first.result, first.detail)


def _put_off(pending: Sequence[Sequence[Move]], withheld: Sequence[WithheldMove]) -> tuple[WithheldMove, ...]:
    """With what was not tried any more: the pending moves, and those that are withheld for the sake of these alone."""
    if not pending:
        return tuple(withheld)
    why = f"{MAX_FAILED_ATTEMPTS} moves of this pass could not be carried out; its turn comes in the next pass"
    waiting = {each.move.job_uid for each in withheld if each.guard == concurrency.__name__}
    put_off = [move for unit in pending for move in unit]
    put_off += [each.move for each in withheld if each.move.job_uid in waiting]
    others = (each for each in withheld if each.move.job_uid not in waiting)
    return (*others, *(withheld_by(move, ATTEMPTS, why) for move in put_off))
