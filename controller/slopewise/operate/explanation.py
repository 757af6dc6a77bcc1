"""Explains one workload in sentences, from the status of its JobGrowth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text

from slopewise.crds.conditions import Condition, troubles
from slopewise.crds.history import Line
from slopewise.crds.job_growth import UNKNOWN, JobGrowthStatus
from slopewise.model.learning import MEANINGS
from slopewise.reports.wording import plain

RECENT = 5
"""Actions that are named; `slopewise history` lists ten."""


class Fact(NamedTuple):
    """One line: what it is about, and a sentence."""

    label: str
    text: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything about one workload."""

    name: str
    """`namespace/name`."""
    facts: tuple[Fact, ...]
    status: JobGrowthStatus

    def as_json(self) -> dict[str, Any]:
        """For `--output json`: the sentences, and the figures that they are made of."""
        status = self.status.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"pods", "move"})
        return {"job": self.name, "facts": [fact._asdict() for fact in self.facts], "status": status}


def explain(
    name: str,
    status: JobGrowthStatus,
    actions: Sequence[Line],
    *,
    guards: Iterable[Fact] = (),
    next_step: str | None = None,
) -> Explanation:
    """The explanation of a workload; `guards` and `next_step` where a record has them."""
    facts = (
        *_seen(status),
        *_decided(status),
        *guards,
        *_conditions(status.conditions),
        *_done(actions),
        *([] if next_step is None else [Fact("next", next_step)]),
    )
    return Explanation(name, facts, status)


def _seen(status: JobGrowthStatus) -> Iterator[Fact]:
    where = f" on {status.node}" if status.node else ""
    policy = f", managed by the policy {status.policy}" if status.policy else ", which no policy manages"
    yield Fact("job", f"{status.state or 'of unknown state'}{where}{policy}")
    if status.progress not in (None, UNKNOWN):
        left = "" if status.eta in (None, UNKNOWN) else f"; {status.eta} left at this pace"
        yield Fact("progress", f"{status.progress} of its planned steps{left}")
    if status.loss is not None:
        growth = "" if status.growth is None else f"; growth efficiency {status.growth:g}/s for a whole node of CPU"
        yield Fact("loss", f"{status.loss:g}{growth}")
    if status.cpu:
        accepted = status.cpu_accepted_millicores
        pending = "" if accepted in (None, status.cpu_millicores) else f" ({accepted}m accepted, not yet in effect)"
        yield Fact("CPU", f"{status.cpu} cores{pending}")
    if status.memory and set(status.memory) - set(f" /{UNKNOWN}"):
        reason = f": {status.memory_reason}" if status.memory_reason else ""
        yield Fact("memory", f"{status.memory} (used / request / limit){reason}")
    if status.promise not in (None, UNKNOWN):
        yield Fact("promise", str(status.promise))


def _decided(status: JobGrowthStatus) -> Iterator[Fact]:
    if status.job_class:
        meaning = MEANINGS.get(status.job_class)
        yield Fact("class", f"{status.job_class}: {meaning}" if meaning else status.job_class)
    if status.reason:
        yield Fact("decision", status.reason)


def _conditions(conditions: Sequence[Condition]) -> Iterator[Fact]:
    for each in troubles(conditions):
        since = each.last_transition_time.strftime("%Y-%m-%d %H:%M:%S")
        yield Fact("attention", f"{each.type} is {each.status} ({each.reason}) since {since}: {each.message}")


def _done(actions: Sequence[Line]) -> Iterator[Fact]:
    for line in actions[-RECENT:]:
        action = line.action
        detail = f": {action.detail}" if action.detail else ""
        yield Fact("done", f"{action.time:%Y-%m-%d %H:%M:%S} {action.action} {action.change}, {action.result}{detail}")


def rendered(explanation: Explanation) -> Table:
    """Two columns; foreign text is text and never markup."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    table.add_row(Text("job"), Text(plain(explanation.name)))
    shown = "job"
    for fact in explanation.facts:
        table.add_row(Text("" if fact.label == shown else fact.label), Text(plain(fact.text)))
        shown = fact.label
    return table
