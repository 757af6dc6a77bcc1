"""The log line of a pass: what is in it, and whether it says anything that the last one did not.

Before it: `telemetry.py`, with the report. A policy over 5,000 pods may pass every two seconds while pods come and go,
and whoever reads the log at night looks for what was done and what is in the way: so changes that were tried are in the
line of their pass, those that were withheld only when that is news, and a line that would say nothing new is left out
until the policy's interval has gone by.
"""

from __future__ import annotations

import re
from collections import Counter as Tally
from collections.abc import Iterator, Mapping, Sequence

from controller.model import Arrival, Job, Move, PassReport, Place, Resize, Withheld

MOST_NAMED = 20
"""Changes that a line names one by one: 5,000 of them are 700 KB."""

_ON_TIME_RATIO = 0.9
"""A pass that comes 19.9 s after the one before is on time for an interval of 20 s."""

_MODE_GUARDS = ("paused", "canary")
"""These say the same of every job; what the policy wants, and why, says more."""

Facts = dict[str, object]
_Identity = tuple[str, str, int | None]
"""The job, the guard, and where it counts the figure."""


class PassLines:
    """Of one policy. Remembers what its last line said."""

    def __init__(self, interval_seconds: float) -> None:
        self._interval_seconds = interval_seconds
        self._last: tuple[object, ...] = ()
        self._told_at_seconds = float("-inf")
        self._withheld: frozenset[_Identity] = frozenset()
        self._moves_withheld: frozenset[tuple[str, str]] = frozenset()

    def facts(self, report: PassReport) -> Facts | None:
        """What the line says; None: nothing that is not known already."""
        withheld = frozenset(_identity(each) for each in report.withheld)
        moves_withheld = frozenset((each.move.job_uid, each.guard) for each in report.moves_withheld)
        said = (re.sub(r"\d+", "#", report.held or ""), withheld, moves_withheld, _jobs(report))
        quiet = said == self._last and not (report.outcomes or report.moves or report.moves_told)
        if quiet and report.taken_at_seconds - self._told_at_seconds < _ON_TIME_RATIO * self._interval_seconds:
            return None
        self._last, self._told_at_seconds = said, report.taken_at_seconds
        if report.held:
            return {"reason": report.held}
        changes = [*_tried(report), *_withheld(report, self._withheld)]
        moves = [*_moves_tried(report), *_moves_told(report), *_moves_withheld(report, self._moves_withheld)]
        self._withheld, self._moves_withheld = withheld, moves_withheld
        return _figures(report) | {"changes": _bounded(changes), "moves": _bounded(moves)}


def withheld_by_guard(report: PassReport) -> dict[str, int]:
    """How often each guard said no, to resizes and to moves."""
    guards_of_moves = [each.guard for each in report.moves_withheld]
    return dict(Tally([*(each.guard for each in report.withheld), *guards_of_moves]))


def kind_of(move: Move) -> str:
    """In one word."""
    return "place" if isinstance(move, Place) else "migrate"


def _jobs(report: PassReport) -> int:
    return len(report.snapshot.jobs) if report.snapshot else 0


def _figures(report: PassReport) -> Facts:
    return {
        "jobs": _jobs(report),
        "wanted": len(report.decisions.resizes) if report.decisions else 0,
        "applied": report.count("applied"),
        "deferred": report.count("deferred"),
        "failed": report.count("failed") + report.count("infeasible"),
        "withheld": withheld_by_guard(report),
    }


def _names(report: PassReport) -> Mapping[str, str]:
    """Of each job, where a person finds it: `namespace/name`."""
    if report.snapshot is None:
        return {}
    there: tuple[Job | Arrival, ...] = (*report.snapshot.jobs, *report.snapshot.waiting)
    absent = {each.job_uid: each.workload for each in report.snapshot.absent if each.workload}
    return absent | {job.uid: f"{job.namespace}/{job.name}" for job in there}


def _tried(report: PassReport) -> Iterator[str]:
    """Every change that was tried: which, what became of it, and why. What went wrong comes first."""
    names = _names(report) if report.outcomes else {}
    for each in sorted(report.outcomes, key=lambda outcome: outcome.result == "applied"):
        yield _change(names, each.resize, each.result, each.detail or each.resize.reason)


def _withheld(report: PassReport, known: frozenset[_Identity]) -> Iterator[str]:
    """Every change that a guard withholds, and did not in the last line."""
    fresh = [each for each in report.withheld if _identity(each) not in known]
    names = _names(report) if fresh else {}
    for each in fresh:
        wish = f"; {each.resize.reason}" if each.guard in _MODE_GUARDS else ""
        yield _change(names, each.resize, "withheld", f"{each.reason}{wish}")


def _identity(withheld: Withheld) -> _Identity:
    """What makes it the same as in the last line. Of a mode that changes nothing each figure that is wanted is news."""
    wanted = withheld.resize.to_millicores if withheld.guard in _MODE_GUARDS else None
    return withheld.resize.job_uid, withheld.guard, wanted


def _change(names: Mapping[str, str], resize: Resize, became: str, why: str) -> str:
    name = names.get(resize.job_uid, resize.job_uid)
    return f"{name} {resize.from_millicores}m to {resize.to_millicores}m {became}: {why}"


def _moves_tried(report: PassReport) -> Iterator[str]:
    """Every placement and migration that was tried: which, what became of it, and why."""
    names = _names(report) if report.moves else {}
    for each in report.moves:
        yield _move(names, each.move, each.result, each.detail or each.move.reason)


def _moves_told(report: PassReport) -> Iterator[str]:
    """What became known of earlier migrations; that one was begun is told with the others that were tried."""
    later = [each for each in report.moves_told if each.stage != "begun"]
    names = _names(report) if later else {}
    for each in later:
        yield f"{names.get(each.job_uid, each.job_uid)} {each.sentence}"


def _moves_withheld(report: PassReport, known: frozenset[tuple[str, str]]) -> Iterator[str]:
    """Every placement and migration that a guard withholds, and did not in the last line."""
    fresh = [each for each in report.moves_withheld if (each.move.job_uid, each.guard) not in known]
    names = _names(report) if fresh else {}
    for each in fresh:
        yield _move(names, each.move, "withheld", each.reason)


def _move(names: Mapping[str, str], move: Move, became: str, why: str) -> str:
    return f"{kind_of(move)} {names.get(move.job_uid, move.job_uid)} on {move.node} {became}: {why}"


def _bounded(texts: Sequence[str]) -> list[str]:
    more = len(texts) - MOST_NAMED
    return [*texts[:MOST_NAMED], *([f"and {more} more"] if more > 0 else [])]
