"""Shows the progress of a local run: a live table on a terminal, a line every ten seconds elsewhere, and short logs.

`Screen.show` is called ten times a second; most calls do nothing. Everything goes to stderr, data to stdout. Where
neither a terminal shows the table nor `--json-logs` is set, a log line is a change, an event, or a job and minute.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Self, TextIO, cast

import structlog
from rich.console import Console
from rich.live import Live

from slopewise.adapters.local.job_record import JobRecord
from slopewise.allocation import allotted_cores
from slopewise.estimators.step_cost import oversubscribed
from slopewise.local.brought import outlook
from slopewise.local.session import Session
from slopewise.model import CpuControl, Job, JobMemory, PassReport, Resize, Stop
from slopewise.reports.live_table import LiveHeader, LiveRow, LiveTable, plain_progress_line
from slopewise.reports.wording import of_bound, plain
from slopewise.telemetry.log_lines import configure_logging
from slopewise.text import bounded

NO_LOSS = "no loss"
"""The state of a running job that has reported no loss after three scrapes."""

REDRAW_SECONDS = 1.0
LINE_SECONDS = 10.0


class Screen(AbstractContextManager["Screen"]):
    """Shows one run after another."""

    def __init__(self, console: Console, *, transient: bool = False) -> None:
        """`transient`: the table is removed at the end."""
        self._console = console
        self._transient = transient
        self._live: Live | None = None
        self._policy = ""
        self._next_seconds = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=self._transient)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, session: Session, policy: str) -> None:
        """Redraw, or print a line, when it is time to."""
        elapsed = session.elapsed_seconds
        if policy != self._policy:
            self._policy, self._next_seconds = policy, 0.0
        ended = session.supervisor.all_ended()  # the last table shows how everything ended
        if elapsed < self._next_seconds and not ended:
            return
        newest, tally = session.newest_report(), session.tally
        rows, header = (
            live_rows(session),
            LiveHeader(
                policy=policy,
                elapsed_seconds=elapsed,
                requeue_seconds=max(0.0, newest.requeue_at_seconds - session.clock.now()) if newest else None,
                passes=session.loop.passes,
                resizes_applied=tally.resizes_applied,
                withheld=tally.withheld,
                note=_note(session, newest),
                moves_applied=tally.moves_applied,
            ),
        )
        if self._live is not None:
            self._next_seconds = elapsed + REDRAW_SECONDS
            self._live.update(LiveTable(rows, header), refresh=True)
        else:
            self._next_seconds = elapsed + LINE_SECONDS
            self._console.print(plain_progress_line(rows, header), highlight=False, markup=False, soft_wrap=True)


def _note(session: Session, newest: PassReport | None) -> str:
    if newest is not None and newest.held is not None:
        return f"held, nothing is changed: {newest.held}"
    if failed := [name for name, record in session.supervisor.records.items() if record.state == "failed"]:
        return f"failed: {', '.join(failed)}"
    jobs = newest.snapshot.jobs if newest is not None and newest.snapshot is not None else ()
    missing = [(job.name, job.missing_evaluation) for job in jobs if job.missing_evaluation is not None]
    silent = [
        f"no {'answer' if cause.reason == 'ScrapeTimesOut' else 'loss'} from {name}: {cause.message}"
        for name, cause in missing
    ]
    more = f" (and {len(silent) - 1} more)" if len(silent) > 1 else ""
    return f"{silent[0]}{more}" if silent else ""


def live_rows(session: Session) -> list[LiveRow]:
    """One row a job, in the order of the list; figures are those of the last pass that observed."""
    newest = session.newest_report(observed=True)
    seen = {job.name: job for job in newest.snapshot.jobs} if newest and newest.snapshot else {}
    return [
        _row(record, seen.get(name), newest, session.tally.of(name).history, session)
        for name, record in session.supervisor.records.items()
    ]


def _row(
    record: JobRecord, job: Job | None, report: PassReport | None, history: Sequence[float], session: Session
) -> LiveRow:
    name, objective = record.spec.name, record.spec.objectives.qoe_seconds
    if record.state != "running" or job is None or report is None or report.decisions is None:
        state = "starting" if record.state == "running" else record.state
        last = history[-1] if history else None
        waits = session.supervisor.queue.waits.get(name, "") if state == "waiting" else ""
        return LiveRow(name, state, None, last, history, None, None, None, None, waits, objective_seconds=objective)
    known = report.decisions.memory.jobs[job.uid]
    now, wanted = _cores(job, report, session.control)
    return LiveRow(
        name=name,
        state=str(job.state) if job.missing_evaluation is None else NO_LOSS,
        job_class=known.decided.job_class,
        loss=job.evaluation.level if job.evaluation else None,
        loss_history=history,
        growth=known.growth.cpu_efficiency if known.growth else None,
        cpu_cores_used=known.growth.cpu_cores if known.growth else None,
        cpu_allotted_millicores_now=now,
        cpu_wanted_millicores=wanted,
        reason=_reason(job, report, session),
        pace_seconds=_pace_seconds(job, known),
        objective_seconds=objective,
        note=oversubscribed(job, known) or "",
    )


def _reason(job: Job, report: PassReport, session: Session) -> str:
    """In everyday words where the policy's order is carried out and its end is known."""
    if job.evaluation is None and job.warnings:
        return job.warnings[0]
    here = report.by_job[job.uid]
    outcome = here.outcome(Resize)
    ordered = session.spec.mode == "Auto" and not session.plan.dry_run and not here.results.events
    failed = outcome is not None and outcome.result != "applied"
    words = outlook(job, report) if ordered and not failed and not here.message_of(Stop) else ""
    return words or here.message


def _pace_seconds(job: Job, known: JobMemory) -> float | None:
    """The last measured pace; for a served model that was never timed, the mean over all its responses."""
    if known.paces:
        return known.paces[-1].seconds
    if known.timing.answering is not None and known.timing.answering.unanswered_since_seconds is not None:
        return None
    responses = job.responses
    return responses.seconds_total / responses.count_total if responses and responses.count_total > 0 else None


def _cores(job: Job, report: PassReport, control: CpuControl) -> tuple[int, int]:
    """The job's allotted millicores at the start of the pass, and after all resizes that the policy wants."""
    assert report.snapshot is not None  # noqa: S101 - it is a report that observed this job
    targets = {uid: resize.to_millicores for uid, each in report.by_job.items() if (resize := each.resize) is not None}
    now = allotted_cores(report.snapshot, control)[job.uid]
    wanted = allotted_cores(report.snapshot, control, targets)[job.uid]
    return round(1000 * now), round(1000 * wanted)


MAX_LINE = 300
"""Characters; a policy's reason has about 120."""

_DETAILS = ("status", "node", "by", "mode")
_NOT_SHOWN = frozenset({"cpu is given by"})
"""The command prints it itself."""

_UNNAMED = frozenset({"job warning raised", "job compared"})
"""Their reasons say it all."""

_ONLY_NODE = "local"


class CurrentStderr:
    """stderr at the moment of each write, because rich replaces it beside a live table."""

    def write(self, text: str) -> int:
        """Write to the present stderr."""
        return sys.stderr.write(text)

    def flush(self) -> None:
        """Flush the present stderr."""
        sys.stderr.flush()


def configure_short_lines(*, namespace: str, stream: TextIO | None = None, level: int = logging.INFO) -> None:
    """Log short lines; jobs of `namespace` are named without it."""
    here = cast(TextIO, CurrentStderr())  # all that structlog uses of it
    configure_logging(stream=stream or here, renderer=_ShortLines(namespace), level=level)


class _ShortLines:
    """A structlog renderer."""

    def __init__(self, namespace: str) -> None:
        self._prefix = f"{namespace}/"

    def __call__(self, _logger: object, _method: str, event: Mapping[str, Any]) -> str:
        """One line, or one for each change of a pass; DropEvent where there is none."""
        texts = self._texts(dict(event))
        if not texts:
            raise structlog.DropEvent
        stamp = f"{event['timestamp'][:19]}Z"
        return "\n".join(f"{stamp} {bounded(plain(text), MAX_LINE)}" for text in texts)

    def _texts(self, event: dict[str, Any]) -> Sequence[str]:
        what = event["event"]
        if what in _NOT_SHOWN:
            return []
        if what == "pass completed":
            return [str(each).removeprefix(self._prefix) for each in (*event["changes"], *event["moves"])]
        if what == "job progress":
            return [_progress(event)]
        mark = "" if event["level"] == "info" else f"{event['level']}: "
        return [f"{mark}{self._message(what, event)}{_trace(event)}"]

    def _message(self, what: str, event: dict[str, Any]) -> str:
        job = event.get("job") or (event.get("name") if what.startswith("job") else None)
        more = f" and {len(event['others'])} more" if event.get("others") else ""
        subject = f"{str(job).removeprefix(self._prefix)}{more}: " if job else ""
        reason = event.get("warning") or event.get("reason") or _last_line(event.get("last_output_lines"))
        details = [f"{key} {event[key]}" for key in _DETAILS if event.get(key) not in (None, _ONLY_NODE)]
        event_text = ", ".join([*([] if what in _UNNAMED else [what]), *details])
        return f"{subject}{event_text}{': ' if event_text and reason else ''}{reason}"


def _progress(event: Mapping[str, Any]) -> str:
    parts = [event["state"]]
    parts += [f"{event['progress']:.0%}".replace("%", " %")] if event.get("progress") is not None else []
    parts += [f"loss {event['loss']:.3g}"] if event.get("loss") is not None else []
    if (objective := event.get("objective_seconds")) is not None:
        parts.append(of_bound(event.get("seconds"), objective))
    if (allotted := event.get("cores_allotted")) is not None:
        used = event.get("cores_used")
        parts.append(f"has {allotted:.2f} cores" if used is None else f"used {used:.2f} of {allotted:.2f} cores")
    parts += [str(event[key]) for key in ("job_class", "meaning", "note") if event.get(key)]
    return f"{event['name']}: {', '.join(part for part in parts if part)}"


def _last_line(text: object) -> str:
    """The last line of a job's output."""
    lines = str(text or "").strip().splitlines()
    return lines[-1] if lines else ""


def _trace(event: Mapping[str, Any]) -> str:
    """The traceback of a bug in the controller, on one line."""
    trace = event.get("exception")
    return f": {_last_line(trace)} ({' | '.join(str(trace).splitlines()[-7:-1])})" if trace else ""
