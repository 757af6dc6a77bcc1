"""FlowCon's published settings (thesis 6.1): the fixed run, five, ten and fifteen jobs, one node.

NA, the baseline, is unmanaged equal sharing. Readings of what is not printed are laid beside one another. The first is
the one that fits Fig. 6.5 (0.25 beside 1 from 40 s on): a change is divided by the first value, alpha is per second,
and the loss is read every second, because the paper's worker had no scrape to wait for. The second is what ships.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from replication.claims import (
    AGAIN,
    NOT_PRINTED,
    Candidate,
    Claim,
    Setting,
    Variant,
    best_reduction,
    gain,
    jct_mean_seconds,
    jct_seconds,
    jobs_faster,
    makespan_seconds,
    more,
    of_base,
    of_ours,
    overlap_seconds,
    reduction,
    worst_increase,
)
from replication.figures import cpu_jitter_percent, growth_efficiency_sum, time_to_90_seconds
from slopewise.simulator.results.measures import cpu_jitter_ratio
from slopewise.simulator.world.model import RunOutcome

NA = Candidate("fair")

PRINTED_SCRAPE_SECONDS = 1.0

FITS = Variant(
    "as printed",
    {"alphaPer": "second"},
    scenario={"scrapeSeconds": PRINTED_SCRAPE_SECONDS, "evaluation": {"normaliser": "first"}},
)

READINGS = (
    FITS,
    Variant("shipped default"),
    replace(FITS, name="as printed, hard limits", control="limits"),
)

RECORDED = (
    replace(FITS, name="as printed, recorded losses", scenario={**FITS.scenario, "recordedLosses": "train"}),
    Variant("shipped default, recorded losses", scenario={"recordedLosses": "train_ema"}),
)
"""The same jobs, of which each reports what its model really reported (`make record`): the loss of each step, as the
paper reads it, and its moving average, which the exporter's two lines add."""

_MNIST_TF = partial(jct_seconds, name="mnist-tf")
_TWO_OVERLAP = partial(overlap_seconds, jobs=2)
_THREE_OVERLAP = partial(overlap_seconds, jobs=3)


def _flowcon(alpha: float, interval_seconds: float) -> Candidate:
    return Candidate("flowcon", {"alpha": alpha}, interval_seconds)


def _at(alpha: float, interval_seconds: float) -> str:
    return f"α = {alpha:.0%}, itval = {interval_seconds:g} s"


def _falls(
    what: str,
    before_seconds: float,
    after_seconds: float,
    figure: Callable[[RunOutcome], float | None],
    alpha: float,
    interval_seconds: float,
) -> Claim:
    """A printed pair of seconds as the reduction that it is, e.g. 394.0 → 386.1 s: 2.0 %."""
    printed = 100 * (1 - after_seconds / before_seconds)
    return gain(
        f"{what}, {_at(alpha, interval_seconds)}", f"{printed:.1f} % ({before_seconds} → {after_seconds} s)", printed,
        "%", reduction(figure), _flowcon(alpha, interval_seconds),
    )  # fmt: skip


def _makespan_falls(after_seconds: float, interval_seconds: float) -> Claim:
    return _falls("makespan falls", 394.0, after_seconds, makespan_seconds, 0.05, interval_seconds)


def _mnist_falls(printed: float, alpha: float, interval_seconds: float, again: str = "") -> Claim:
    what = f"MNIST-TF's time falls, {_at(alpha, interval_seconds)}{again}"
    return gain(what, f"{printed} %", printed, "%", reduction(_MNIST_TF), _flowcon(alpha, interval_seconds))


def cpu_percent(run: RunOutcome, name: str, from_seconds: float, to_seconds: float) -> float:
    """A job's CPU between two times of a traced run, in per cent of the paper's node, which is one core."""
    rates = [(0.0, 0.0)]
    rates += [(e.at_seconds, float(str(e.detail["cores"]))) for e in run.events if (e.kind, e.job) == ("cpu", name)]
    ends = [at for at, _ in rates[1:]] + [to_seconds]
    used = sum(
        cores * max(0.0, min(end, to_seconds) - max(begin, from_seconds))
        for (begin, cores), end in zip(rates, ends, strict=True)
    )
    return 100 * used / (to_seconds - from_seconds)


def _cpu_from_40(what: str, name: str, printed: float) -> Claim:
    """Fig. 6.5 and its account: of the CPU from MNIST-PyTorch's arrival at 40 s to the next one's at 80 s."""
    figure = partial(cpu_percent, name=name, from_seconds=40.0, to_seconds=80.0)
    where = f"{what}'s CPU from 40 to 80 s, {_at(0.05, 20)}"
    return Claim(where, f"{printed:g} %", printed, "%", of_ours(figure), _flowcon(0.05, 20))


FIXED = Setting(
    name="flowcon-fixed",
    title="FlowCon: three jobs at fixed times (6.1.3)",
    scenario="flowcon-fixed",
    baseline=NA,
    variants=(*READINGS, *RECORDED),
    trace=True,
    claims=(
        Claim("makespan, NA", "394.0 s", None, "s", of_base(makespan_seconds)),
        Claim("MNIST-TF's completion, NA", "84.7 s", None, "s", of_base(_MNIST_TF)),
        Claim("two jobs or more overlap, NA", "240.5 s", None, "s", of_base(_TWO_OVERLAP)),
        Claim("three jobs overlap, NA", "84.7 s", None, "s", of_base(_THREE_OVERLAP)),
        _cpu_from_40("VAE", "vae", 25.0),
        _cpu_from_40("MNIST-PyTorch", "mnist-pytorch", 75.0),
        _makespan_falls(386.1, 20),
        _makespan_falls(372.4, 30),
        _makespan_falls(384.8, 40),
        _makespan_falls(389.0, 50),
        _makespan_falls(388.1, 60),
        _falls("two jobs or more overlap for less", 240.5, 213.2, _TWO_OVERLAP, 0.05, 20),
        _falls("three jobs overlap for less", 84.7, 59.4, _THREE_OVERLAP, 0.05, 20),
        _falls("MNIST-TF's time falls", 84.7, 57.7, _MNIST_TF, 0.05, 30),
        _mnist_falls(26.2, 0.10, 20),
        _mnist_falls(32.4, 0.10, 30),
        _mnist_falls(14.3, 0.10, 40),
        _mnist_falls(15.3, 0.10, 50),
        _mnist_falls(3.1, 0.10, 60),
        _mnist_falls(32.1, 0.01, 20),
        _mnist_falls(31.0, 0.03, 20),
        _mnist_falls(21.4, 0.05, 20),
        _mnist_falls(19.0, 0.10, 20, again=AGAIN),
        _mnist_falls(19.8, 0.15, 20),
    ),
)

_GRU = partial(jct_seconds, name="gru")
"""Job-5: the thesis numbers the five in the order in which it names them."""


def _five(alpha: float, interval_seconds: float, printed_faster: int) -> tuple[Claim, ...]:
    candidate, where = _flowcon(alpha, interval_seconds), _at(alpha, interval_seconds)
    return (
        gain(f"jobs faster of 5, {where}", f"{printed_faster}", printed_faster, "jobs", jobs_faster, candidate, 2.5),
        gain(f"makespan falls, {where}", "1 to 5 %", (1.0, 5.0), "%", reduction(makespan_seconds), candidate),
    )


FIVE = Setting(
    name="flowcon-5",
    title="FlowCon: five jobs at random times (6.1.4)",
    scenario="flowcon-5",
    baseline=NA,
    variants=(*READINGS, *RECORDED),
    claims=(
        *_five(0.03, 30, 4),
        *_five(0.03, 60, 5),
        *_five(0.05, 30, 4),
        *_five(0.05, 60, 4),
        Claim(
            f"best job's time falls, {_at(0.03, 30)}", "42.06 % (Job-3)", 42.06, "%", best_reduction, _flowcon(0.03, 30)
        ),
        Claim(
            f"worst job's time grows, {_at(0.05, 60)}", "11.8 % (Job-4, 422.5 → 472.4 s)", 11.8, "%", worst_increase,
            _flowcon(0.05, 60),
        ),
        _falls("Job-5's (GRU's) time falls", 489.4, 401.6, _GRU, 0.03, 30),
        _falls("Job-5's (GRU's) time falls", 489.4, 396.4, _GRU, 0.05, 60),
    ),
)  # fmt: skip

_TEN = _flowcon(0.10, 20)
TEN = Setting(
    name="flowcon-10",
    title="FlowCon: ten jobs at random times (6.1.5)",
    scenario="flowcon-10",
    baseline=NA,
    variants=(*READINGS, *RECORDED),
    claims=(
        Claim("makespan, NA", "1384.9 s", None, "s", of_base(makespan_seconds)),
        Claim("makespan, FlowCon", "1350.7 s", None, "s", of_ours(makespan_seconds), _TEN),
        gain("makespan falls", "2.5 %", 2.5, "%", reduction(makespan_seconds), _TEN),
        gain("jobs faster of 10", "9", 9, "jobs", jobs_faster, _TEN, neutral=5),
        Claim("best job's time falls", "41.2 % (188.3 → 110.8 s)", 41.2, "%", best_reduction, _TEN),
        Claim("worst job's time grows", "1.1 %", 1.1, "%", worst_increase, _TEN),
        gain(
            "jitter of a job's CPU falls",
            "much smoother (6.13, 6.14)",
            "a gain",
            "%",
            reduction(cpu_jitter_ratio),
            _TEN,
        ),
        Claim("jitter of a job's CPU, NA", *NOT_PRINTED, "%", of_base(cpu_jitter_percent)),
        gain(
            "sum of growth efficiencies grows",
            "to be maximised (Eq. 4.3)",
            None,
            "%",
            more(growth_efficiency_sum),
            _TEN,
        ),
        gain("mean completion falls", *NOT_PRINTED, "%", reduction(jct_mean_seconds), _TEN),
        gain("mean time to 90 % of the improvement falls", *NOT_PRINTED, "%", reduction(time_to_90_seconds), _TEN),
    ),
)

FIFTEEN = Setting(
    name="flowcon-15",
    title="FlowCon: fifteen jobs at random times (6.1.5)",
    scenario="flowcon-15",
    baseline=NA,
    variants=(*READINGS, *RECORDED),
    claims=(
        Claim("makespan, NA", "1980.1 s", None, "s", of_base(makespan_seconds)),
        Claim("makespan, FlowCon", "1950.9 s", None, "s", of_ours(makespan_seconds), _TEN),
        gain("makespan falls", "1.5 %", 1.5, "%", reduction(makespan_seconds), _TEN),
        gain("jobs faster of 15", "11", 11, "jobs", jobs_faster, _TEN, neutral=7.5),
        Claim("best job's time falls", "11.9 % (308.1 → 271.4 s)", 11.9, "%", best_reduction, _TEN),
        Claim("worst job's time grows", "5.7 % (196.2 → 207.5 s)", 5.7, "%", worst_increase, _TEN),
    ),
)

SETTINGS = (FIXED, FIVE, TEN, FIFTEEN)
