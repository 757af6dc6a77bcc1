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
from functools import partial
from pathlib import Path

from rich.console import Console

from slopewise.adapters.prometheus.history import Points
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


def run_advise(options: AdviseOptions, console: Console) -> Advice:
    """Read, find, replay, propose; SlopewiseError in one sentence for what is wrong."""
    policies = [catalogue.name_of(name) for name in options.policies] or default_policies()
    for name in policies:
        catalogue.find(name)
    findings: list[JobFinding] = []
    jobs: list[RecordedJob] = []
    known = 0
    stopped: Interrupted | None = None
    loss_names: Sequence[str] = ()
    node_cores: dict[str, float] = {}
    requested: dict[str, Points] = {}
    with closing(open_history(options.history)) as history:
        try:
            lifetimes = find_jobs(history, options.history)
            known, node_cores = len(lifetimes), history.node_cores()
            loss_names = [] if all(each.reports_loss for each in lifetimes) else history.loss_names()
            for job in read_jobs(history, lifetimes, console):
                findings.append(finding(job))
                recorded = recorded_job(job, len(jobs) + 1)
                jobs += [] if recorded is None else [recorded]
            if any(job.waits_for_cpu for job in jobs):
                requested = history.requested_cores()
        except Interrupted as stop:
            if not findings:
                raise
            stopped = stop
    bounded = partial(Replayer, at_most=options.groups, seeds=options.seeds)
    of_policies = bounded(groups_of(jobs, node_cores), policies)
    by_need = bounded(groups_of(jobs, node_cores, requested), (), by_need=True)
    for each in (of_policies, by_need):
        stopped = stopped or _replay(each, options.workers or len(os.sched_getaffinity(0)), console)
    replays = of_policies.replays
    _, text = proposal(findings, replays, options.history.metric, options.history.objective)
    by_name = {job.name: (job.namespace, job.pod) for job in jobs}
    ratios: dict[tuple[str, str], dict[str, float]] = {}
    for policy in replays.policies:
        for name, ratio in policy.job_ratios.items():
            ratios.setdefault(by_name[name], {})[policy.policy] = ratio.mean or 0.0
    return Advice(
        url=options.history.endpoint.url,
        period=history.period,
        metric=options.history.metric,
        findings=findings,
        replays=replays,
        replays_by_need=by_need.replays,
        sooner_by_job=ratios,
        policy_text=text,
        jobs_known=known,
        loss_names=loss_names,
        stopped=stopped,
        price_gpu_hour=options.price_gpu_hour,
    )


def _replay(replayer: Replayer, workers: int, console: Console) -> Interrupted | None:
    """Replay in a folder of its own; what interrupted it, if anything did."""
    if not replayer.runs:
        return None
    try:
        with (
            tempfile.TemporaryDirectory(prefix="slopewise-advise-") as folder,
            ProgressBar(console, "replaying", replayer.runs) as bar,
        ):
            replayer.run(Path(folder), workers, bar.done)
    except Interrupted as stop:
        return stop
    return None
