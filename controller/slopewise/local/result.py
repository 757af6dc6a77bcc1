"""The result of `slopewise run --local`: each job's end, time, loss and CPU, as a table or one JSON object.

Times and CPU come from the processes, losses and steps from each job's last series in Prometheus.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich import text as rich_text

from slopewise.adapters.local.attached import ENDED, RUNS_ON
from slopewise.adapters.local.job_record import CUT_OFF, SUCCEEDED, JobRecord
from slopewise.config.training_policy import Mode
from slopewise.local.brought import brought, sentence_of_all
from slopewise.local.session import Session
from slopewise.local.tally import JobTally, RunTally
from slopewise.reports.columns import Column, csv_text, named, sized
from slopewise.reports.live_table import STATE_STYLES
from slopewise.reports.ranking import Ranking
from slopewise.reports.report import Report, Section, Table, Text
from slopewise.reports.trials import NOT_FINITE, Trial
from slopewise.reports.wording import UNKNOWN, counted, loss_change, of_bound, plain, steps_done
from slopewise.text import duration, equal_messages


@dataclass(frozen=True, slots=True)
class LocalJobResult:
    """One job at the end of the run; times in seconds since its start. None: unknown, or not set."""

    name: str
    state: str
    """finished, stopped at target, failed, stopped (with the run), ended (how is not known), or waiting (the run was
    stopped first)."""
    exit_status: int | None
    arrived_seconds: float | None
    finished_seconds: float | None
    jct_seconds: float | None
    """From its arrival to its end."""
    steps: int | None
    steps_planned: int | None
    loss_first: float | None
    loss_last: float | None
    cpu_seconds: float | None
    resizes: int
    qoe_seconds: float | None = None
    pace_seconds: float | None = None
    """The last measured time of a response or a step."""
    deadline_seconds: float | None = None
    deadline_met: bool | None = None
    fair_seconds: float | None = None
    """What fair sharing would have taken, as estimated."""
    note: str = ""
    """A remark about its end."""


@dataclass(frozen=True, slots=True)
class LocalResult:
    """The whole run."""

    policy: str
    mode: Mode
    control: str
    elapsed_seconds: float
    passes: int
    passes_held: int
    resizes_applied: int
    withheld: int
    jobs: tuple[LocalJobResult, ...]
    brought: str = ""
    """The times of the jobs beside those under fair sharing; empty: not known."""
    studies: tuple[Ranking, ...] = ()

    @property
    def failed(self) -> list[LocalJobResult]:
        """The jobs that make the command's exit code 1: those that failed, or may have."""
        return [job for job in self.jobs if job.state in ("failed", "ended")]

    def as_json(self) -> dict[str, Any]:
        """The one object that `slopewise run --local -o json` prints."""
        return {**asdict(replace(self, studies=())), "studies": [each.as_json() for each in self.studies]}

    def csv_text(self) -> str:
        """A line for each trial of the studies, the best of each first; without a study one for each job."""
        rows = [row for each in self.studies for row in each.rows()] or [asdict(job) for job in self.jobs]
        return csv_text(rows, list(dict.fromkeys(name for row in rows for name in row)))


def gather(session: Session, stopped: Collection[str] = ()) -> LocalResult:
    """The result of a session whose jobs have all ended. `stopped`: those that ran when the run was stopped."""
    start, now = session.supervisor.started_at_seconds, session.clock.now()
    spec = session.spec
    records = session.supervisor.records
    jobs = tuple(
        result_of(record, session.tally.of(name), start, was_stopped=name in stopped)
        for name, record in records.items()
    )
    return LocalResult(
        policy=spec.policy_name,
        mode=spec.mode,
        control=spec.resources.control,
        elapsed_seconds=round(now - start, 3) if start else 0.0,
        passes=session.loop.passes,
        passes_held=session.loop.passes_held,
        resizes_applied=session.tally.resizes_applied,
        withheld=session.tally.withheld,
        jobs=jobs,
        brought=sentence_of_all(session.brought()),
        studies=tuple(_rankings(records, session.tally, jobs)),
    )


def _rankings(records: Mapping[str, JobRecord], tally: RunTally, jobs: Iterable[LocalJobResult]) -> Iterator[Ranking]:
    studies: dict[str, list[Trial]] = {}
    for job in jobs:
        record = records[job.name]
        trial = trial_of(record, tally.of(job.name), job.state, job.cpu_seconds, job.note)
        studies.setdefault(record.spec.queueing.study, []).append(trial)
    return (Ranking(study, trials) for study, trials in studies.items() if study)


def trial_of(record: JobRecord, tally: JobTally, state: str, cpu_seconds: float | None, reason: str) -> Trial:
    """One job as a trial of its study; one that has diverged has no loss."""
    name, arguments = record.spec.name, record.spec.arguments
    loss, why = (tally.last_level, reason) if tally.finite else (None, reason or NOT_FINITE)
    return Trial(name, state, loss, cpu_seconds, tally.objective, arguments, tally.rungs, why, tally.metric)


def result_of(record: JobRecord, tally: JobTally, start_seconds: float, *, was_stopped: bool = False) -> LocalJobResult:
    """One job that has ended, or as it is now."""
    arrived, finished, deadline = record.arrived_at_seconds, record.finished_at_seconds, record.spec.deadline_seconds
    jct = None if arrived is None or finished is None else finished - arrived
    state = _state(record, tally, was_stopped=was_stopped)
    silent = f"reported no loss: {tally.missing}" if tally.missing and tally.first_level is None else ""
    return LocalJobResult(
        name=record.spec.name,
        state=state,
        exit_status=record.exit_status,
        arrived_seconds=None if arrived is None else round(arrived - start_seconds, 3),
        finished_seconds=None if finished is None else round(finished - start_seconds, 3),
        jct_seconds=None if jct is None else round(jct, 3),
        steps=None if tally.steps_total is None else round(tally.steps_total),
        steps_planned=None if tally.steps_planned is None else round(tally.steps_planned),
        loss_first=tally.first_level,
        loss_last=tally.last_level,
        cpu_seconds=None if record.cpu_seconds is None else round(record.cpu_seconds, 3),
        resizes=tally.resizes,
        qoe_seconds=record.spec.objectives.qoe_seconds,
        pace_seconds=tally.pace_seconds,
        deadline_seconds=deadline,
        deadline_met=None if deadline is None else state in SUCCEEDED and jct is not None and jct <= deadline,
        fair_seconds=None if (gained := brought(record, tally)) is None else round(gained.fair, 3),
        note="; ".join(note for note in (_note(record, state), silent) if note),
    )


def _state(record: JobRecord, tally: JobTally, *, was_stopped: bool) -> str:
    """The state from its process; for a job that was taken over, its last reported state, if that is an end."""
    if was_stopped and record.state in ("failed", "ended"):
        return "stopped"
    reported = tally.reported_state
    return str(reported) if record.state == "ended" and reported is not None and reported.ended else record.state


def _note(record: JobRecord, state: str) -> str:
    if record.last_output_lines in (ENDED, RUNS_ON):
        return record.last_output_lines
    if state == "ended":
        if record.last_output_lines == CUT_OFF:
            return CUT_OFF
        when = "while no controller ran" if record.ended_unseen else "after it was taken over"
        return f"ended {when}; how it ended is not known, see its output"
    if record.stopped_at_target:
        killed = record.stopping is not None and record.stopping.was_killed
        return record.stopped_at_target + ("; it did not end within its grace, and was killed" if killed else "")
    if state != "failed":
        return ""
    if record.status_unknown:
        return "reported that it failed; see its output"
    last = (record.last_output_lines.splitlines() or ["it wrote nothing"])[-1]
    if record.started_at_seconds is None:
        return plain(last)
    return f"ended with status {record.exit_status}: {plain(last)}"


def report_of(result: LocalResult) -> Report:
    """One row a job with the names in full, and remarks below."""
    equal = equal_messages((job.name, job.note) for job in result.jobs if job.note)
    more = {note: f" and {len(names) - 1} more" if names[1:] else "" for note, names in equal.items()}
    notes = [Text(f"{plain(names[0])}{more[note]}: {note}", "yellow") for note, names in equal.items()]
    table = Table(list(_columns(result.jobs)), result.jobs, _ORDER)
    studies = [
        Section(f"Study {each.study}", [Table(each.columns(), rows, each.order()), *map(Text, each.sentences())])
        for each in result.studies
        if (rows := each.shown_rows())
    ]
    return Report("slopewise run --local", [Section("", [table, *notes, Text(_summary(result))]), *studies])


_ORDER = ("JOB", "STATE", "TIME", "FAIR SHARING", "LOSS", "STEPS", "TIME / GOAL", "DEADLINE", "CPU S", "CHANGES")


def _columns(jobs: Sequence[LocalJobResult]) -> Iterator[Column[LocalJobResult]]:
    """The columns by importance; objectives only where jobs have any."""
    yield named("JOB", jobs, lambda job: job.name)
    yield sized("STATE", jobs, lambda job: rich_text.Text(plain(job.state), style=STATE_STYLES.get(job.state, "")))
    yield sized("TIME", jobs, lambda job: rich_text.Text(_known(job.jct_seconds, duration)), "right")
    if any(job.qoe_seconds is not None for job in jobs):
        yield sized("TIME / GOAL", jobs, lambda job: rich_text.Text(of_bound(job.pace_seconds, job.qoe_seconds)))
    if any(job.deadline_seconds is not None for job in jobs):
        yield sized("DEADLINE", jobs, _deadline)
    if any(job.fair_seconds is not None for job in jobs):
        yield sized("FAIR SHARING", jobs, lambda job: rich_text.Text(_known(job.fair_seconds, duration)), "right")
    yield sized("LOSS", jobs, lambda job: rich_text.Text(loss_change(job.loss_first, job.loss_last)))
    yield sized("CPU S", jobs, lambda job: rich_text.Text(_known(job.cpu_seconds, "{:.1f}".format)), "right")
    yield sized("CHANGES", jobs, lambda job: rich_text.Text(str(job.resizes)), "right")
    yield sized("STEPS", jobs, lambda job: rich_text.Text(steps_done(job.steps, job.steps_planned)), "right")


def _known(value: float | None, written: Any) -> str:
    return UNKNOWN if value is None else str(written(value))


def _deadline(job: LocalJobResult) -> rich_text.Text:
    if job.deadline_seconds is None:
        return rich_text.Text(UNKNOWN)
    return rich_text.Text(
        f"{of_bound(job.jct_seconds, job.deadline_seconds)} {'met' if job.deadline_met else 'missed'}"
    )


def _summary(result: LocalResult) -> str:
    done = [
        counted(result.passes, "pass", "passes"),
        f"{counted(result.resizes_applied, 'resize')} applied",
        f"{result.withheld} withheld",
    ]
    what = f"{plain(result.policy)}, mode {result.mode}: {', '.join(done)} in {duration(result.elapsed_seconds)}."
    if result.mode in ("Auto", "Canary"):
        return f"{what} {result.brought}." if result.brought else what
    return f"{what} Nothing was changed; `mode: Auto` in the policy file has it act."
