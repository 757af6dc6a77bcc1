"""Whether anything may be changed at all: vetoes by the mode, by its share of the jobs, and by freezes.

The same three guards are asked about every kind of decision, under a name for each (`memory_paused`, `move_frozen`).
"""

from __future__ import annotations

from collections.abc import Mapping

from slopewise.guards.context import PassContext
from slopewise.guards.framework import Decided, Guard, routine
from slopewise.model import Decision, Migrate, Place, Resize, ResizeMemory, Stop, Veto, acts, in_canary

PREFIXES: Mapping[type[Decision], str] = {
    Resize: "", ResizeMemory: "memory_", Place: "move_", Migrate: "move_", Stop: "stop_",
}  # fmt: skip


@routine(*PREFIXES.values())
def paused(context: PassContext, decision: Decided) -> Decided | Veto:
    """Only modes Auto and Canary change anything; in others the default scheduler places arrivals."""
    mode = context.bounds.mode
    return decision if acts(mode) else Veto(f"mode is {mode}, and only Canary and Auto change anything")


@routine(*PREFIXES.values())
def canary(context: PassContext, decision: Decided) -> Decided | Veto:
    """Mode Canary changes a share of the jobs."""
    bounds = context.bounds
    if bounds.mode != "Canary" or in_canary(decision.job_uid, bounds.canary_ratio):
        return decision
    return Veto(f"mode is Canary, and the job is not in its share of {bounds.canary_ratio:.0%}")


@routine(PREFIXES[Resize], PREFIXES[ResizeMemory], PREFIXES[Stop])
def frozen(context: PassContext, decision: Decided) -> Decided | Veto:
    """Nothing is changed under a freeze, whatever its effect: no job leaves or enters what is frozen."""
    if not context.snapshot.freezes:
        return decision
    for namespace, *nodes in context.places(decision):
        if (freeze := context.snapshot.freezes.of(namespace, *nodes)) is not None:
            return Veto(freeze.message)
    return decision


PERMISSIONS: tuple[Guard[PassContext, Decision], ...] = (paused, canary, frozen)

_BY_MODE = frozenset(f"{prefix}{guard.__name__}" for prefix in PREFIXES.values() for guard in (paused, canary))


def permissions(decision: Decision) -> tuple[Guard[PassContext, Decision], ...]:
    """The guards of a decision. A job outside of the share has no change to roll back, so `canary` is not asked then.

    Leaving a mode restores (`feedback/restore.py`).
    """
    return (paused, frozen) if getattr(decision, "is_rollback", False) else PERMISSIONS


def permission_names(kind: type[Decision]) -> list[str]:
    """How `Withheld.guard` names them for this kind of decision."""
    return [f"{PREFIXES[kind]}{guard.__name__}" for guard in PERMISSIONS]


def is_by_mode(guard: str) -> bool:
    """Whether the guard of this name withholds because of the mode, so that its reason is the same for every job."""
    return guard in _BY_MODE
