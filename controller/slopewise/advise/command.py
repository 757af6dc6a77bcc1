"""`slopewise advise`: reads the history job by job, finds what each held, replays groups of them, proposes a policy.

Everything that can be wrong with the options is looked at before Prometheus is asked. Ctrl-C ends the reading or the
replays, and what was found by then is reported.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from slopewise.adapters.prometheus.history import JobHistory, Points
from slopewise.advise.advice import Advice
from slopewise.advise.findings import JobFinding, finding
from slopewise.advise.proposal import proposal
from slopewise.advise.replay import Replayer, default_policies
from slopewise.advise.scenarios.groups import groups_of
from slopewise.advise.scenarios.reading import HistoryOptions, find_jobs, open_history, read_jobs
from slopewise.advise.scenarios.recorded_jobs import RecordedJob, recorded_job
from slopewise.own_policies import catalogue
from slopewise.signals import Interrupted
from slopewise.simulator.command import ProgressBar


@dataclass(frozen=True, slots=True)
class AdviseOptions:
    """What the command line was given."""

    history: HistoryOptions
    policies: Sequence[str]
    """Empty: the default ones."""
    groups: int
    """How many groups are replayed at most; 0: none."""
    seeds: int
    workers: int | None
    price_gpu_hour: float | None = None


class _Gathered:
    """What was read so far."""

    def __init__(self) -> None:
        self.findings: list[JobFinding] = []
        self.jobs: list[RecordedJob] = []
        self.known = 0

    def add(self, job: JobHistory) -> None:
        self.findings.append(finding(job))
        recorded = recorded_job(job, len(self.jobs) + 1)
        if recorded is not None:
            self.jobs.append(recorded)


def run_advise(options: AdviseOptions, console: Console) -> Advice:
    """Read, find, replay, propose; SlopewiseError in one sentence for what is wrong."""
    policies = [catalogue.name_of(name) for name in options.policies] or default_policies()
    for name in policies:
        catalogue.find(name)
    gathered = _Gathered()
    stopped: Interrupted | None = None
    with closing(open_history(options.history)) as history:
        loss_names: Sequence[str] = ()
        node_cores: dict[str, float] = {}
        requested: dict[str, Points] = {}
        try:
            lifetimes = find_jobs(history, options.history)
            gathered.known = len(lifetimes)
            node_cores = history.node_cores()
            loss_names = [] if all(each.reports_loss for each in lifetimes) else history.loss_names()
            for job in read_jobs(history, lifetimes, console):
                gathered.add(job)
            if any(job.waits_for_cpu for job in gathered.jobs):
                requested = history.requested_cores()
        except Interrupted as stop:
            if not gathered.findings:
                raise
            stopped = stop
    replayer = Replayer(groups_of(gathered.jobs, node_cores), policies, at_most=options.groups, seeds=options.seeds)
    if stopped is None:
        stopped = _replay(replayer, options.workers or _cores(), console)
    by_need = Replayer(
        groups_of(gathered.jobs, node_cores, requested),
        (),
        at_most=options.groups,
        seeds=options.seeds,
        by_need=True,
    )
    if stopped is None:
        stopped = _replay(by_need, options.workers or _cores(), console)
    replays = replayer.replays
    _, text = proposal(gathered.findings, replays, options.history.metric, options.history.objective)
    by_name = {job.name: (job.namespace, job.pod) for job in gathered.jobs}
    ratios: dict[tuple[str, str], dict[str, float]] = {}
    for each in replays.policies:
        for name, ratio in each.job_ratios.items():
            ratios.setdefault(by_name[name], {})[each.policy] = ratio.mean or 0.0
    return Advice(
        url=options.history.endpoint.url,
        period=history.period,
        metric=options.history.metric,
        findings=gathered.findings,
        replays=replays,
        replays_by_need=by_need.replays,
        sooner_by_job=ratios,
        policy_text=text,
        jobs_known=gathered.known,
        loss_names=loss_names,
        stopped=stopped,
        price_gpu_hour=options.price_gpu_hour,
    )


class _Whole:
    """One bar over the sweeps of all groups, each of which begins with its own number of runs."""

    def __init__(self, bar: ProgressBar) -> None:
        self._bar = bar

    def begin(self, total: int) -> None:
        """The number of all runs is known already."""

    def done(self) -> None:
        """One more run has been made."""
        self._bar.done()


def _replay(replayer: Replayer, workers: int, console: Console) -> Interrupted | None:
    """Replay in a folder of its own; what interrupted it, if anything did."""
    if not replayer.runs:
        return None
    try:
        with (
            tempfile.TemporaryDirectory(prefix="slopewise-advise-") as folder,
            ProgressBar(console, "replaying") as bar,
        ):
            bar.begin(replayer.runs)
            replayer.run(Path(folder), workers, _Whole(bar))
    except Interrupted as stop:
        return stop
    return None


def _cores() -> int:
    """The cores that this process may run on."""
    return len(os.sched_getaffinity(0))
