"""SpeCon's published settings (thesis 6.2) and FlowCon 2.0's (abstract): several nodes.

The baseline is the default scheduler (DS), which sees pods without requests and so counts them: for SpeCon the
simulator's own, which also places SpeCon's jobs, for FlowCon 2.0, which places, kube-default.
"""

from __future__ import annotations

from collections.abc import Mapping

from replication.claims import (
    AGAIN,
    NOT_PRINTED,
    Candidate,
    Claim,
    Setting,
    best_reduction,
    gain,
    jct_mean_seconds,
    jobs_faster,
    losers_mean_increase_seconds,
    makespan_seconds,
    of_base,
    of_ours,
    reduction,
)

DS = Candidate("kube-default", {"requests": "none"})
SPREAD = Candidate("fair")
"""DS for SpeCon, which does not place: the same fewest-jobs rule with the same ties, so that moves alone differ."""


def _specon(alpha: float = 0.01, interval_seconds: float = 30.0) -> Candidate:
    return Candidate("specon", {"alpha": alpha}, interval_seconds)


_SPECON = _specon()

VAE_EVERY_50 = Setting(
    name="specon-20-vae",
    title="SpeCon: 20 VAE, one every 50 s, 4 workers (6.2.2)",
    scenario="specon-20-vae",
    baseline=SPREAD,
    claims=(
        Claim("mean completion, DS", "275.2 s", None, "s", of_base(jct_mean_seconds)),
        Claim("mean completion, SpeCon", "234.7 s", None, "s", of_ours(jct_mean_seconds), _SPECON),
        gain("mean completion falls", "14.7 %", 14.7, "%", reduction(jct_mean_seconds), _SPECON),
        Claim("makespan, DS", "1260 s", None, "s", of_base(makespan_seconds)),
        Claim("makespan, SpeCon", "1190 s", None, "s", of_ours(makespan_seconds), _SPECON),
        gain("makespan falls", "5.6 % (1260 → 1190 s)", 5.6, "%", reduction(makespan_seconds), _SPECON),
        gain("jobs faster of 20", "11", 11, "jobs", jobs_faster, _SPECON, neutral=10),
        Claim("best job's time falls", "37.6 % (348.7 → 217.6 s)", 37.6, "%", best_reduction, _SPECON),
        Claim("losers end later by, on average", "18.3 s", 18.3, "s", losers_mean_increase_seconds, _SPECON),
    ),
)


def _mean_falls(printed: float, alpha: float, interval_seconds: float, again: str = "") -> Claim:
    what = f"mean completion falls, α = {alpha:g}, {interval_seconds:g} s{again}"
    return gain(what, f"{printed} %", printed, "%", reduction(jct_mean_seconds), _specon(alpha, interval_seconds))


VAE_RANDOM = Setting(
    name="specon-20-vae-random",
    title="SpeCon: 20 VAE in [0, 300], 4 workers, α and interval varied (6.2.3)",
    scenario="specon-20-vae-random",
    baseline=SPREAD,
    claims=(
        _mean_falls(1.1, 0.05, 20),
        _mean_falls(5.2, 0.05, 25),
        _mean_falls(8.0, 0.05, 30),
        _mean_falls(7.2, 0.01, 30),
        _mean_falls(3.2, 0.05, 30, again=AGAIN),
        _mean_falls(9.5, 0.1, 30),
    ),
)

MIXED_20 = Setting(
    name="specon-20-mixed",
    title="SpeCon: 20 mixed jobs in [0, 300], 4 workers (6.2.3)",
    scenario="specon-20-mixed",
    baseline=SPREAD,
    claims=(
        gain("mean completion falls", "13.6 %", 13.6, "%", reduction(jct_mean_seconds), _SPECON),
        gain("makespan falls", "24.7 % (1421 → 1070 s)", 24.7, "%", reduction(makespan_seconds), _SPECON),
        gain("jobs faster of 20", "15", 15, "jobs", jobs_faster, _SPECON, neutral=10),
        Claim("best job's time falls", "31.6 % (1167.8 → 799.2 s)", 31.6, "%", best_reduction, _SPECON),
        Claim("losers end later by, on average", "110.8 s", 110.8, "s", losers_mean_increase_seconds, _SPECON),
    ),
)

MIXED_30 = Setting(
    name="specon-30-mixed",
    title="SpeCon: 30 mixed jobs in [0, 300], 4 workers (6.2.3)",
    scenario="specon-30-mixed",
    baseline=SPREAD,
    claims=(
        Claim("mean completion, DS", "799.5 s", None, "s", of_base(jct_mean_seconds)),
        Claim("mean completion, SpeCon", "752.6 s", None, "s", of_ours(jct_mean_seconds), _SPECON),
        gain("mean completion falls", "5.9 %", 5.9, "%", reduction(jct_mean_seconds), _SPECON),
        gain("makespan falls", "16.4 % (1640 → 1370 s)", 16.4, "%", reduction(makespan_seconds), _SPECON),
        gain("jobs faster of 30", "20", 20, "jobs", jobs_faster, _SPECON, neutral=15),
        Claim("best job's time falls", "29.6 % (447.4 → 314.9 s)", 29.6, "%", best_reduction, _SPECON),
        gain(
            "load imbalance falls", "not printed, but more even", None, "%",
            reduction(lambda run: run.load_imbalance_ratio), _SPECON,
        ),
    ),
)  # fmt: skip

MIXED_50 = Setting(
    name="specon-50-mixed",
    title="SpeCon: 50 mixed jobs in [0, 1200], 8 workers (6.2.4)",
    scenario="specon-50-mixed",
    baseline=SPREAD,
    claims=(
        Claim("mean completion, DS", "596.3 s", None, "s", of_base(jct_mean_seconds)),
        Claim("mean completion, SpeCon", "553.0 s", None, "s", of_ours(jct_mean_seconds), _SPECON),
        gain("mean completion falls", "7.2 %", 7.2, "%", reduction(jct_mean_seconds), _SPECON),
        gain("makespan falls", "11.1 % (2070 → 1840 s)", 11.1, "%", reduction(makespan_seconds), _SPECON),
        gain("jobs faster of 50", "30", 30, "jobs", jobs_faster, _SPECON, neutral=25),
        Claim("best job's time falls", "41.5 % (467.5 → 273.4 s)", 41.5, "%", best_reduction, _SPECON),
    ),
)

_FLOWCON2 = Candidate("flowcon2", {"alpha": 0.05}, 20.0)


def _flowcon2(name: str, title: str, jobs: int, printed: Mapping[str, tuple[str, float | None]]) -> Setting:
    """`printed`: by figure, as text and as a number; of most settings the abstract prints nothing."""
    best, makespan, faster = (printed.get(key, NOT_PRINTED) for key in ("best", "makespan", "faster"))
    return Setting(
        name=name,
        title=title,
        scenario=name,
        baseline=DS,
        claims=(
            gain("mean completion falls", *NOT_PRINTED, "%", reduction(jct_mean_seconds), _FLOWCON2),
            Claim("best job's time falls", *best, "%", best_reduction, _FLOWCON2),
            gain("makespan falls", *makespan, "%", reduction(makespan_seconds), _FLOWCON2),
            gain(f"jobs faster of {jobs}", *faster, "jobs", jobs_faster, _FLOWCON2, neutral=jobs / 2),
        ),
    )


FLOWCON2_20 = _flowcon2(
    "flowcon2-20",
    "FlowCon 2.0: 20 jobs, 4 workers",
    20,
    {
        "best": ("up to 68.8 %, here the most", 68.8),
        "makespan": ("18.0 %, here the most", 18.0),
        "faster": ("18", 18),
    },
)
FLOWCON2_60 = _flowcon2(
    "flowcon2-60",
    "FlowCon 2.0: 60 jobs, 8 heterogeneous workers",
    60,
    {"makespan": ("more than on equal workers", None)},
)
FLOWCON2_60_HOMOGENEOUS = _flowcon2("flowcon2-60-homogeneous", "FlowCon 2.0: the same 60 jobs, 8 equal workers", 60, {})

SETTINGS = (
    VAE_EVERY_50, VAE_RANDOM, MIXED_20, MIXED_30, MIXED_50, FLOWCON2_20, FLOWCON2_60, FLOWCON2_60_HOMOGENEOUS,
)  # fmt: skip
