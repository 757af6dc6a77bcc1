"""What a session answers to `slopewise jobs` and to the commands with `--local`: itself, and each of its jobs."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace

from slopewise.adapters.local.job_record import JobRecord
from slopewise.adapters.local.queue_file import StoredJob
from slopewise.adapters.local.session_requests import JobAnswer, SessionAnswer
from slopewise.crds.job_growth import JobGrowthStatus
from slopewise.errors import ActuationError
from slopewise.local.brought import brought, sentence_of_all
from slopewise.local.result import result_of, trial_of
from slopewise.local.session import Session
from slopewise.reports.live_table import LiveRow
from slopewise.reports.ranking import Ranking
from slopewise.reports.trials import Trial


def session_answer(session: Session, holder: str) -> SessionAnswer:
    """The session; `holder`: the command that runs it."""
    newest, spec = session.newest_report(), session.document.spec
    return SessionAnswer(
        holder,
        os.getpid(),
        spec.policy_name,
        spec.mode,
        session.workshop.limiter.description,
        session.prometheus.url,
        session.health.port,
        session.loop.passes,
        (newest.held or "") if newest is not None else "",
        session.plan.max_running,
        sentence_of_all(session.brought()),
    )


def job_answer(session: Session, row: LiveRow, stored: StoredJob | None, status: JobGrowthStatus | None) -> JobAnswer:
    """One job, as its row of the table has it; `stored`: None where the session stores none."""
    record, tally = session.supervisor.records[row.name], session.tally.of(row.name)
    result = result_of(record, tally, session.supervisor.started_at_seconds)
    gained = brought(record, tally)
    process, running = record.process, record.finished_at_seconds is None
    ended = result.note or (gained.sentence if gained else "")
    state, reason = (row.state, row.reason) if running else (result.state, ended)
    study, used = record.spec.queueing.study, _cpu_seconds(session, record)
    decided, chance = (status.reason, status.chance) if running and status is not None else (None, None)
    trial = trial_of(record, tally, state, used, decided or reason) if study else None
    log = (stored.log if stored else "") or str(session.supervisor.processes.folder / record.spec.log_name)
    if record.is_attached or (stored is not None and stored.process is not None):
        log = ""
    elif process is not None:
        log = str(process.log_path)
    shown = (
        status.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"pods", "move"}) if status else None
    )
    return JobAnswer(
        row.name,
        state,
        study=study,
        submitted_at_seconds=stored.submitted_at_seconds if stored else None,
        started_at_seconds=record.started_at_seconds,
        finished_at_seconds=record.finished_at_seconds,
        exit_status=record.exit_status,
        attempt=record.spec.queueing.attempt,
        steps=tally.steps_total,
        steps_planned=tally.steps_planned if tally.steps_planned is not None else record.spec.planned_steps,
        loss_first=tally.first_level,
        loss_last=tally.last_level,
        cpu_seconds=record.cpu_seconds,
        reason=reason,
        log=log,
        pid=process.pid if process is not None and running else None,
        fair_seconds=tally.fair_seconds,
        status=shown,
        trial=trial and replace(trial, chance=chance),
    )


def best_trials(session: Session, names: Collection[str]) -> set[str]:
    """The best trial of each study of which one of these jobs is a trial."""
    studies: dict[str, list[Trial]] = {}
    for name, record in session.supervisor.records.items():
        trial = trial_of(record, session.tally.of(name), "", None, "")
        studies.setdefault(record.spec.queueing.study, []).append(trial)
    rankings = [Ranking(study, trials).trials for study, trials in studies.items() if study]
    return {trials[0].name for trials in rankings if any(each.name in names for each in trials)}


def _cpu_seconds(session: Session, record: JobRecord) -> float | None:
    """So far; None: not known."""
    if record.cpu_seconds is not None or record.state != "running":
        return record.cpu_seconds
    with suppress(ActuationError):  # it has just ended
        used = session.workshop.limiter.usage(record.spec.name).cpu_seconds_total
        return None if used is None else record.earlier_cpu_seconds + used
    return None
