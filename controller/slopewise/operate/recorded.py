"""Explains a job from a decision record, as of its last pass or one at a given time, and lists the actions on jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from slopewise.crds import history
from slopewise.crds.growth_status import running_status, view_of
from slopewise.crds.history import Figures, Line
from slopewise.crds.job_growth import Action, JobGrowthStatus
from slopewise.decision_record.lines import Decided, Inputs
from slopewise.decision_record.reader import Announce, RecordedPass, read
from slopewise.decision_record.replay import ReplayedPass, replay
from slopewise.errors import UsageError
from slopewise.guards.context import PassContext
from slopewise.guards.review import verdicts
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
    Veto,
)
from slopewise.operate.explanation import Explanation, Fact, explain
from slopewise.text import duration, unknown_name


@dataclass(slots=True)
class _Followed:
    """A job over the passes of a record."""

    last: ReplayedPass | None = None
    job: Job | None = None
    status: JobGrowthStatus = field(default_factory=JobGrowthStatus)
    actions: tuple[Action, ...] = ()
    newest: ReplayedPass | None = None
    """The last pass of the record, also without the job."""
    names: dict[str, None] = field(default_factory=dict)
    """Of all jobs of the record."""

    def add(self, again: ReplayedPass, name: str) -> None:
        """One more pass."""
        self.newest = again
        for job in again.snapshot.jobs:
            full = f"{job.namespace}/{job.name}"
            self.names[full] = None
            if name in (job.name, full):
                self._see(again, job)

    def _see(self, again: ReplayedPass, job: Job) -> None:
        spec = again.document.spec
        view = view_of(
            again.report, policy=again.document.metadata.name, mode=spec.mode, control=spec.resources.control,
            memory=spec.resources.memory,
        )  # fmt: skip
        if view is None:  # a policy that failed decided nothing
            return
        self.last, self.job = again, job
        self.status = running_status([job], view, self.status)
        for action in history.actions_of(again.report, job.uid):
            self.actions = history.appended(self.actions, action)


def explain_recorded(path: Path, name: str, at_seconds: float | None, announce: Announce) -> Explanation:
    """A job as of the last pass that saw it, up to `at_seconds`; UsageError for one that the record never saw."""
    followed = _Followed()
    for again in replay(read(path, announce)):
        if at_seconds is not None and again.snapshot.taken_at_seconds > at_seconds:
            break
        followed.add(again, name)
    last, job = followed.last, followed.job
    if last is None or job is None or followed.newest is None:
        raise UsageError(f"explain: {unknown_job(name, list(followed.names))} ({path})")
    full = f"{job.namespace}/{job.name}"
    lines = [Line(job.namespace, job.name, action) for action in followed.actions]
    return explain(
        full, followed.status, lines, guards=list(_guards(last, job)), next_step=_next(last, followed.newest, job)
    )


def unknown_job(name: str, names: list[str]) -> str:
    """Why a record has no such job; `names`: those that it has, as `namespace/name`."""
    if not names:
        return f"there is no job {name!r}; the record has seen none up to then."
    return unknown_name("job", name, names if "/" in name else [each.partition("/")[2] for each in names])


def _guards(again: ReplayedPass, job: Job) -> Iterator[Fact]:
    """The decided resize, and what each guard said of it."""
    decisions, memory = again.report.decisions, again.guarded
    resize = next((each for each in decisions.resizes if each.job_uid == job.uid), None) if decisions else None
    if resize is None or memory is None:
        yield Fact("guards", "no resize was decided, so none was checked")
        return
    yield Fact("resize", f"{resize.control} {resize.from_millicores}m to {resize.to_millicores}m: {resize.reason}")
    passed: list[str] = []
    before = resize
    for guard, verdict in verdicts(resize, PassContext(again.snapshot, memory, again.bounds)):
        if isinstance(verdict, Veto):
            yield from _passed(passed)
            yield Fact("guards", f"{guard} withholds it: {verdict.reason}")
            return
        if verdict.to_millicores != before.to_millicores:
            yield from _passed(passed)
            passed = []
            yield Fact("guards", f"{guard} makes it {verdict.to_millicores}m")
        else:
            passed.append(guard)
        before = verdict
    yield from _passed(passed)
    view = again.report.by_job[job.uid]
    if (withheld := view.withheld(Resize)) is not None:
        yield Fact("guards", withheld.reason)
    if (outcome := view.outcome(Resize)) is not None:
        yield Fact("outcome", f"{outcome.result}{': ' + outcome.detail if outcome.detail else ''}")


def _passed(names: list[str]) -> Iterator[Fact]:
    if names:
        yield Fact("guards", f"{', '.join(names)}: no objection")


def _next(last: ReplayedPass, newest: ReplayedPass, job: Job) -> str:
    seen = _time(last.snapshot.taken_at_seconds)
    if newest is not last:
        gone = duration(newest.snapshot.taken_at_seconds - last.snapshot.taken_at_seconds)
        return f"nothing: the job was last seen at {seen}, {gone} before the last pass of the record"
    if job.state.ended:
        return f"nothing: the job is {job.state}, as of {seen}"
    requeue = last.report.requeue_at_seconds
    wait = duration(max(0.0, requeue - last.snapshot.taken_at_seconds))
    return f"the pass after that of {seen} is due at {_time(requeue)}, in {wait}, or when a job comes or goes"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


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
        action, unit = _tried(decided, inputs, _control(document))
        if decided.guard:
            action = action.model_copy(update={"result": WITHHELD})
        figures = Figures(policy, decided.node, unit, decided.before, decided.after, decided.guard or "")
        namespace, name = known.get(decided.job, ("", decided.name))
        yield Line(namespace, name, action, figures), decided.job


def _control(document: dict[str, object]) -> CpuControl:
    spec = document.get("spec")
    resources = spec.get("resources") if isinstance(spec, dict) else None
    return "limits" if isinstance(resources, dict) and resources.get("control") == "limits" else "requests"


def _tried(decided: Decided, inputs: Inputs, control: CpuControl) -> tuple[Action, str]:
    """In the words of a JobGrowth's history, and the unit of its amounts; as if a guard had withheld nothing.

    What was withheld has the guard's reason as its detail.
    """
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
