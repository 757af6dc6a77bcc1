"""SpeCon's published settings (thesis 6.2) and FlowCon 2.0's (abstract): several nodes.

The baseline is the default scheduler (DS). SpeCon does not place: the simulator's own default scheduler places its jobs
and those of the baseline, by the CPU in use, as the thesis says, and by the number of jobs beside that. FlowCon 2.0
places: its baseline is kube-default, which sees pods without requests and so counts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from replication.claims import (
    AGAIN,
    NOT_PRINTED,
    Candidate,
    Claim,
    Printed,
    Setting,
    Variant,
    best_reduction,
    gain,
    jct_mean_seconds,
    jobs_faster,
    jobs_slower,
    losers_mean_increase_seconds,
    makespan_seconds,
    of_base,
    of_ours,
    reduction,
)
from replication.figures import (
    first_move_seconds,
    idle_received_percent,
    migrations,
    most_on_a_node,
    moves_of,
    rebalanced_to_idle,
    time_to_90_seconds,
    winners_mean_reduction,
    winners_mean_reduction_seconds,
)
from slopewise.config.training_policy import PlacementChoice

DS = Candidate("kube-default", {"requests": "none"})
UNMOVED = Candidate("fair")
"""DS for SpeCon, which does not place: the same default scheduler with the same ties, so that moves alone differ."""

SCHEDULERS = (
    Variant("DS by least used CPU"),
    Variant("DS by fewest jobs", scenario={"defaultScheduler": "fewest-jobs"}),
    Variant("DS by least used CPU, recorded losses", scenario={"recordedLosses": "train_ema"}),
)
"""The thesis' own scheduler first: "purely based on the current resource usage" (6.2.3). Then Kubernetes', and jobs of
which each reports what its model really reported (`make record`)."""


def _winners(who: Candidate, seconds: tuple[str, Printed], percent: tuple[str, Printed]) -> tuple[Claim, ...]:
    """By how much those end sooner that do; `losers_mean_increase_seconds` is the other side."""
    what = "winners end sooner by, on average"
    return (
        Claim(f"{what}, s", *seconds, "s", winners_mean_reduction_seconds, who),
        Claim(f"{what}, %", *percent, "%", winners_mean_reduction, who),
    )


def _specon(alpha: float = 0.01, interval_seconds: float = 30.0) -> Candidate:
    return Candidate("specon", {"alpha": alpha}, interval_seconds)


_SPECON = _specon()

_LOCAL = Candidate("flowcon", {"alpha": 0.05}, 20.0)
_PLACED_BY_DS = replace(_LOCAL, placement=PlacementChoice(name="kube-default", parameters={"requests": "none"}))
"""What FlowCon 2.0 does within a node, placed as its baseline is."""
_GLOBAL = PlacementChoice(name="specon", parameters={"alpha": 0.01}, interval_seconds=30.0)


def _as_one_system() -> tuple[Claim, ...]:
    """FlowCon on each node, SpeCon's moves, and both together, which the thesis describes and does not measure."""
    falls = (
        ("mean completion falls", jct_mean_seconds),
        ("makespan falls", makespan_seconds),
        ("mean time to 90 % of the improvement falls", time_to_90_seconds),
    )
    who = (
        ("FlowCon", _LOCAL),
        ("SpeCon", _SPECON),  # also where a row above has it, so that the three stand together
        ("FlowCon + SpeCon", replace(_LOCAL, placement=_GLOBAL)),
    )
    return tuple(
        gain(f"{what}, {name}", *NOT_PRINTED, "%", reduction(figure), candidate)
        for what, figure in falls
        for name, candidate in who
    )


VAE_EVERY_50 = Setting(
    name="specon-20-vae",
    title="SpeCon: 20 VAE, one every 50 s, 4 workers (6.2.2)",
    scenario="specon-20-vae",
    baseline=UNMOVED,
    variants=SCHEDULERS,
    claims=(
        Claim("mean completion, DS", "275.2 s", None, "s", of_base(jct_mean_seconds)),
        Claim("mean completion, SpeCon", "234.7 s", None, "s", of_ours(jct_mean_seconds), _SPECON),
        gain("mean completion falls", "14.7 %", 14.7, "%", reduction(jct_mean_seconds), _SPECON),
        gain("mean completion falls, α = 0.05", *NOT_PRINTED, "%", reduction(jct_mean_seconds), _specon(0.05)),
        Claim("makespan, DS", "1260 s", None, "s", of_base(makespan_seconds)),
        Claim("makespan, SpeCon", "1190 s", None, "s", of_ours(makespan_seconds), _SPECON),
        gain("makespan falls", "5.6 % (1260 → 1190 s)", 5.6, "%", reduction(makespan_seconds), _SPECON),
        gain("jobs faster of 20", "11", 11, "jobs", jobs_faster, _SPECON, neutral=10),
        Claim("best job's time falls", "37.6 % (348.7 → 217.6 s)", 37.6, "%", best_reduction, _SPECON),
        Claim("losers end later by, on average", "18.3 s", 18.3, "s", losers_mean_increase_seconds, _SPECON),
        *_winners(_SPECON, ("83.6 s", 83.6), ("26.7 %", 26.7)),
        Claim("moves a run", *NOT_PRINTED, "", of_ours(migrations), _SPECON),
        Claim("moves a run, α = 0.1", *NOT_PRINTED, "", of_ours(migrations), _specon(0.1)),
        gain("mean completion falls, α = 0.1", *NOT_PRINTED, "%", reduction(jct_mean_seconds), _specon(0.1)),
        Claim("most jobs on a worker at once, DS", *NOT_PRINTED, "", of_base(most_on_a_node)),
        *_as_one_system(),
    ),
)


def _mean_falls(printed: float, alpha: float, interval_seconds: float, again: str = "") -> Claim:
    what = f"mean completion falls, α = {alpha:g}, {interval_seconds:g} s{again}"
    return gain(what, f"{printed} %", printed, "%", reduction(jct_mean_seconds), _specon(alpha, interval_seconds))


def _moves(alpha: float) -> tuple[Claim, ...]:
    """How many jobs are moved, and what becomes of winners and losers, at intervals of 30 s."""
    who = _specon(alpha)
    return (
        Claim(f"moves a run, α = {alpha:g}", *NOT_PRINTED, "", of_ours(migrations), who),
        Claim(
            f"winners end sooner by, on average, α = {alpha:g}", *NOT_PRINTED, "s", winners_mean_reduction_seconds, who
        ),
        Claim(f"losers end later by, on average, α = {alpha:g}", *NOT_PRINTED, "s", losers_mean_increase_seconds, who),
    )


VAE_RANDOM = Setting(
    name="specon-20-vae-random",
    title="SpeCon: 20 VAE in [0, 300], 4 workers, α and interval varied (6.2.3)",
    scenario="specon-20-vae-random",
    baseline=UNMOVED,
    variants=SCHEDULERS,
    claims=(
        Claim("mean completion, DS", *NOT_PRINTED, "s", of_base(jct_mean_seconds)),
        Claim("mean completion, SpeCon, α = 0.05, 30 s", *NOT_PRINTED, "s", of_ours(jct_mean_seconds), _specon(0.05)),
        _mean_falls(1.1, 0.05, 20),
        _mean_falls(5.2, 0.05, 25),
        _mean_falls(8.0, 0.05, 30),
        _mean_falls(7.2, 0.01, 30),
        _mean_falls(3.2, 0.05, 30, again=AGAIN),
        _mean_falls(9.5, 0.1, 30),
        *_moves(0.01),
        *_moves(0.1),
        *_as_one_system(),
    ),
)

MIXED_20 = Setting(
    name="specon-20-mixed",
    title="SpeCon: 20 mixed jobs in [0, 300], 4 workers (6.2.3)",
    scenario="specon-20-mixed",
    baseline=UNMOVED,
    variants=SCHEDULERS,
    claims=(
        Claim("mean completion, DS", *NOT_PRINTED, "s", of_base(jct_mean_seconds)),
        Claim("mean completion, SpeCon", *NOT_PRINTED, "s", of_ours(jct_mean_seconds), _SPECON),
        gain("mean completion falls", "13.6 %", 13.6, "%", reduction(jct_mean_seconds), _SPECON),
        Claim("makespan, DS", "1421 s", None, "s", of_base(makespan_seconds)),
        gain("makespan falls", "24.7 % (1421 → 1070 s)", 24.7, "%", reduction(makespan_seconds), _SPECON),
        gain("jobs faster of 20", "15", 15, "jobs", jobs_faster, _SPECON, neutral=10),
        Claim("jobs slower of 20", "at most 5", None, "jobs", jobs_slower, _SPECON),
        Claim("best job's time falls", "31.6 % (1167.8 → 799.2 s)", 31.6, "%", best_reduction, _SPECON),
        Claim("losers end later by, on average", "110.8 s", 110.8, "s", losers_mean_increase_seconds, _SPECON),
        *_winners(_SPECON, ("165.7 s", 165.7), NOT_PRINTED),
        Claim("moves a run", *NOT_PRINTED, "", of_ours(migrations), _SPECON),
        *_as_one_system(),
    ),
)

MIXED_30 = Setting(
    name="specon-30-mixed",
    title="SpeCon: 30 mixed jobs in [0, 300], 4 workers (6.2.3)",
    scenario="specon-30-mixed",
    baseline=UNMOVED,
    variants=SCHEDULERS,
    claims=(
        Claim("mean completion, DS", "799.5 s", None, "s", of_base(jct_mean_seconds)),
        Claim("mean completion, SpeCon", "752.6 s", None, "s", of_ours(jct_mean_seconds), _SPECON),
        gain("mean completion falls", "5.9 %", 5.9, "%", reduction(jct_mean_seconds), _SPECON),
        Claim("makespan, DS", "1640 s", None, "s", of_base(makespan_seconds)),
        gain("makespan falls", "16.4 % (1640 → 1370 s)", 16.4, "%", reduction(makespan_seconds), _SPECON),
        gain("jobs faster of 30", "20", 20, "jobs", jobs_faster, _SPECON, neutral=15),
        Claim("jobs slower of 30", "at most 10", None, "jobs", jobs_slower, _SPECON),
        Claim("best job's time falls", "29.6 % (447.4 → 314.9 s)", 29.6, "%", best_reduction, _SPECON),
        gain(
            "load imbalance falls", "not printed, but more even", None, "%",
            reduction(lambda run: run.load_imbalance_ratio), _SPECON,
        ),
        *_winners(_SPECON, NOT_PRINTED, NOT_PRINTED),
        Claim("losers end later by, on average", *NOT_PRINTED, "s", losers_mean_increase_seconds, _SPECON),
        Claim(
            "first slow move, after the first arrival", "155.9 s is Job-1's", None, "s",
            of_ours(first_move_seconds("migrated")), _SPECON,
        ),
        Claim("slow moves a run (-M)", "not printed, Job-1's is one", None, "", of_ours(moves_of("migrated")), _SPECON),
        Claim("rebalancing moves a run (-R)", "4 or more", None, "", of_ours(moves_of("rebalanced")), _SPECON),
        Claim(
            "first rebalancing move, after the first arrival", "soon after 904.5 s", None, "s",
            of_ours(first_move_seconds("rebalanced")), _SPECON,
        ),
        Claim(
            "an idle worker received jobs, in per cent of the runs", "yes (Worker-4)", None, "%",
            of_ours(idle_received_percent), _SPECON,
        ),
        Claim("jobs that idle workers received", "4 (23, 25, 27 and 3)", 4.0, "", of_ours(rebalanced_to_idle), _SPECON),
        *_as_one_system(),
    ),
)  # fmt: skip

MIXED_50 = Setting(
    name="specon-50-mixed",
    title="SpeCon: 50 mixed jobs in [0, 1200], 8 workers (6.2.4)",
    scenario="specon-50-mixed",
    baseline=UNMOVED,
    variants=SCHEDULERS,
    claims=(
        Claim("mean completion, DS", "596.3 s", None, "s", of_base(jct_mean_seconds)),
        Claim("mean completion, SpeCon", "553.0 s", None, "s", of_ours(jct_mean_seconds), _SPECON),
        gain("mean completion falls", "7.2 %", 7.2, "%", reduction(jct_mean_seconds), _SPECON),
        Claim("makespan, DS", "2070 s", None, "s", of_base(makespan_seconds)),
        gain("makespan falls", "11.1 % (2070 → 1840 s)", 11.1, "%", reduction(makespan_seconds), _SPECON),
        gain("jobs faster of 50", "30", 30, "jobs", jobs_faster, _SPECON, neutral=25),
        Claim("jobs slower of 50", "at most 20", None, "jobs", jobs_slower, _SPECON),
        Claim("best job's time falls", "41.5 % (467.5 → 273.4 s)", 41.5, "%", best_reduction, _SPECON),
        *_as_one_system(),
    ),
)

_FLOWCON2 = Candidate("flowcon2", {"alpha": 0.05}, 20.0)


def _flowcon2(name: str, title: str, jobs: int, printed: Mapping[str, tuple[str, float | None]]) -> Setting:
    """`printed`: by figure, as text and as a number; of most settings the abstract prints nothing."""
    best, makespan, faster = (printed.get(key, NOT_PRINTED) for key in ("best", "makespan", "faster"))
    by_ds = ", FlowCon, placed by DS"
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
            gain(f"mean completion falls{by_ds}", *NOT_PRINTED, "%", reduction(jct_mean_seconds), _PLACED_BY_DS),
            gain(f"makespan falls{by_ds}", *NOT_PRINTED, "%", reduction(makespan_seconds), _PLACED_BY_DS),
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
