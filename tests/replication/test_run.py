"""Settings are run over seeds: the figures of every claim, and the baseline that the paper prints."""

from __future__ import annotations

import pytest

from replication.claims import Candidate, Claim, Setting, Variant
from replication.run import SETTINGS, Runs, _result, run_settings, values_of_seed, variants_of, with_variant
from slopewise.simulator.world.model import RunOutcome

SMALL = "flowcon-fixed"


def test_figures_of_worker_processes_are_those_of_this_one() -> None:
    done: list[str] = []
    (together,) = run_settings([SMALL], [1, 2], 2, done.append)
    alone = _result(SETTINGS[SMALL], [values_of_seed(SMALL, seed) for seed in (1, 2)])
    assert (together.setting, together.seeds, together.estimates) == (alone.setting, 2, alone.estimates)
    assert done == [SMALL, SMALL]


def test_every_claim_has_a_figure_and_the_fixed_run_under_the_baseline_is_the_printed_one() -> None:
    """The works were solved for it: this holds the scenario, the world and the figures together."""
    setting, values = SETTINGS[SMALL], values_of_seed(SMALL, 1)
    assert values.keys() == {
        (place, variant.name) for place, claim in enumerate(setting.claims) for variant in variants_of(claim, setting)
    }
    assert all(value is not None for value in values.values())
    reported = {
        claim.what: values[place, setting.variants[0].name]
        for place, claim in enumerate(setting.claims)
        if claim.candidate is None
    }
    printed = {
        "makespan, NA": 394.0,
        "MNIST-TF's completion, NA": 84.7,
        "two jobs or more overlap, NA": 240.5,
        "three jobs overlap, NA": 84.7,
    }
    assert {what: reported[what] for what in printed} == pytest.approx(printed, abs=0.1)


def test_a_reading_is_laid_over_the_parameters_of_a_candidate() -> None:
    candidate = Candidate("flowcon", {"alpha": 0.05}, 30.0)
    assert with_variant(candidate, Variant("as it is")) == candidate
    second = with_variant(candidate, Variant("v", {"alphaPer": "second"}, control="limits"))
    assert second == Candidate("flowcon", {"alpha": 0.05, "alphaPer": "second"}, 30.0, "limits")


def test_a_column_may_have_an_interval_and_a_world_of_its_own() -> None:
    slow = with_variant(Candidate("flowcon", {}, 30.0), Variant("v", interval_seconds=60.0))
    assert slow.interval_seconds == 60.0
    assert Runs(SMALL, 1, {"contentionRatio": 0.2}).instance.physics.contention_ratio == 0.2


def test_a_figure_of_the_baseline_stands_again_where_the_world_is_another() -> None:
    on_base = Claim("base", "7 s", None, "s", lambda _: None)
    read, tried = Variant("read", {"alpha": 0.1}), Variant("tried", scenario={"contentionRatio": 0.1})
    setting = Setting("s", "S", SMALL, Candidate("fair"), (on_base,), (Variant("first"), read, tried))
    assert [variant.name for variant in variants_of(on_base, setting)] == ["first", "tried"]


def test_candidates_that_differ_in_anything_have_runs_of_their_own_and_others_share_one() -> None:
    runs = Runs(SMALL, 1)
    assert runs.of(Candidate("fair")) is runs.of(Candidate("fair"))
    candidates = [
        Candidate("flowcon", {"alpha": 0.05}),
        Candidate("flowcon", {"alpha": 0.4}),
        Candidate("flowcon", {"alpha": 0.05}, 30.0),
        Candidate("flowcon", {"alpha": 0.05}, control="limits"),
    ]
    outcomes: list[RunOutcome] = [runs.of(candidate) for candidate in candidates]
    other = Runs(SMALL, 1, {"evaluation": {"normaliser": "first"}, "scrapeSeconds": 1}).of(candidates[0])
    assert len({outcome.policy for outcome in outcomes}) == len(candidates)
    assert len({outcome.jobs for outcome in (*outcomes, other)}) == len(candidates) + 1
