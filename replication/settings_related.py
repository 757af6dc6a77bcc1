"""TRADL, DRAPS and ProCon: abstracts alone are at hand, so the scenarios are ours and fixed.

All three are set against fair sharing with the fewest jobs a node, which is Docker Swarm's strategy "spread", DRAPS'
own baseline. Kubernetes' scheduler, which weighs by requests, stands beside them.
"""

from __future__ import annotations

from replication.claims import (
    NOT_PRINTED,
    Candidate,
    Claim,
    Printed,
    Setting,
    best_reduction,
    gain,
    jct_mean_seconds,
    makespan_seconds,
    of_base,
    of_ours,
    reduction,
)
from replication.figures import (
    best_target_reduction,
    migrations,
    of_jobs,
    time_to_deliverable_seconds,
    time_to_target_seconds,
)
from slopewise.simulator.world.model import SimJob

SPREAD = Candidate("fair")
KUBE = Candidate("kube-default")
_TRADL, _FLOWCON = Candidate("tradl"), Candidate("flowcon")
_DRAPS, _PROCON = Candidate("draps"), Candidate("procon")


def _has_no_target(job: SimJob) -> bool:
    return job.target_level is None and job.deliverable_level is None


TRADL = Setting(
    name="tradl",
    title="TRADL: 8 jobs, six with two targets, one node",
    scenario="tradl",
    baseline=SPREAD,
    claims=(
        Claim("mean time to the target, fair sharing", *NOT_PRINTED, "s", of_base(time_to_target_seconds)),
        gain(
            "mean time to the target falls", "less, in words", "a gain", "%",
            reduction(time_to_target_seconds), _TRADL,
        ),
        Claim("best job's time to its target falls", "up to 48.2 %", 48.2, "%", best_target_reduction, _TRADL),
        gain(
            "mean time to the deliverable level falls", "less, in words", "a gain", "%",
            reduction(time_to_deliverable_seconds), _TRADL,
        ),
        gain("mean completion falls", *NOT_PRINTED, "%", reduction(jct_mean_seconds), _TRADL),
        gain(
            "mean completion of the two jobs without a target falls", *NOT_PRINTED, "%",
            of_jobs(_has_no_target, lambda job: job.jct_seconds), _TRADL,
        ),
        gain(
            "mean time to the target falls, FlowCon, which knows no targets", *NOT_PRINTED, "%",
            reduction(time_to_target_seconds), _FLOWCON,
        ),
    ),
)  # fmt: skip


def _placing(
    name: str, who: Candidate, completion: tuple[str, Printed], makespan: tuple[str, Printed]
) -> tuple[Claim, ...]:
    return (
        gain(f"mean completion falls, {name}", *completion, "%", reduction(jct_mean_seconds), who),
        gain(f"makespan falls, {name}", *makespan, "%", reduction(makespan_seconds), who),
    )


def _against_spread(name: str, title: str, scenario: str, *claims: Claim) -> Setting:
    spread = Claim("mean completion, spread", *NOT_PRINTED, "s", of_base(jct_mean_seconds))
    return Setting(name, title, scenario, SPREAD, (spread, *claims))


DRAPS = _against_spread(
    "draps",
    "DRAPS: 30 CPU-heavy and memory-heavy jobs, unlike nodes",
    "draps",
    *_placing("DRAPS", _DRAPS, ("better, in words", "a gain"), ("better, in words", "a gain")),
    Claim("moves a run, DRAPS", *NOT_PRINTED, "", of_ours(migrations), _DRAPS),
    *_placing("kube-default", KUBE, NOT_PRINTED, NOT_PRINTED),
    *_placing("ProCon", _PROCON, NOT_PRINTED, NOT_PRINTED),
)

PROCON = _against_spread(
    "procon",
    "ProCon: 24 jobs, short and long, 4 equal nodes",
    "procon",
    *_placing("ProCon", _PROCON, ("less, in words", "a gain"), ("23.0 % (overall performance)", 23.0)),
    Claim("best job's time falls, ProCon", "up to 53.3 %", 53.3, "%", best_reduction, _PROCON),
    *_placing("kube-default", KUBE, NOT_PRINTED, NOT_PRINTED),
    *_placing("DRAPS", _DRAPS, NOT_PRINTED, NOT_PRINTED),
)

UNLIKE_NODES = _against_spread(
    "placement-heterogeneous",
    "DRAPS and ProCon: 30 jobs on five unlike nodes",
    "heterogeneous",
    *_placing("DRAPS", _DRAPS, ("better, in words", "a gain"), ("better, in words", "a gain")),
    *_placing("ProCon", _PROCON, NOT_PRINTED, NOT_PRINTED),
    *_placing("kube-default", KUBE, NOT_PRINTED, NOT_PRINTED),
)

SETTINGS = (TRADL, DRAPS, UNLIKE_NODES, PROCON)
