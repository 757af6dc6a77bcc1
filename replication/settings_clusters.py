"""SpeCon's published settings (thesis 6.2) and FlowCon 2.0's (abstract): several nodes.

The baseline is the default scheduler (DS): kube-default, which sees pods without requests and so counts them.
"""

from __future__ import annotations

from replication.claims import (
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


def _specon(alpha: float = 0.01, interval_seconds: float = 30.0) -> Candidate:
    return Candidate("specon", {"alpha": alpha}, interval_seconds)


_SPECON = _specon()

VAE_EVERY_50 = Setting(
    name="specon-20-vae",
    title="SpeCon: 20 VAE, one every 50 s, 4 workers (6.2.2)",
    scenario="specon-20-vae",
    baseline=DS,
    claims=(
        Claim("mean completion, DS", "275.2", 275.2, "s", of_base(jct_mean_seconds)),
        Claim("mean completion, SpeCon", "234.7", 234.7, "s", of_ours(jct_mean_seconds), _SPECON),
        gain("mean completion falls", "14.7", 14.7, "%", reduction(jct_mean_seconds), _SPECON),
        Claim("makespan, DS", "1260", 1260, "s", of_base(makespan_seconds)),
        Claim("makespan, SpeCon", "1190", 1190, "s", of_ours(makespan_seconds), _SPECON),
        gain("jobs faster of 20", "11", 11, "jobs", jobs_faster, _SPECON, neutral=10),
        gain("best job's time falls", "37.6 (348.7 → 217.6 s)", 37.6, "%", best_reduction, _SPECON),
        Claim("losers end later by, on average", "18.3", 18.3, "s", losers_mean_increase_seconds, _SPECON),
    ),
)


def _mean_falls(printed: float, alpha: float, interval_seconds: float) -> Claim:
    what = f"mean completion falls, α = {alpha:g}, {interval_seconds:g} s"
    return gain(what, f"{printed:g}", printed, "%", reduction(jct_mean_seconds), _specon(alpha, interval_seconds))


VAE_RANDOM = Setting(
    name="specon-20-vae-random",
    title="SpeCon: 20 VAE in [0, 300], 4 workers, α and interval varied (6.2.3)",
    scenario="specon-20-vae-random",
    baseline=DS,
    claims=(
        _mean_falls(1.1, 0.05, 20),
        _mean_falls(5.2, 0.05, 25),
        _mean_falls(8.0, 0.05, 30),
        _mean_falls(7.2, 0.01, 30),
        gain(
            "mean completion falls, α = 0.05, 30 s (printed a second time)", "3.2", 3.2, "%",
            reduction(jct_mean_seconds), _specon(0.05, 30),
        ),
        _mean_falls(9.5, 0.1, 30),
    ),
)  # fmt: skip

MIXED_20 = Setting(
    name="specon-20-mixed",
    title="SpeCon: 20 mixed jobs in [0, 300], 4 workers (6.2.3)",
    scenario="specon-20-mixed",
    baseline=DS,
    claims=(
        gain("mean completion falls", "13.6", 13.6, "%", reduction(jct_mean_seconds), _SPECON),
        gain("makespan falls", "24.7 (1421 → 1070 s)", 24.7, "%", reduction(makespan_seconds), _SPECON),
        gain("jobs faster of 20", "15", 15, "jobs", jobs_faster, _SPECON, neutral=10),
        gain("best job's time falls", "31.6 (1167.8 → 799.2 s)", 31.6, "%", best_reduction, _SPECON),
        Claim("losers end later by, on average", "110.8", 110.8, "s", losers_mean_increase_seconds, _SPECON),
    ),
)

MIXED_30 = Setting(
    name="specon-30-mixed",
    title="SpeCon: 30 mixed jobs in [0, 300], 4 workers (6.2.3)",
    scenario="specon-30-mixed",
    baseline=DS,
    claims=(
        Claim("mean completion, DS", "799.5", 799.5, "s", of_base(jct_mean_seconds)),
        Claim("mean completion, SpeCon", "752.6", 752.6, "s", of_ours(jct_mean_seconds), _SPECON),
        gain("mean completion falls", "5.9", 5.9, "%", reduction(jct_mean_seconds), _SPECON),
        gain("makespan falls", "16.4 (1640 → 1370 s)", 16.4, "%", reduction(makespan_seconds), _SPECON),
        gain("jobs faster of 30", "20", 20, "jobs", jobs_faster, _SPECON, neutral=15),
        gain("best job's time falls", "29.6 (447.4 → 314.9 s)", 29.6, "%", best_reduction, _SPECON),
        gain(
            "load imbalance falls", "not printed (more even)", None, "%",
            reduction(lambda run: run.load_imbalance_ratio), _SPECON,
        ),
    ),
)  # fmt: skip

MIXED_50 = Setting(
    name="specon-50-mixed",
    title="SpeCon: 50 mixed jobs in [0, 1200], 8 workers (6.2.4)",
    scenario="specon-50-mixed",
    baseline=DS,
    claims=(
        Claim("mean completion, DS", "596.3", 596.3, "s", of_base(jct_mean_seconds)),
        Claim("mean completion, SpeCon", "553.0", 553.0, "s", of_ours(jct_mean_seconds), _SPECON),
        gain("mean completion falls", "7.2", 7.2, "%", reduction(jct_mean_seconds), _SPECON),
        gain("makespan falls", "11.1 (2070 → 1840 s)", 11.1, "%", reduction(makespan_seconds), _SPECON),
        gain("jobs faster of 50", "30", 30, "jobs", jobs_faster, _SPECON, neutral=25),
        gain("best job's time falls", "41.5 (467.5 → 273.4 s)", 41.5, "%", best_reduction, _SPECON),
    ),
)

_FLOWCON2 = Candidate("flowcon2", {"alpha": 0.05}, 20.0)


def _flowcon2(name: str, title: str, printed: dict[str, tuple[str, float | None]], jobs: int) -> Setting:
    def claim(what: str, key: str, unit: str, value: object) -> Claim:
        text, number = printed.get(key, ("not printed", None))
        return Claim(what, text, number, unit, value, _FLOWCON2)  # type: ignore[arg-type]

    return Setting(
        name=name,
        title=title,
        scenario=name,
        baseline=DS,
        claims=(
            claim("mean completion falls", "mean", "%", reduction(jct_mean_seconds)),
            claim("best job's time falls", "best", "%", best_reduction),
            claim("makespan falls", "makespan", "%", reduction(makespan_seconds)),
            claim(f"jobs faster of {jobs}", "faster", "jobs", jobs_faster),
        ),
    )


FLOWCON2_20 = _flowcon2(
    "flowcon2-20",
    "FlowCon 2.0: 20 jobs, 4 workers",
    {"best": ("68.8 (the best anywhere)", 68.8), "makespan": ("18.0 (the best anywhere)", 18.0), "faster": ("18", 18)},
    20,
)
FLOWCON2_60 = _flowcon2("flowcon2-60", "FlowCon 2.0: 60 jobs, 8 heterogeneous workers", {}, 60)
FLOWCON2_60_HOMOGENEOUS = _flowcon2("flowcon2-60-homogeneous", "FlowCon 2.0: the same 60 jobs, 8 equal workers", {}, 60)

SETTINGS = (
    VAE_EVERY_50, VAE_RANDOM, MIXED_20, MIXED_30, MIXED_50, FLOWCON2_20, FLOWCON2_60, FLOWCON2_60_HOMOGENEOUS,
)  # fmt: skip
