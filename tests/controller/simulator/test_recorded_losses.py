"""Recorded losses: a job reports what was recorded, and improves as the recording's trend does."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scenarios import a_scenario

from slopewise.errors import UsageError
from slopewise.simulator.curves import Recorded, recorded
from slopewise.simulator.scenario.builtin_models import BUILT_IN, RECORDED
from slopewise.simulator.scenario.curve_settings import recorded_loss, shipped
from slopewise.simulator.scenario.scenario import Scenario, load_scenario
from slopewise.simulator.workload import draw
from slopewise.simulator.world.model import SimJob

NOISY = [(0.0, 5.0), (0.25, 2.0), (0.5, 3.0), (0.75, 1.0), (1.0, 1.0)]
LOSSES = st.lists(st.floats(0.1, 10), min_size=2, max_size=60)


def reported(curve: Recorded, done_ratio: float) -> float:
    """In units of the loss."""
    return curve.best + (curve.first - curve.best) * curve.at(done_ratio)


def a_job(curve: object, **job: object) -> SimJob:
    models = {"mine": {"workCpuSeconds": 100, "curve": curve}}
    return draw(a_scenario(jobs=[{"name": "a", "model": "mine", **job}], models=models), 1).jobs[0]


class TestTheCurve:
    def test_reports_what_was_recorded_last_until_the_next_point(self) -> None:
        curve = recorded(NOISY)
        assert (curve.first, curve.best) == (5.0, 1.0)
        at = (0.0, 0.24, 0.25, 0.6, 0.75, 1.0)
        assert [reported(curve, x) for x in at] == pytest.approx([5.0, 5.0, 2.0, 3.0, 1.0, 1.0], abs=1e-12)

    def test_improves_as_the_falling_trend_with_the_least_squares_does(self) -> None:
        # 2 and 3 rise and are pooled: 2.5 in their middle, at 0.375; it is 1 at the end.
        trend = recorded(NOISY).trend
        assert [1 + 4 * trend.at(x) for x in (0.0, 0.375, 1.0)] == pytest.approx([5.0, 2.5, 1.0])

    def test_reaches_nothing_by_one_low_loss(self) -> None:
        falling = [(n / 100, 10 - n / 20) for n in range(101)]
        lucky = [(x, 5.2 if x == 0.1 else loss) for x, loss in falling]
        assert recorded(lucky).reached(0.5) == pytest.approx(recorded(falling).reached(0.5), abs=0.02)

    def test_ends_at_the_mean_of_its_last_twentieth(self) -> None:
        flat = [(n / 100, 10.0 if n == 0 else 2.0 + (n % 2)) for n in range(101)]
        assert recorded(flat).best == pytest.approx(2.4)  # of 2, 3, 2, 3, 2

    @given(losses=LOSSES, improvement=st.floats(0, 1), more=st.floats(0, 1))
    def test_is_what_was_recorded_and_reaches_more_no_sooner_and_where_its_trend_says(
        self, losses: list[float], improvement: float, more: float
    ) -> None:
        pairs = [(n / len(losses), loss) for n, loss in enumerate([11.0, *losses])]
        curve = recorded(pairs)
        assert [reported(curve, x) for x, _ in pairs] == pytest.approx([loss for _, loss in pairs], rel=1e-9)
        x, later = curve.reached(improvement), curve.reached(min(1.0, improvement + more))
        assert x is not None
        assert later is not None
        assert 0 <= x <= later <= 1
        assert curve.trend.at(x) == pytest.approx(1 - improvement, abs=1e-6)

    @pytest.mark.parametrize(
        ("pairs", "message"),
        [
            ([(0.5, 2.0), (0.5, 1.0)], "the fractions of the work must increase"),
            ([(0.0, 2.0), (1.5, 1.0)], "the fractions of the work must increase, between 0 and 1"),
            ([(0.0, 2.0), (1.0, math.nan)], "a loss is not finite"),
            ([(0.0, 1.0), (1.0, 2.0)], "the loss does not fall: it ends at 2 on average"),
        ],
    )
    def test_that_cannot_be_used_is_refused(self, pairs: list[tuple[float, float]], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            recorded(pairs)


class TestInAScenario:
    def test_a_job_reports_the_recorded_loss_without_any_noise_added(self) -> None:
        job, curve = a_job({"recorded": "vae-pytorch"}), recorded_loss("vae-pytorch", "train_ema")
        assert (job.curve, job.noise) == (curve, 0.0)
        assert job.losses == (curve.first, curve.best)
        assert job.loss_at(curve.at(0.5)) == pytest.approx(reported(curve, 0.5))

    def test_an_unknown_name_is_answered_with_all_there_are(self) -> None:
        with pytest.raises(UsageError) as refused:
            a_job({"recorded": "resnet"})
        assert str(refused.value) == (
            "scenario.yaml: spec.models.mine.curve.recorded: there is no recorded loss 'resnet'; use one of "
            f"{', '.join(shipped())}, or a path such as ./my-loss.csv."
        )

    def test_built_in_models_report_their_recorded_losses_where_the_scenario_says_so(self) -> None:
        smooth: dict[str, Any] = {
            "generate": {"count": 9, "arriveSeconds": {"every": 5}, "models": dict.fromkeys(RECORDED, 1)}
        }
        as_built_in, as_recorded = (
            draw(a_scenario(**smooth, **more), 1).jobs for more in ({}, {"recordedLosses": "train"})
        )
        for before, after in zip(as_built_in, as_recorded, strict=True):
            assert after == replace(before, noise=0.0, curve=after.curve, losses=after.losses)
            assert after.curve == recorded_loss(RECORDED[after.model], "train")


class TestAFileOfTheUsersOwn:
    SCENARIO = """
apiVersion: slopewise.dev/v1alpha1
kind: Scenario
metadata: {name: mine}
spec:
  nodes: [{name: n1, cpu: 1}]
  jobs: [{name: a, model: mine}]
  models:
    mine: {workCpuSeconds: 100, curve: {recorded: {name: losses/mine.csv, stage: eval}}}
"""

    def load(self, folder: Path, table: str | None) -> Scenario:
        (folder / "losses").mkdir()
        (folder / "mine.yaml").write_text(self.SCENARIO)
        if table is not None:
            (folder / "losses" / "mine.csv").write_text(table)
        return load_scenario(str(folder / "mine.yaml"))

    def test_is_found_from_the_scenario(self, tmp_path: Path) -> None:
        job = draw(self.load(tmp_path, "# mine\ndone_ratio,eval\n0,4\n0.5,2\n1,1\n"), 1).jobs[0]
        assert isinstance(job.curve, Recorded)
        assert [reported(job.curve, x) for x in (0.0, 0.5, 1.0)] == pytest.approx([4.0, 2.0, 1.0])

    @pytest.mark.parametrize(
        ("table", "message"),
        [
            (None, r"cannot be read \(No such file or directory\); give the path of a readable CSV file\.$"),
            ("done_ratio,train\n0,1\n", r"needs the columns done_ratio and eval, and has done_ratio, train\.$"),
            ("", r"needs the columns done_ratio and eval, and has none\.$"),
            ("done_ratio,eval\n0,high\n", r"holds something other than numbers below its first row\.$"),
            ("done_ratio,eval\n0,1\n1\n", r"holds something other than numbers below its first row\.$"),
        ],
    )
    def test_that_cannot_be_used_is_one_sentence(self, tmp_path: Path, table: str | None, message: str) -> None:
        with pytest.raises(UsageError, match=rf"spec\.models\.mine\.curve\.recorded: .*{message}"):
            self.load(tmp_path, table)


@pytest.mark.parametrize("stage", ["train", "train_ema"])
def test_every_built_in_training_has_a_shipped_loss_that_falls_and_ends_above_nothing(stage: str) -> None:
    assert set(RECORDED) == {name for name, model in BUILT_IN.items() if not model.served}
    assert set(RECORDED.values()) <= set(shipped())
    for name in shipped():
        curve = recorded_loss(name, stage)
        assert 100 <= len(curve.xs) <= 400
        assert curve.xs[-1] == 1.0
        assert curve.first > curve.best > 0
        assert curve.reached(0.9) is not None
