"""The result of `slopewise advise`: what was found of each job, totals by namespace and of all, replays, a proposal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import pandas as pd

from slopewise.adapters.prometheus.history import Period
from slopewise.advise.actions import actions
from slopewise.advise.findings import JobFinding, LossFinding
from slopewise.advise.replay import NOTHING, PolicyReplay, Replays
from slopewise.reports.columns import csv_text
from slopewise.reports.wording import counted, plain
from slopewise.signals import Interrupted

TOTALS = {
    "jobs": "Jobs",
    "gpu_jobs": "Jobs with GPUs",
    "flat_jobs": "Jobs that ran on while their loss was flat",
    "stalled_jobs": "Jobs whose loss did not improve",
    "cpu_held_core_hours": "Core-hours held",
    "cpu_held_flat_core_hours": "Core-hours held while the loss was flat",
    "memory_held_flat_gib_hours": "GiB-hours of memory held while the loss was flat",
    "gpu_hours": "GPU-hours held",
    "gpu_flat_hours": "GPU-hours held while the loss was flat",
    "gpu_stalled_hours": "GPU-hours held by jobs whose loss did not improve",
    "gpu_waiting_hours": "GPU-hours that waited for batches",
    "throttled_jobs": "Jobs throttled while they improved",
    "oversubscribed_jobs": "Jobs throttled with many more threads than CPU",
    "spinning_most_core_hours": "Core-hours that these may have spent spinning, at most",
    "input_bound_jobs": "Jobs whose steps or GPUs waited for data",
    "cpu_never_used_core_hours": "Core-hours requested and never used",
    "memory_never_used_gib_hours": "GiB-hours requested and never used",
}
"""Each total with its label, in the order of tables."""


_COLUMNS = [
    *(each.name for each in fields(JobFinding) if each.name != "loss"),
    *(f"loss_{each.name}" for each in fields(LossFinding)),
]


@dataclass(frozen=True)
class Advice:
    """What Prometheus says of a period."""

    url: str
    period: Period
    metric: str
    findings: Sequence[JobFinding]
    replays: Replays = NOTHING
    replays_by_need: Replays = NOTHING
    """Of the groups in which GPUs waited for their CPU."""
    sooner_by_job: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)
    """By namespace and pod: the mean ratio of its time to fair sharing's, of each replayed policy."""
    policy_text: str = ""
    """A TrainingPolicy, as YAML."""
    jobs_known: int = 0
    """How many jobs there were, of which fewer were read where it was stopped."""
    loss_names: Sequence[str] = ()
    """Metrics that look like a loss, where no job reports the one that was named."""
    stopped: Interrupted | None = None
    price_gpu_hour: float | None = None
    """In any currency."""

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row for each job; `jobs` and its like are 1 or 0, so that they add up."""
        rows = pd.DataFrame([_row(each) for each in self.findings], columns=_COLUMNS)
        hours = rows["hours"].astype(float)
        rows["jobs"] = 1
        rows["gpu_jobs"] = (rows["gpus"].astype(float) > 0).astype(int)
        rows["flat_jobs"] = (rows["flat_hours"].astype(float) > 0).astype(int)
        rows["stalled_jobs"] = (rows["loss_state"] == "stalled").astype(int)
        rows["gpu_stalled_hours"] = rows["stalled_jobs"] * rows["gpu_hours"].astype(float)
        rows["gpu_waiting_hours"] = rows["gpu_hours"].astype(float) * rows["wait_ratio"].astype(float)
        rows["throttled_jobs"] = rows["throttled_while_improving"].astype(bool).astype(int)
        rows["oversubscribed_jobs"] = rows["spinning_most_core_hours"].notna().astype(int)
        rows["input_bound_jobs"] = rows["input_bound"].astype(bool).astype(int)
        rows["cpu_never_used_core_hours"] = rows["cpu_never_used_cores"].astype(float) * hours
        rows["memory_never_used_gib_hours"] = rows["memory_never_used_gib"].astype(float) * hours
        return rows

    @cached_property
    def totals(self) -> dict[str, float]:
        """Of all jobs; what is not known of a job counts as nothing."""
        sums = self.frame[list(TOTALS)].astype(float).sum()
        return {name: float(sums[name]) for name in TOTALS}

    @cached_property
    def by_namespace(self) -> pd.DataFrame:
        """The totals of each namespace, those that held most while flat first."""
        columns = list(TOTALS)
        sums = self.frame[["namespace", *columns]].astype(dict.fromkeys(columns, float)).groupby("namespace").sum()
        return sums.sort_values(["gpu_flat_hours", "cpu_held_flat_core_hours"], ascending=False)

    @property
    def worst_first(self) -> list[JobFinding]:
        """The jobs, those that held most in vain first: GPU-hours, then core-hours."""
        return sorted(
            self.findings,
            key=lambda each: (
                -each.gpus * each.hours_in_vain,
                -(each.cpu_held_core_hours or 0.0) / max(each.hours, 1e-9) * each.hours_in_vain,
                -len(each.messages),
                each.namespace,
                each.pod,
            ),
        )

    @property
    def headline(self) -> str:
        """What to forward: the parts of GPU-hours and core-hours held while flat, and how many jobs are not known."""
        parts = [
            f"{self.totals[flat] / self.totals[held]:.0%} of the {unit} "
            f"({amount(self.totals[flat])} of {amount(self.totals[held])})"
            for unit, flat, held in (
                ("GPU-hours", "gpu_flat_hours", "gpu_hours"),
                ("core-hours", "cpu_held_flat_core_hours", "cpu_held_core_hours"),
            )
            if self.totals[held]
        ]
        if not parts:
            return f"{counted(len(self.findings), 'job')}, of which neither requests nor use are known."
        unknown = sum(each.is_unknown for each in self.findings)
        rest = f" Of {unknown} of {counted(len(self.findings), 'job')} it is not known." if unknown else ""
        return f"Training jobs held {' and '.join(parts)} while their loss was flat.{rest}"

    @property
    def caveats(self) -> list[str]:
        """Sentences on what the figures do not say."""
        return [*self._on_the_reading(), *self._on_the_replays()]

    def as_json(self) -> dict[str, Any]:
        """As `-o json` prints it; what is not known is null."""
        return {
            "prometheus": self.url,
            "since": timestamp(self.period.from_seconds),
            "until": timestamp(self.period.until_seconds),
            "metric": self.metric,
            "partial": self.stopped is not None,
            "headline": self.headline,
            "totals": self.totals,
            "price_gpu_hour": self.price_gpu_hour,
            "namespaces": {str(name): dict(row) for name, row in self.by_namespace.to_dict("index").items()},
            "jobs": [
                {
                    **_row(each),
                    "started": timestamp(each.started_at_seconds),
                    "ratio_to_fair": self.sooner_by_job.get((each.namespace, each.pod), {}),
                    "messages": each.messages,
                }
                for each in self.worst_first
            ],
            "replays": _replays_json(self.replays),
            "replays_by_need": _replays_json(self.replays_by_need),
            "training_policy": self.policy_text,
            "actions": list(actions(self.findings)),
            "caveats": self.caveats,
        }

    def csv_text(self) -> str:
        """A row for each job; no cell is a formula to a spreadsheet."""
        ratios = {f"ratio_to_fair_{replay.policy}": replay.policy for replay in self.replays.policies}

        def row(job: JobFinding) -> dict[str, Any]:
            sooner = self.sooner_by_job.get((job.namespace, job.pod), {})
            return {**_row(job), **{name: sooner.get(policy) for name, policy in ratios.items()}}

        return csv_text(map(row, self.worst_first), [*_COLUMNS, *ratios])

    def _on_the_reading(self) -> Iterator[str]:
        if self.stopped is not None:
            yield f"Stopped early: {len(self.findings)} of {counted(self.jobs_known, 'job')} were read."
        silent = sum(not each.reports_loss for each in self.findings)
        if silent:
            yield (
                f"Of {counted(silent, 'job')} no finite {self.metric} is known, nor whether it was flat. "
                + self._other_names()
            ).strip()
        unknown = sum(each.cpu_request_cores is None for each in self.findings)
        if unknown:
            yield (
                f"Of {counted(unknown, 'job')} no CPU request is known (kube-state-metrics is not scraped, or they "
                "state none): what they used counts as what they held."
            )
        no_use = sum(each.cpu_used_core_hours is None for each in self.findings)
        if no_use:
            yield f"Of {counted(no_use, 'job')} no CPU use is known: no kubelet's /metrics/cadvisor is scraped."
        running = sum(bool(each.flat_hours) and each.still_running for each in self.findings)
        if running:
            jobs = counted(running, "job") + " with a flat loss"
            yield f"Still running: {jobs}; a loss may drop again when its learning rate does."

    def _other_names(self) -> str:
        if not self.loss_names:
            return ""
        return f"Name their metric with --metric; there are {', '.join(plain(name) for name in self.loss_names[:5])}."

    def _on_the_replays(self) -> Iterator[str]:
        replays, by_need = self.replays, self.replays_by_need
        alone = replays.groups - replays.contended
        if replays.groups and not replays.contended and not by_need.contended:
            yield (
                "CPU was never short on a node: every job had all that it could use, and no policy that shares CPU "
                "makes one end sooner."
            )
        elif alone:
            yield (
                f"In {alone} of {counted(replays.groups, 'group')} of jobs on a node CPU was not short: no policy that "
                "shares CPU changes them."
            )
        if not replays.groups and self.findings and not by_need.replayed:
            unknown = sum(not each.node or each.cpu_used_core_hours is None for each in self.findings)
            yield (
                f"Whether jobs shared a node's CPU is not known: of {unknown} of {counted(len(self.findings), 'job')} "
                "the node or the CPU use is not; nothing is replayed."
                if unknown
                else "No two jobs were on one node at the same time: there was nothing to share, nothing is replayed."
            )
        if replays.replayed < replays.contended:
            yield f"{replays.replayed} of {replays.contended} groups in which CPU was short were replayed."
        if replays.replayed == 1:
            yield "One group was replayed: its interval is that of its seeds, and says nothing about other jobs."
        for of_which, error in (("", replays.fair_error_ratio), (" with GPUs", by_need.fair_error_ratio)):
            if error is not None:
                yield (
                    f"Replayed{of_which} under fair sharing, the median job's duration is {error:.0%} from the "
                    "recorded one: that is how far the model is from your cluster."
                )


def amount(value: float) -> str:
    """`2,472`, or `0.034` of a demo's minutes."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def timestamp(at_seconds: float) -> str:
    """A Unix time as RFC 3339, e.g. `2026-11-23T03:37:27Z`."""
    return datetime.fromtimestamp(at_seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _row(job: JobFinding) -> dict[str, Any]:
    """Rounded to what the samples carry: six significant digits."""
    row = {each.name: getattr(job, each.name) for each in fields(JobFinding)}
    loss = row.pop("loss")
    row |= {f"loss_{each.name}": getattr(loss, each.name, None) for each in fields(LossFinding)}
    return {
        name: float(f"{value:.6g}") if isinstance(value, float) and name != "started_at_seconds" else value
        for name, value in row.items()
    }


def _replays_json(replays: Replays) -> dict[str, Any]:
    return {
        "groups": replays.groups,
        "groups_with_cpu_short": replays.contended,
        "groups_replayed": replays.replayed,
        "jobs_replayed": replays.jobs,
        "fair_error_ratio": replays.fair_error_ratio,
        "policies": {each.policy: _policy_json(each) for each in replays.policies},
    }


def _policy_json(replay: PolicyReplay) -> dict[str, Any]:
    ratios = {name: {**replay.ratios[name].as_json(), "verdict": replay.verdict(name)} for name in replay.ratios}
    return {
        "ratio_to_fair": ratios,
        "worst_job_ratio": replay.worst_job.as_json(),
        "jobs": replay.jobs,
        "jobs_sooner": replay.jobs_sooner,
        "jobs_later": replay.jobs_later,
    }
