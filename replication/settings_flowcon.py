"""FlowCon's published settings (thesis 6.1): the fixed run, five, ten and fifteen jobs, one node.

NA, the baseline, is unmanaged equal sharing. Three readings of what is not printed are laid beside one another: the
unit of alpha, and soft limits (shares) against hard ones.
"""

from __future__ import annotations

from functools import partial

from replication.claims import (
    Candidate,
    Claim,
    Setting,
    Variant,
    best_reduction,
    gain,
    jct_seconds,
    jobs_faster,
    makespan_seconds,
    of_base,
    of_ours,
    overlap_seconds,
    reduction,
    worst_increase,
)

NA = Candidate("fair")

READINGS = (
    Variant("shares, α per interval"),
    Variant("shares, α per second", {"alphaPer": "second"}),
    Variant("hard limits, α per interval", control="limits"),
)

_MNIST_TF = partial(jct_seconds, name="mnist-tf")


def _flowcon(alpha: float, interval_seconds: float) -> Candidate:
    return Candidate("flowcon", {"alpha": alpha}, interval_seconds)


def _makespan(printed: float, alpha: float, interval_seconds: float) -> Claim:
    what = f"makespan, α = {alpha:.0%}, itval = {interval_seconds:g}"
    candidate = _flowcon(alpha, interval_seconds)
    return Claim(what, f"{printed:g}", printed, "s", of_ours(makespan_seconds), candidate)


def _mnist_reduction(printed: float, alpha: float, interval_seconds: float) -> Claim:
    what = f"MNIST-TF's time falls, α = {alpha:.0%}, itval = {interval_seconds:g}"
    return gain(what, f"{printed:g}", printed, "%", reduction(_MNIST_TF), _flowcon(alpha, interval_seconds))


FIXED = Setting(
    name="flowcon-fixed",
    title="FlowCon: three jobs at fixed times (6.1.3)",
    scenario="flowcon-fixed",
    baseline=NA,
    variants=READINGS,
    claims=(
        Claim("makespan, NA", "394.0", 394.0, "s", of_base(makespan_seconds)),
        Claim("MNIST-TF's completion, NA", "84.7", 84.7, "s", of_base(_MNIST_TF)),
        Claim("two jobs overlap, NA", "240.5", 240.5, "s", of_base(partial(overlap_seconds, jobs=2))),
        Claim("three jobs overlap, NA", "84.7", 84.7, "s", of_base(partial(overlap_seconds, jobs=3))),
        _makespan(386.1, 0.05, 20),
        _makespan(372.4, 0.05, 30),
        _makespan(384.8, 0.05, 40),
        _makespan(389.0, 0.05, 50),
        _makespan(388.1, 0.05, 60),
        Claim(
            "MNIST-TF's completion, α = 5%, itval = 30", "57.7", 57.7, "s", of_ours(_MNIST_TF), _flowcon(0.05, 30)
        ),
        Claim(
            "two jobs overlap, α = 5%, itval = 20", "213.2", 213.2, "s",
            of_ours(partial(overlap_seconds, jobs=2)), _flowcon(0.05, 20),
        ),
        Claim(
            "three jobs overlap, α = 5%, itval = 20", "59.4", 59.4, "s",
            of_ours(partial(overlap_seconds, jobs=3)), _flowcon(0.05, 20),
        ),
        _mnist_reduction(26.2, 0.10, 20),
        _mnist_reduction(32.4, 0.10, 30),
        _mnist_reduction(14.3, 0.10, 40),
        _mnist_reduction(15.3, 0.10, 50),
        _mnist_reduction(3.1, 0.10, 60),
        _mnist_reduction(32.1, 0.01, 20),
        _mnist_reduction(31.0, 0.03, 20),
        _mnist_reduction(21.4, 0.05, 20),
        gain(
            "MNIST-TF's time falls, α = 10%, itval = 20 (printed a second time)", "19", 19.0, "%",
            reduction(_MNIST_TF), _flowcon(0.10, 20),
        ),
        _mnist_reduction(19.8, 0.15, 20),
    ),
)  # fmt: skip


def _five(alpha: float, interval_seconds: float, printed_faster: int) -> tuple[Claim, ...]:
    candidate = _flowcon(alpha, interval_seconds)
    where = f"α = {alpha:.0%}, itval = {interval_seconds:g}"
    return (
        gain(f"jobs faster of 5, {where}", f"{printed_faster}", printed_faster, "jobs", jobs_faster, candidate, 2.5),
        gain(f"makespan falls, {where}", "1 to 5", 3.0, "%", reduction(makespan_seconds), candidate),
        gain(f"best job's time falls, {where}", _BEST_OF_FIVE.get((alpha, interval_seconds), "not printed"),
              42.06 if (alpha, interval_seconds) == (0.03, 30) else None, "%", best_reduction, candidate),
        Claim(f"worst job's time grows, {where}", _WORST_OF_FIVE.get((alpha, interval_seconds), "not printed"),
              11.8 if (alpha, interval_seconds) == (0.05, 60) else None, "%", worst_increase, candidate),
    )  # fmt: skip


_BEST_OF_FIVE: dict[tuple[float, float], str] = {(0.03, 30): "42.06 (Job-3)"}
_WORST_OF_FIVE: dict[tuple[float, float], str] = {(0.05, 60): "11.8 (Job-4)"}

FIVE = Setting(
    name="flowcon-5",
    title="FlowCon: five jobs at random times (6.1.4)",
    scenario="flowcon-5",
    baseline=NA,
    variants=READINGS,
    claims=(*_five(0.03, 30, 4), *_five(0.03, 60, 5), *_five(0.05, 30, 4), *_five(0.05, 60, 4)),
)

_TEN = _flowcon(0.10, 20)
TEN = Setting(
    name="flowcon-10",
    title="FlowCon: ten jobs at random times (6.1.5)",
    scenario="flowcon-10",
    baseline=NA,
    variants=READINGS,
    claims=(
        Claim("makespan, NA", "1384.9", 1384.9, "s", of_base(makespan_seconds)),
        Claim("makespan, FlowCon", "1350.7", 1350.7, "s", of_ours(makespan_seconds), _TEN),
        gain("makespan falls", "2.5", 2.5, "%", reduction(makespan_seconds), _TEN),
        gain("jobs faster of 10", "9", 9, "jobs", jobs_faster, _TEN, neutral=5),
        gain("best job's time falls", "41.2 (188.3 → 110.8 s)", 41.2, "%", best_reduction, _TEN),
        Claim("worst job's time grows", "1.1", 1.1, "%", worst_increase, _TEN),
    ),
)

FIFTEEN = Setting(
    name="flowcon-15",
    title="FlowCon: fifteen jobs at random times (6.1.5)",
    scenario="flowcon-15",
    baseline=NA,
    variants=READINGS,
    claims=(
        Claim("makespan, NA", "1980.1", 1980.1, "s", of_base(makespan_seconds)),
        Claim("makespan, FlowCon", "1950.9", 1950.9, "s", of_ours(makespan_seconds), _TEN),
        gain("makespan falls", "1.5", 1.5, "%", reduction(makespan_seconds), _TEN),
        gain("jobs faster of 15", "11", 11, "jobs", jobs_faster, _TEN, neutral=7.5),
        gain("best job's time falls", "11.9 (308.1 → 271.4 s)", 11.9, "%", best_reduction, _TEN),
        Claim("worst job's time grows", "5.7 (196.2 → 207.5 s)", 5.7, "%", worst_increase, _TEN),
    ),
)

SETTINGS = (FIXED, FIVE, TEN, FIFTEEN)
