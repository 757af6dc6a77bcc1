"""What `slopewise replay` prints: the passes that differ, or what another policy would have decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from slopewise.config.training_policy import PolicyChoice, named_policy, policy_parameters
from slopewise.decision_record.lines import Result
from slopewise.decision_record.reader import Announce, RecordedPass, read
from slopewise.decision_record.replay import ReplayedPass, replay
from slopewise.errors import UsageError
from slopewise.reports.columns import Column, fitting, named, one_line, sized, table_of
from slopewise.reports.wording import UNKNOWN, counted

MAX_SHOWN = 10
"""Passes that differ, whose differences are printed; JSON has all of them."""


@dataclass(slots=True)
class Decisions:
    """What one policy decided for a job, over a record."""

    actions: Counter[str] = field(default_factory=Counter)
    """How often each action was let through by the guards."""
    millicores: int | None = None
    """What the last resize was to."""
    reason: str = ""
    """The policy's last one."""

    def add(self, uid: str, result: Result) -> None:
        """One more pass."""
        self.reason = result.reasons.get(uid, self.reason)
        for each in result.decided:
            if each.job == uid and each.guard is None:
                self.actions[each.action] += 1
                if each.action == "resize":
                    self.millicores = each.after

    def as_json(self) -> dict[str, Any]:
        """For `--output json`."""
        return {"actions": dict(self.actions), "millicores": self.millicores, "reason": self.reason}


@dataclass(slots=True)
class ComparedJob:
    """One job under the recorded policy and under another one."""

    name: str
    recorded: Decisions = field(default_factory=Decisions)
    replayed: Decisions = field(default_factory=Decisions)


@dataclass(slots=True)
class Replayed:
    """A whole record that was replayed."""

    file: Path
    policy: str | None
    """The other policy; None: the recorded one."""
    observed: int = 0
    held: int = 0
    """Passes that could not observe, and decided nothing."""
    decisions: int = 0
    different: list[ReplayedPass] = field(default_factory=list)
    jobs: dict[str, ComparedJob] = field(default_factory=dict)
    """By uid; only for another policy."""

    @property
    def is_same(self) -> bool:
        """Every pass gave the recorded result, bit for bit."""
        return not self.different

    def count(self, passes: Iterable[RecordedPass]) -> Iterator[RecordedPass]:
        """The passes, of which those that could not observe are counted."""
        for each in passes:
            self.held += each.recorded.inputs is None
            yield each

    def add(self, again: ReplayedPass) -> None:
        """One more pass that was run again."""
        self.observed += 1
        self.decisions += len(again.recorded.result.decided)
        if self.policy is None:
            if again.differences:
                self.different.append(again)
            return
        for job in again.snapshot.jobs:
            compared = self.jobs.setdefault(job.uid, ComparedJob(f"{job.namespace}/{job.name}"))
            compared.recorded.add(job.uid, again.recorded.result)
            compared.replayed.add(job.uid, again.result)


def replay_file(path: Path, policy: str | None, announce: Announce, done: Callable[[int], None]) -> Replayed:
    """Replay a record, and call `done` with the passes so far; UsageError for a bad file or policy."""
    choice = None if policy is None else _choice(policy)
    whole = Replayed(path, None if choice is None else choice.name)
    for again in replay(whole.count(read(path, announce)), choice):
        whole.add(again)
        done(whole.observed)
    if not whole.observed and not whole.held:
        raise UsageError(f"{path}: the record holds no pass yet.")
    return whole


def _choice(policy: str) -> PolicyChoice:
    choice = named_policy(PolicyChoice(name=policy), beside=Path(), where="--policy")
    policy_parameters(choice, where="--policy")
    return choice


def as_json(whole: Replayed) -> dict[str, Any]:
    """For `--output json`."""
    facts: dict[str, Any] = {
        "file": str(whole.file),
        "passes": whole.observed,
        "held": whole.held,
        "decisions": whole.decisions,
    }
    if whole.policy is None:
        different = [
            {"where": each.where, "at": each.recorded.taken_at_seconds, "differences": each.differences}
            for each in whole.different
        ]
        return facts | {"same": whole.is_same, "different": different}
    jobs = [
        {"job": job.name, "recorded": job.recorded.as_json(), "replayed": job.replayed.as_json()}
        for job in whole.jobs.values()
    ]
    return facts | {"policy": whole.policy, "jobs": jobs}


def summary(whole: Replayed) -> str:
    """The result in one sentence."""
    held = f"; {counted(whole.held, 'pass', 'passes')} could not observe" if whole.held else ""
    passes = f"{counted(whole.observed, 'pass', 'passes')}, {counted(whole.decisions, 'decision')}{held}"
    if whole.policy is not None:
        return f"{passes}. What {whole.policy} would have decided from the same snapshots:"
    if whole.is_same:
        return f"{passes}. All was decided the same again, bit for bit."
    return f"{passes}. {counted(len(whole.different), 'pass', 'passes')} decided something else:"


def differences(whole: Replayed) -> list[str]:
    """The first passes that differ, a line each."""
    return [f"{each.where}: {'; '.join(each.differences)}" for each in whole.different[:MAX_SHOWN]]


def table(whole: Replayed, width: int) -> Table:
    """The jobs under both policies, as wide as fits."""
    jobs = list(whole.jobs.values())
    policy = (whole.policy or "").upper()
    columns: list[Column[ComparedJob]] = [
        named("JOB", jobs, lambda job: job.name),
        sized("RECORDED", jobs, lambda job: _actions(job.recorded)),
        sized("TO", jobs, lambda job: _cpu(job.recorded), "right"),
        sized(policy, jobs, lambda job: _actions(job.replayed)),
        sized("TO ", jobs, lambda job: _cpu(job.replayed), "right"),
        Column("LAST REASON", 20, lambda job: one_line(job.replayed.reason), fills=True),
    ]
    return table_of(fitting(columns, [each.heading for each in columns], width), jobs)


def _actions(decided: Decisions) -> Text:
    return Text(", ".join(f"{count} {action}" for action, count in sorted(decided.actions.items())) or UNKNOWN)


def _cpu(decided: Decisions) -> Text:
    return Text(UNKNOWN if decided.millicores is None else f"{decided.millicores}m")
