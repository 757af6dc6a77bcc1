"""Lists the actions on jobs from a decision record, for `slopewise history --record`; no pass is run again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

from slopewise.crds import history
from slopewise.crds.history import Figures, Line
from slopewise.crds.job_growth import Action
from slopewise.decision_record.lines import Decided, Inputs
from slopewise.decision_record.reader import Announce, RecordedPass, read
from slopewise.errors import UsageError
from slopewise.model import (
    Arrival,
    CpuControl,
    Job,
    MemoryBound,
    Migrate,
    Outcome,
    OutcomeResult,
    Place,
    Resize,
    ResizeMemory,
    Stop,
)
from slopewise.operate.recorded import unknown_job

WITHHELD, MILLICORES = "withheld", "millicores"


def history_recorded(path: Path, job: str | None, announce: Announce, *, withheld: bool = False) -> list[Line]:
    """Every action of a record, oldest first, or those on the jobs named `job` (`NAME` or `NAMESPACE/NAME`).

    What is tried again with the same result is there once, as in a JobGrowth. `withheld`: also what guards withheld.
    UsageError where the record never saw such a job.
    """
    lines: list[Line] = []
    last: dict[str, Action] = {}
    names: dict[str, None] = {}
    for each in read(path, announce):
        for line, uid in _lines(each, names):
            if line.action.result == WITHHELD and not withheld:
                continue
            if job not in (None, line.workload, f"{line.namespace}/{line.workload}"):
                continue
            before = last.get(uid)
            if before is None or line.action.result == "applied" or not history.is_repeated(before, line.action):
                lines.append(line)
            last[uid] = line.action
    if job is not None and not any(job in (name, name.partition("/")[2]) for name in names):
        raise UsageError(f"history: {unknown_job(job, list(names))} ({path})")
    return lines


def _lines(one: RecordedPass, names: dict[str, None]) -> Iterator[tuple[Line, str]]:
    """The actions of a pass, with the uids of their jobs; the names of all jobs of the pass go into `names`."""
    inputs = one.recorded.inputs
    if inputs is None:
        return
    seen: tuple[Job | Arrival, ...] = (*inputs.snapshot.jobs, *inputs.snapshot.waiting)
    known = {each.uid: (each.namespace, each.name) for each in seen}
    names |= {f"{each.namespace}/{each.name}": None for each in seen}
    document = one.settings.document
    policy = str((document.get("metadata") or {}).get("name", ""))
    for decided in one.recorded.result.decided:
        action, unit = _action(decided, inputs, _control(document))
        figures = Figures(policy, decided.node, unit, decided.before, decided.after, decided.guard or "")
        namespace, name = known.get(decided.job, ("", decided.name))
        yield Line(namespace, name, action, figures), decided.job


def _control(document: dict[str, object]) -> CpuControl:
    spec = document.get("spec")
    resources = spec.get("resources") if isinstance(spec, dict) else None
    return "limits" if isinstance(resources, dict) and resources.get("control") == "limits" else "requests"


def _action(decided: Decided, inputs: Inputs, control: CpuControl) -> tuple[Action, str]:
    """In the words of a JobGrowth's history, and the unit of its amounts."""
    action, unit = _tried(decided, inputs, control)
    return (action.model_copy(update={"result": WITHHELD}) if decided.guard else action), unit


def _tried(decided: Decided, inputs: Inputs, control: CpuControl) -> tuple[Action, str]:
    """As if it had been tried; what a guard withheld has the guard's reason as its detail."""
    now, uid, node, reason = inputs.snapshot.taken_at_seconds, decided.job, decided.node, decided.reason
    result, detail = cast("OutcomeResult", decided.result or "deferred"), decided.withheld or decided.detail
    before, after = decided.before or 0, decided.after or 0
    match decided.action:
        case "resize":
            cpu = Resize(uid, node, control, before, after, reason)
            return history.resized(Outcome(cpu, result, detail), now), MILLICORES
        case "memory":
            memory = ResizeMemory(uid, node, _bound(inputs, uid, before), before, after, reason)
            return history.resized(Outcome(memory, result, detail), now), "bytes"
        case "place" | "migrate":
            move = Place(uid, node, reason) if decided.action == "place" else _migrate(inputs, decided)
            return history.moved(Outcome(move, result, detail), now), "" if decided.after is None else MILLICORES
        case _:
            return history.stopped(Outcome(Stop(uid, node, reason), result, detail), now), ""


def _migrate(inputs: Inputs, decided: Decided) -> Migrate:
    from_node = next((each.node for each in inputs.snapshot.jobs if each.uid == decided.job), "")
    return Migrate(decided.job, from_node, decided.node, decided.reason)


def _bound(inputs: Inputs, uid: str, before: int) -> MemoryBound:
    """Which of a job's two amounts was changed: a record has only how much it was."""
    memory = next((each.memory for each in inputs.snapshot.jobs if each.uid == uid), None)
    return "limit" if memory is not None and memory.of("request") != before == memory.of("limit") else "request"
