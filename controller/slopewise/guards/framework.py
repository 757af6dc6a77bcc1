"""What a guard is: a pure function that lets a decision through, changes it or vetoes it, in a list with others.

A guard says itself whether it is routine. Such a guard holds decisions back in every other pass and needs no action,
so no event reports it; the decision record and the metric of withheld decisions have all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from slopewise.model import Decision, Veto, Withheld

C = TypeVar("C")
D = TypeVar("D")
G = TypeVar("G", bound=Callable[..., Any])
Decided = TypeVar("Decided", bound=Decision)
Guard = Callable[[C, D], D | Veto]
"""From a context and a decision to the decision, a smaller one, or a veto."""

Stage = tuple[Iterable[Guard[Any, Any]], object]
"""Guards in their order, and the context that they are given."""

ATTEMPTS = "attempts"
"""Not a function: it withholds moves after too many failed attempts in a pass (`move_attempts.py`)."""

ROUTINE: set[str] = {ATTEMPTS}
"""The names of the routine guards of all modules that are imported; `review.is_routine` asks them."""


class Refusal(NamedTuple):
    """A veto and the name of the guard that gave it."""

    guard: str
    reason: str


def routine(*prefixes: str) -> Callable[[G], G]:
    """Marks a guard as routine, under its own name or under its name with each of these prefixes."""

    def mark(guard: G) -> G:
        ROUTINE.update(f"{prefix}{guard.__name__}" for prefix in prefixes or ("",))
        return guard

    return mark


def withheld_by(decision: Decided, refusal: Refusal) -> Withheld[Decided]:
    """A decision that a guard withholds."""
    return Withheld(decision, refusal.guard, f"{refusal.guard}: {refusal.reason}")
