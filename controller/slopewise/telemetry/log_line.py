"""The log line of a pass: its figures, changes and moves; no line while nothing differs from the last one.

A policy over 5,000 pods may run a pass every two seconds. Attempted changes are in the line of their pass, withheld
ones only when they are new, and an unchanged line is left out until the policy's interval has passed.
"""

from __future__ import annotations

import re
from collections import Counter as Tally
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from slopewise.guards.permission import is_by_mode
from slopewise.guards.review import stopping
from slopewise.model import Decision, Migrate, Outcome, PassReport, Place, Resize, ResizeMemory, Stop, Withheld
from slopewise.text import mebibytes

MAX_NAMED = 20
"""Changes that a line names one by one: 5,000 of them are 700 KB."""

_ON_TIME_RATIO = 0.9
"""A pass that comes 19.9 s after the one before is on time for an interval of 20 s."""

Facts = dict[str, object]
_Identity = tuple[str, str, str, int | None]
"""The kind of the decision, the job, the guard, and where it counts the figure."""


class PassLines:
    """The lines of one policy; compares each with the last one."""

    def __init__(self, interval_seconds: float) -> None:
        self._interval_seconds = interval_seconds
        self._last: tuple[object, ...] = ()
        self._reported_at_seconds = float("-inf")
        self._withheld: frozenset[_Identity] = frozenset()

    def facts(self, report: PassReport) -> Facts | None:
        """The fields of the line; None: nothing new."""
        found = report.results
        resizes = _Entries(report, "resize", found.of(Resize), found.withheld_of(Resize))
        memory = _Entries(report, "memory", found.of(ResizeMemory), found.withheld_of(ResizeMemory))
        moves = _Entries(report, "move", found.of(Place, Migrate), found.withheld_of(Place, Migrate))
        stops = _Entries(report, "stop", found.of(Stop), found.withheld_of(Stop))
        kinds = (resizes, memory, moves, stops)
        withheld = frozenset(chain(*(kind.identities() for kind in kinds)))
        facts_seen = (without_figures(report.held or ""), withheld, _jobs(report))
        tried = found.events or found.outcomes
        quiet = facts_seen == self._last and not tried
        if quiet and report.taken_at_seconds - self._reported_at_seconds < _ON_TIME_RATIO * self._interval_seconds:
            return None
        self._last, self._reported_at_seconds = facts_seen, report.taken_at_seconds
        if report.held:
            return {"reason": report.held}
        known, self._withheld = self._withheld, withheld
        changes = [*resizes.failures_first(), *resizes.new(known), *memory.failures_first(), *memory.new(known)]
        moved = [*moves.tried(), *_move_events(report), *moves.new(known)]
        stopped = [*stops.tried(), *stops.new(known)]
        of_stops = {"stops": _bounded(stopped)} if stopped else {}
        return _figures(report) | {"changes": _bounded(changes), "moves": _bounded(moved)} | of_stops


def without_figures(text: str) -> str:
    """The same for texts that differ in their figures alone."""
    return re.sub(r"\d+", "#", text)


def withheld_by_guard(report: PassReport) -> dict[str, int]:
    """How many decisions each guard withheld."""
    return dict(Tally(each.guard for each in report.results.withheld))


def kind_of(move: Decision) -> str:
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
    }


def _wanted(report: PassReport) -> int:
    """How many changes of CPU and memory, but for those of jobs that are stopped."""
    results = report.results
    of_memory = len(results.of(ResizeMemory)) + len(results.withheld_of(ResizeMemory))
    of_stopped = sum(each.guard == stopping.__name__ for each in results.withheld_of(Resize, ResizeMemory))
    return of_memory - of_stopped + (len(report.decisions.resizes) if report.decisions else 0)


@dataclass(frozen=True, slots=True)
class _Entries:
    """The entries of one kind of decision: every attempt, and every withheld one that the last line does not have."""

    report: PassReport
    kind: str
    outcomes: Sequence[Outcome[Decision]]
    withheld: Sequence[Withheld[Decision]]

    def identities(self) -> Iterator[_Identity]:
        """What identifies each withheld decision; where a mode withholds a resize, with its target."""
        return map(self._identity, self.withheld)

    def tried(self) -> list[str]:
        """Every attempt, its outcome and reason."""
        return [self._tried(each) for each in self.outcomes]

    def failures_first(self) -> list[str]:
        """As `tried`, with those that were not applied before the others."""
        return [self._tried(each) for each in sorted(self.outcomes, key=lambda outcome: outcome.result == "applied")]

    def new(self, known: frozenset[_Identity]) -> list[str]:
        """Every decision that a guard withholds, and did not in the last line."""
        return [self._withheld(each) for each in self.withheld if self._identity(each) not in known]

    def _identity(self, withheld: Withheld[Decision]) -> _Identity:
        decision, guard = withheld.decision, withheld.guard
        target = decision.to_millicores if isinstance(decision, Resize) and is_by_mode(guard) else None
        return self.kind, decision.job_uid, guard, target

    def _tried(self, outcome: Outcome[Decision]) -> str:
        return f"{self._named(outcome.decision)} {outcome.result}: {outcome.detail or outcome.decision.reason}"

    def _withheld(self, withheld: Withheld[Decision]) -> str:
        # The mode's reason is the same for every job, so the policy's is added.
        wanted = isinstance(withheld.decision, Resize | ResizeMemory) and is_by_mode(withheld.guard)
        desired = f"; {withheld.decision.reason}" if wanted else ""
        return f"{self._named(withheld.decision)} withheld: {withheld.reason}{desired}"

    def _named(self, decision: Decision) -> str:
        name = self.report.by_job[decision.job_uid].name
        match decision:
            case Resize():
                return f"{name} {decision.from_millicores}m to {decision.to_millicores}m"
            case ResizeMemory():
                before, after = mebibytes(decision.from_bytes), mebibytes(decision.to_bytes)
                return f"{name} memory {decision.bound} {before} to {after}"
            case Place() | Migrate():
                return f"{kind_of(decision)} {name} on {decision.node}"
            case Stop():
                return f"stop {name}"


def _move_events(report: PassReport) -> Iterator[str]:
    """New stages of earlier migrations; begun ones are among the attempts."""
    for each in report.results.events:
        if each.stage != "begun":
            yield f"{report.by_job[each.job_uid].name} {each.message}"


def _bounded(texts: Sequence[str]) -> list[str]:
    more = len(texts) - MAX_NAMED
    return [*texts[:MAX_NAMED], *([f"and {more} more"] if more > 0 else [])]
