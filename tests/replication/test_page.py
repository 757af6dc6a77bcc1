"""The page: what it says about a figure follows the rule that it states, and a reader finds their way on it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from replication.claims import Candidate, Claim, Pair, Printed, Setting, Unit, Variant
from replication.page import Verdict, anchor, page, shown, verdict
from replication.run import Result
from slopewise.reports.estimates import Estimate

FAIR = Candidate("fair")


def nothing(_: Pair) -> float | None:
    return None


def a_claim(printed: Printed = 10.0, neutral: float | None = 0.0, unit: Unit = "%", what: str = "it") -> Claim:
    return Claim(what, "10 %", printed, unit, nothing, FAIR, neutral)


def ours(mean: float | None, half: float | None = None, count: int = 24) -> Estimate:
    if mean is None or half is None:
        return Estimate(mean, None, None, count)
    return Estimate(mean, mean - half, mean + half, count)


OF_JOBS, OF_RANGE = a_claim(9, 5, "jobs"), a_claim((1.0, 5.0))
IN_WORDS, NO_GAIN = a_claim("a gain"), a_claim(neutral=None)


@pytest.mark.parametrize(
    ("claim", "mean", "half", "message"),
    [
        (a_claim(), 12.0, 3.0, "agrees"),  # 10 lies in [9, 15]
        (a_claim(), 9.1, 0.1, "agrees"),  # within a tenth of 10
        (a_claim(), 5.0, 2.0, "same direction"),
        (a_claim(), 8.0, 9.0, "no effect"),  # 10 lies in [-1, 17], and so does none
        (a_claim(), 0.3, 0.1, "no effect"),  # a gain, of less than half a per cent
        (a_claim(), -5.0, 2.0, "contradicts"),
        *((OF_JOBS, mean, 0.2, said) for mean, said in (
            (5.1, "no effect"), (5.3, "same direction"), (4.7, "contradicts"), (9.0, "agrees"))),
        (NO_GAIN, 11.0, 0.1, "agrees"),
        (NO_GAIN, 20.0, 1.0, "differs"),
        *((OF_RANGE, mean, 0.2, said) for mean, said in (
            (0.9, "agrees"), (5.1, "agrees"), (8.0, "same direction"))),
        *((IN_WORDS, mean, 1.0, said) for mean, said in (
            (4.0, "same direction"), (0.6, "no effect"), (-4.0, "contradicts"))),
        (a_claim(None), 10.0, 1.0, ""),
        (a_claim(), None, None, ""),
        *((a_claim(), mean, None, said) for mean, said in (
            (10.0, "agrees"), (4.0, "same direction"), (-4.0, "contradicts"))),  # a single seed
    ],
)  # fmt: skip
def test_a_figure_is_judged_by_its_interval(
    claim: Claim, mean: float | None, half: float | None, message: Verdict
) -> None:
    assert verdict(claim, ours(mean, half)) == message


@pytest.mark.parametrize(
    ("estimate", "unit", "text"),
    [
        (ours(13.24, 1.3), "%", "13.2 [11.9, 14.5] %"),
        (ours(1234.4, 10.0), "s", "1234 [1224, 1244] s"),
        (ours(6.5, 0.5), "jobs", "6.5 [6.0, 7.0]"),
        (ours(6.5), "jobs", "6.5"),
        (ours(-0.01, 0.0), "%", "0.0 [0.0, 0.0] %"),
        (ours(500.0, 10.0, count=7), "%", "500.0 [490.0, 510.0] % (7 of 24 seeds)"),
        (ours(None, count=0), "%", "–"),
        (None, "%", ""),
    ],
)
def test_a_figure_is_shown_with_its_interval_and_how_many_seeds_have_it(
    estimate: Estimate | None, unit: Unit, text: str
) -> None:
    assert shown(estimate, unit, 24) == text


@pytest.mark.parametrize(
    ("title", "message"),
    [
        ("FlowCon: three jobs at fixed times (6.1.3)", "flowcon-three-jobs-at-fixed-times-613"),
        ("SpeCon: 20 VAE in [0, 300], α varied (6.2.3)", "specon-20-vae-in-0-300-α-varied-623"),
        ("FlowCon 2.0: 20 jobs, 4 workers", "flowcon-20-20-jobs-4-workers"),
        ("one_two - three", "one_two---three"),
    ],
)
def test_anchors_are_those_that_github_gives_a_heading(title: str, message: str) -> None:
    assert anchor(title) == message


def a_setting(name: str, *claims: Claim, variants: Sequence[Variant] = (Variant("ours"),)) -> Setting:
    return Setting(name, f"Title of {name}", name, FAIR, claims, tuple(variants))


def a_result(setting: Setting, *means: float, seeds: int = 24) -> Result:
    estimates = {
        (place, variant.name): ours(mean, 0.1)
        for place, mean in enumerate(means)
        for variant in (setting.variants if setting.claims[place].candidate else setting.variants[:1])
    }
    return Result(setting, seeds, estimates)


def test_the_summary_counts_the_verdicts_on_the_first_reading() -> None:
    claims = [a_claim(what=f"claim {number}") for number in range(3)] + [a_claim(printed=None), a_claim(neutral=None)]
    result = a_result(a_setting("some", *claims, variants=[Variant("one"), Variant("two")]), 10.0, 5.0, -5.0, 1.0, 1.0)
    text = page([result], {}, "")
    assert "| [Title of some](#title-of-some) | 4 | 1 | 1 |  | 1 | 1 |" in text


def test_every_reading_has_a_column_and_the_baseline_is_shown_once() -> None:
    of_base = Claim("base", "7 s", None, "s", nothing)
    setting = a_setting("some", of_base, a_claim(), variants=[Variant("one"), Variant("two")])
    lines = page([a_result(setting, 7.0, 10.0)], {}, "").splitlines()
    assert "| figure | printed | one | two | |" in lines
    assert "| base | 7 s | 7.0 [6.9, 7.1] s |  |  |" in lines
    assert "| it | 10 % | 10.0 [9.9, 10.1] % | 10.0 [9.9, 10.1] % | agrees |" in lines


def test_a_picture_stands_with_its_own_setting_though_another_begins_like_it() -> None:
    first, second = (a_result(a_setting(name, a_claim()), 10.0) for name in ("run", "run-random"))
    text = page([first, second], {"run-random": ["run-random-interval.svg"]}, "")
    before, after = text.split("## Title of run-random")
    assert "run-random-interval.svg" not in before
    assert after.count("(images/run-random-interval.svg)") == 1
