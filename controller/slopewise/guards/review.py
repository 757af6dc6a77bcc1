"""The review of all decisions of a pass: what may be carried out, and what is withheld, with the guard and its reason.

What takes precedence is reviewed first: a job that is stopped is neither moved nor resized, and one that leaves its
node is not resized. Each decision meets the permissions, then the guards of its kind; last are the guards that see
decisions together (`JOINT_GUARDS` of moves, `node_capacity`). Another kind of decision costs one line in `STAGES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from slopewise.guards import at_target, memory, moves, resize
from slopewise.guards.context import PassContext
from slopewise.guards.framework import ATTEMPTS, ROUTINE, Decided, Guard, Refusal, Stage, routine, withheld_by
from slopewise.guards.move_budgets import JOINT_GUARDS
from slopewise.guards.permission import PREFIXES, permission_names, permissions
from slopewise.model import Decision, JobUid, Migrate, Move, Place, Resize, ResizeMemory, Stop, Veto, Withheld, only
from slopewise.model.decisions import D, Results


@routine()
def stopping(context: PassContext, decision: Decided) -> Decided | Veto:
    """A job that is being stopped is neither resized nor moved in the same pass."""
    ends = bool(context.ending) and JobUid.of(decision.job_uid).workload in context.ending
    return Veto("it is being stopped at its target") if ends else decision


@routine()
def moving(context: PassContext, decision: Decided) -> Decided | Veto:
    """A job that leaves its node gets its original CPU and memory where it goes."""
    node = context.leaving.get(decision.job_uid)
    return decision if node is None else Veto(f"goes to {node or 'where it fits'}")


PRECEDENCE: Mapping[type[Decision], tuple[Guard[PassContext, Any], ...]] = {
    Resize: (stopping, moving),
    ResizeMemory: (stopping, moving),
    Place: (stopping,),
    Migrate: (stopping,),
}
"""Of the kinds that give way to another one."""

STAGES: Mapping[type[Decision], Callable[[PassContext, Any], Iterable[Stage]]] = {
    Resize: resize.stages,
    ResizeMemory: memory.stages,
    Place: moves.stages,
    Migrate: moves.stages,
    Stop: at_target.stages,
}
"""The guards of each kind, with what they are given."""

_ORDER: tuple[tuple[type[Decision], ...], ...] = ((Stop,), (Place, Migrate), (Resize,), (ResizeMemory,))


_Stage = tuple[str, Iterable[Guard[Any, Any]], object]
"""The prefix of the guards' names, the guards, and what they are given."""


@dataclass(frozen=True, slots=True)
class Reviewed:
    """What may be carried out, and what is withheld; each kind in its order."""

    allowed: tuple[Decision, ...] = ()
    withheld: tuple[Withheld[Decision], ...] = ()

    def withheld_of(self, *kinds: type[D]) -> tuple[Withheld[D], ...]:
        """The withheld decisions of these kinds."""
        return Results(withheld=self.withheld).withheld_of(*kinds)


def review(decided: Sequence[Decision], context: PassContext) -> Reviewed:
    """All decisions of a pass, changed where a guard clamps them."""
    allowed: list[Decision] = []
    withheld: list[Withheld[Decision]] = []
    for kinds in _ORDER:
        for unit in _units([each for each in decided if isinstance(each, kinds)], context):
            verdict = _verdict(unit, context)
            if isinstance(verdict, list):
                withheld += verdict
                continue
            for each in verdict:
                context.allow(each)
            allowed += verdict
    fitting, over = resize.node_capacity(only(allowed, Resize), context.snapshot)
    others = (each for each in allowed if not isinstance(each, Resize))
    return Reviewed((*fitting, *others), tuple(sorted([*withheld, *over], key=_place)))


def verdicts(decision: Decided, context: PassContext) -> list[tuple[str, Decided | Veto]]:
    """What each guard that sees a decision alone says of it, by the guard's name, up to the first veto."""
    said: list[tuple[str, Any]] = []
    _judge(decision, _stages(decision, context), said)
    return said


def _judge(
    decision: Decision, stages: Iterable[_Stage], said: list[tuple[str, Any]] | None = None
) -> Decision | Refusal:
    """The decision after all guards, or the first veto; `said` gets what each says."""
    for prefix, guards, inputs in stages:
        for guard in guards:
            verdict = guard(inputs, decision)
            if said is not None:
                said.append((f"{prefix}{guard.__name__}", verdict))
            if verdict is decision:  # as nearly always
                continue
            if isinstance(verdict, Veto):
                return Refusal(f"{prefix}{guard.__name__}", verdict.reason)
            decision = verdict
    return decision


def _stages(decision: Decision, context: PassContext) -> Iterator[_Stage]:
    """The permissions and the guards of the kind, with the prefix of their names and their context."""
    kind = type(decision)
    yield PREFIXES[kind], permissions(decision), context
    for guards, inputs in STAGES[kind](context, decision):
        yield "", guards, inputs


def _units(found: Sequence[Decision], context: PassContext) -> Sequence[tuple[Decision, ...]]:
    """What is carried out together or not at all: the moves of one workload's pods, and each other decision alone."""
    moved: list[Move] = only(found, Place, Migrate)
    if not moved:
        return [(each,) for each in found]
    context.going = {uid: job.node for uid, job in context.jobs.items()} | {move.job_uid: move.node for move in moved}
    return moves.units(moved, context.snapshot)


def _verdict(unit: tuple[Decision, ...], context: PassContext) -> tuple[Decision, ...] | list[Withheld[Decision]]:
    """The unit after its guards, or all of it with the reasons why it is withheld."""
    if not isinstance(unit[0], (Place, Migrate)):  # a union would be built at each call
        verdict = _alone(unit[0], context)
        return [withheld_by(unit[0], verdict)] if isinstance(verdict, Refusal) else (verdict,)
    judged = {each.job_uid: _alone(each, context) for each in unit}
    refused = {uid: verdict for uid, verdict in judged.items() if isinstance(verdict, Refusal)}
    if refused:
        uid, (_, reason) = next(iter(refused.items()))
        whose = context.jobs[uid].name if uid in context.jobs else uid
        others = Refusal(moves.all_or_nothing.__name__, f"moves whole or not at all, and {whose} may not: {reason}")
        return [withheld_by(each, refused.get(each.job_uid, others)) for each in unit]
    moved = tuple(verdict for verdict in judged.values() if isinstance(verdict, Place | Migrate))
    together = moves.together(moved, context)
    return [withheld_by(each, together) for each in unit] if isinstance(together, Refusal) else together


def _alone(decision: Decision, context: PassContext) -> Decision | Refusal:
    first = ("", PRECEDENCE.get(type(decision), ()), context)
    return _judge(decision, chain((first,), _stages(decision, context)))


_KINDS: Mapping[type[Decision], int] = {Resize: 0, ResizeMemory: 1, Place: 2, Migrate: 2, Stop: 3}
_FIRST = {moving.__name__: 0, stopping.__name__: 1}


def _place(withheld: Withheld[Decision]) -> tuple[int, int]:
    """By kind, then first what gives way to another decision: the order in which a record has them."""
    return _KINDS[type(withheld.decision)], _FIRST.get(withheld.guard, len(_FIRST))


def guard_names() -> list[str]:
    """All guards in their order, as `Withheld.guard` names them."""
    resizing = [*permission_names(Resize), *_names(resize.GUARDS), resize.CAPACITY]
    moved = [*permission_names(Migrate), *_names(moves.MOVE_GUARDS, moves.MIGRATION_GUARDS, JOINT_GUARDS)]
    stopped = [*permission_names(Stop), *_names(at_target.STOP_GUARDS)]
    return [moving.__name__, *resizing, *moved, ATTEMPTS, stopping.__name__, *stopped]


def is_routine(guard: str) -> bool:
    """Whether the guard of this name holds decisions back in every other pass, and needs no action."""
    return guard in ROUTINE


def _names(*lists: Iterable[Guard[Any, Any]]) -> list[str]:
    return [guard.__name__ for guards in lists for guard in guards]
