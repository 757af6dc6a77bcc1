"""Settings are run over seeds: the same figures every time, however many processes there are."""

from __future__ import annotations

import pytest

from controller.simulator.model import RunOutcome
from replication.claims import Candidate, Variant
from replication.run import SETTINGS, Runs, run_settings, values_of_seed, with_variant

SMALL = "flowcon-fixed"


def test_figures_do_not_depend_on_the_number_of_workers() -> None:
    done: list[str] = []
    alone = run_settings([SMALL], [1, 2], 1, done.append)
    together = run_settings([SMALL], [1, 2], 2, lambda _: None)
    assert [(result.setting, result.seeds, result.estimates) for result in alone] == [
        (result.setting, result.seeds, result.estimates) for result in together
    ]
    assert done == [SMALL, SMALL]
    assert alone[0].seeds == 2


def test_every_claim_has_a_figure_under_every_reading_and_the_baseline_under_one() -> None:
    setting, values = SETTINGS[SMALL], values_of_seed(SMALL, 1)
    names = [variant.name for variant in setting.variants]
    assert values.keys() == {
        (place, name)
        for place, claim in enumerate(setting.claims)
        for name in (names if claim.candidate is not None else names[:1])
    }
    assert all(value is not None for value in values.values())


def test_the_fixed_run_under_the_baseline_is_the_printed_one() -> None:
    """The works were solved for it: this holds the scenario, the world and the figures together."""
    told = {
        claim.what: value
        for place, claim in enumerate(SETTINGS[SMALL].claims)
        if claim.candidate is None and (value := values_of_seed(SMALL, 1)[place, SETTINGS[SMALL].variants[0].name])
    }
    assert told == pytest.approx(
        {
            "makespan, NA": 394.0,
            "MNIST-TF's completion, NA": 84.7,
            "two jobs or more overlap, NA": 240.5,
            "three jobs overlap, NA": 84.7,
        },
        abs=0.1,
    )


def test_a_reading_is_laid_over_the_parameters_of_a_candidate() -> None:
    candidate = Candidate("flowcon", {"alpha": 0.05}, 30.0)
    assert with_variant(candidate, Variant("as it is")) == candidate
    second = with_variant(candidate, Variant("v", {"alphaPer": "second"}, control="limits"))
    assert second == Candidate("flowcon", {"alpha": 0.05, "alphaPer": "second"}, 30.0, "limits")


class TestRuns:
    def test_a_candidate_is_run_once_a_seed(self) -> None:
        runs = Runs(SMALL, 1)
        assert runs.of(Candidate("fair")) is runs.of(Candidate("fair"))

    def test_candidates_that_differ_in_anything_have_runs_of_their_own(self) -> None:
        runs = Runs(SMALL, 1)
        candidates = [
            Candidate("flowcon", {"alpha": 0.05}),
            Candidate("flowcon", {"alpha": 0.4}),
            Candidate("flowcon", {"alpha": 0.05}, 30.0),
            Candidate("flowcon", {"alpha": 0.05}, control="limits"),
        ]
        outcomes: list[RunOutcome] = [runs.of(candidate) for candidate in candidates]
        assert len({outcome.policy for outcome in outcomes}) == len(candidates)
        assert len({outcome.jobs for outcome in outcomes}) == len(candidates)
