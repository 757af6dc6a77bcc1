"""The log line of a pass: its figures, changes and moves; no line while nothing differs from the last one.

A policy over 5,000 pods may run a pass every two seconds. Attempted changes are in the line of their pass, withheld
ones only when they are new, and an unchanged line is left out until the policy's interval has passed.
"""

from __future__ import annotations

import re
from collections import Counter as Tally
from collections.abc import Iterator, Sequence

from slopewise.model import Move, PassReport, Place, Resize, ResizeMemory, Stop, Withheld
from slopewise.text import mebibytes

MAX_NAMED = 20
"""Changes that a line names one by one: 5,000 of them are 700 KB."""

_ON_TIME_RATIO = 0.9
"""A pass that comes 19.9 s after the one before is on time for an interval of 20 s."""

_MODE_GUARDS = ("paused", "canary", "memory_paused", "memory_canary")
"""Their reasons are the same for every job; the policy's is added."""

Facts = dict[str, object]
_Identity = tuple[str, str, int | None]
"""The job, the guard, and where it counts the figure."""


class PassLines:
    """The lines of one policy; compares each with the last one."""

    def __init__(self, interval_seconds: float) -> None:
        self._interval_seconds = interval_seconds
        self._last: tuple[object, ...] = ()
        self._reported_at_seconds = float("-inf")
        self._withheld: frozenset[_Identity] = frozenset()
        self._memory_withheld: frozenset[tuple[str, str]] = frozenset()
        self._moves_withheld: frozenset[tuple[str, str]] = frozenset()
        self._held: frozenset[str] = frozenset()
        self._stops_withheld: frozenset[tuple[str, str]] = frozenset()

    def facts(self, report: PassReport) -> Facts | None:
        """The fields of the line; None: nothing new."""
        withheld = frozenset(_identity(each) for each in report.withheld)
        moves_withheld = frozenset((each.decision.job_uid, each.guard) for each in report.moves_withheld)
        stops_withheld = frozenset((each.decision.job_uid, each.guard) for each in report.stops_withheld)
        memory_withheld = frozenset((each.decision.job_uid, each.guard) for each in report.memory_withheld)
        held_back = frozenset(report.held_back)
        held = re.sub(r"\d+", "#", report.held or "")
        facts_seen = (held, withheld, moves_withheld, stops_withheld, memory_withheld, held_back, _jobs(report))
        tried = report.outcomes or report.memory_outcomes or report.moves or report.move_events or report.stops
        quiet = facts_seen == self._last and not tried
        if quiet and report.taken_at_seconds - self._reported_at_seconds < _ON_TIME_RATIO * self._interval_seconds:
            return None
        self._last, self._reported_at_seconds = facts_seen, report.taken_at_seconds
        if report.held:
            return {"reason": report.held}
        changes = [*_tried(report), *_withheld(report, self._withheld), *_of_memory(report, self._memory_withheld)]
        moves = [*_moves_tried(report), *_move_events(report), *_moves_withheld(report, self._moves_withheld)]
        moves += _held_back(report, self._held)
        stops = [*_stops_tried(report), *_stops_withheld(report, self._stops_withheld)]
        self._withheld, self._moves_withheld, self._held = withheld, moves_withheld, held_back
        self._stops_withheld, self._memory_withheld = stops_withheld, memory_withheld
        told = {"stops": _bounded(stops)} if stops else {}
        return _figures(report) | {"changes": _bounded(changes), "moves": _bounded(moves)} | told


def withheld_by_guard(report: PassReport) -> dict[str, int]:
    """How many resizes, changes of memory, moves and stops each guard withheld."""
    others = [each.guard for each in (*report.moves_withheld, *report.memory_withheld, *report.stops_withheld)]
    return dict(Tally([*(each.guard for each in report.withheld), *others]))


def kind_of(move: Move) -> str:
    """`place` or `migrate`."""
    return "place" if isinstance(move, Place) else "migrate"


def _jobs(report: PassReport) -> int:
    return len(report.snapshot.jobs) if report.snapshot else 0


def _figures(report: PassReport) -> Facts:
    return {
        "jobs": _jobs(report),
        "wanted": _wanted(report),
        "applied": report.count("applied"),
        "deferred": report.count("deferred"),
        "failed": report.count("failed") + report.count("infeasible"),
        "withheld": withheld_by_guard(report),
        **({"held": len(report.held_back)} if report.held_back else {}),
    }


def _wanted(report: PassReport) -> int:
    of_memory = len(report.memory_outcomes) + len(report.memory_withheld)
    return of_memory + (len(report.decisions.resizes) if report.decisions else 0)


def _of_memory(report: PassReport, known: frozenset[tuple[str, str]]) -> Iterator[str]:
    """Every attempted change of memory, and every one that a guard withholds, and did not in the last line."""
    for each in sorted(report.memory_outcomes, key=lambda outcome: outcome.result == "applied"):
        yield _memory_change(report, each.decision, each.result, each.detail or each.decision.reason)
    for withheld in report.memory_withheld:
        if (withheld.decision.job_uid, withheld.guard) not in known:
            desired = f"; {withheld.decision.reason}" if withheld.guard in _MODE_GUARDS else ""
            yield _memory_change(report, withheld.decision, "withheld", f"{withheld.reason}{desired}")


def _memory_change(report: PassReport, resize: ResizeMemory, result: str, reason: str) -> str:
    name, before, after = report.by_job[resize.job_uid].name, mebibytes(resize.from_bytes), mebibytes(resize.to_bytes)
    return f"{name} memory {resize.bound} {before} to {after} {result}: {reason}"


def _tried(report: PassReport) -> Iterator[str]:
    """Every attempted resize, its outcome and reason; failures first."""
    for each in sorted(report.outcomes, key=lambda outcome: outcome.result == "applied"):
        yield _change(report, each.decision, each.result, each.detail or each.decision.reason)


def _withheld(report: PassReport, known: frozenset[_Identity]) -> Iterator[str]:
    """Every change that a guard withholds, and did not in the last line."""
    for each in report.withheld:
        if _identity(each) in known:
            continue
        desired = f"; {each.decision.reason}" if each.guard in _MODE_GUARDS else ""
        yield _change(report, each.decision, "withheld", f"{each.reason}{desired}")


def _identity(withheld: Withheld[Resize]) -> _Identity:
    """What identifies a withheld resize; where a mode withholds it, with its target."""
    wanted = withheld.decision.to_millicores if withheld.guard in _MODE_GUARDS else None
    return withheld.decision.job_uid, withheld.guard, wanted


def _change(report: PassReport, resize: Resize, result: str, reason: str) -> str:
    name = report.by_job[resize.job_uid].name
    return f"{name} {resize.from_millicores}m to {resize.to_millicores}m {result}: {reason}"


def _moves_tried(report: PassReport) -> Iterator[str]:
    """Every attempted placement and migration, its outcome and reason."""
    for each in report.moves:
        yield _move(report, each.decision, each.result, each.detail or each.decision.reason)


def _move_events(report: PassReport) -> Iterator[str]:
    """New stages of earlier migrations; begun ones are among the attempts."""
    for each in report.move_events:
        if each.stage != "begun":
            yield f"{report.by_job[each.job_uid].name} {each.message}"


def _moves_withheld(report: PassReport, known: frozenset[tuple[str, str]]) -> Iterator[str]:
    """Every placement and migration that a guard withholds, and did not in the last line."""
    for each in report.moves_withheld:
        if (each.decision.job_uid, each.guard) not in known:
            yield _move(report, each.decision, "withheld", each.reason)


def _held_back(report: PassReport, known: frozenset[str]) -> Iterator[str]:
    """Every arrival that is held back, and was not in the last line."""
    for uid, hold in report.held_back.items():
        if uid not in known:
            yield f"hold {report.by_job[uid].name}: {hold.reason}"


def _stops_tried(report: PassReport) -> Iterator[str]:
    """Every attempted stop of a job at its target, its outcome and reason."""
    for each in report.stops:
        yield _stop(report, each.decision, each.result, each.detail or each.decision.reason)


def _stops_withheld(report: PassReport, known: frozenset[tuple[str, str]]) -> Iterator[str]:
    """Every stop that a guard withholds, and did not in the last line."""
    for each in report.stops_withheld:
        if (each.decision.job_uid, each.guard) not in known:
            yield _stop(report, each.decision, "withheld", each.reason)


def _stop(report: PassReport, stop: Stop, result: str, reason: str) -> str:
    return f"stop {report.by_job[stop.job_uid].name} {result}: {reason}"


def _move(report: PassReport, move: Move, result: str, reason: str) -> str:
    return f"{kind_of(move)} {report.by_job[move.job_uid].name} on {move.node} {result}: {reason}"


def _bounded(texts: Sequence[str]) -> list[str]:
    more = len(texts) - MAX_NAMED
    return [*texts[:MAX_NAMED], *([f"and {more} more"] if more > 0 else [])]
