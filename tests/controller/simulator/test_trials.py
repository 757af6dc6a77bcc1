"""Studies of recorded trials: files, draws, rules that stop trials worked out by hand, and the command."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import pytest
from support.command_line import slopewise

from slopewise.errors import UsageError
from slopewise.simulator import stopping
from slopewise.simulator.engine import run
from slopewise.simulator.stopping import Setting, Stopped
from slopewise.simulator.trials import (
    NODE_CORES,
    WITHIN_RATIO,
    WORK_CPU_SECONDS,
    Losses,
    compare,
    draw,
    instance,
    read_trials,
)
from slopewise.simulator.world.model import PolicyRun

FLAT: Losses = (0.7,) * 11
TO_HALF: Losses = (0.7, 0.65, 0.6, 0.55, *(0.5,) * 7)
LATE: Losses = (*(0.7,) * 9, 0.3, 0.1)
LOST: Losses = (0.7, 0.6, *(math.nan,) * 9)


def a_file(path: Path, *rows: str, header: str = "trial,hyperparameters,valid_0,valid_1,valid_2") -> Path:
    text = "\n".join((header, *rows)).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


class TestFiles:
    @pytest.mark.parametrize("name", ["trials.csv", "trials.csv.gz"])
    def test_an_empty_field_is_a_loss_that_was_not_finite(self, tmp_path: Path, name: str) -> None:
        first, second = read_trials(a_file(tmp_path / name, '0,"{""lr"": 1, ""b"": 2}",0.7,0.6,0.5', "1,{},0.7,,"))
        assert first == (0.7, 0.6, 0.5)
        assert second[0] == 0.7
        assert all(map(math.isnan, second[1:]))

    def test_training_losses_are_read_where_there_are_no_others(self, tmp_path: Path) -> None:
        file = a_file(tmp_path / "trials.csv", "0,3,2,9", header="trial,train_0,train_1,train_loss")
        assert read_trials(file) == [(3.0, 2.0)]

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "there are no columns valid_0 and valid_1"),
            (b"trial,valid_0\n0,1\n", "there are no columns valid_0 and valid_1"),
            (b"valid_0,valid_1\n1,low\n", "a loss is no number"),
            (b"valid_0,valid_1\n1\n", "a loss is no number"),
            (b"\xff\xfe", "cannot be read"),
        ],
    )
    def test_a_file_of_something_else_is_refused(self, tmp_path: Path, content: bytes, message: str) -> None:
        (file := tmp_path / "trials.csv").write_bytes(content)
        with pytest.raises(UsageError, match=message):
            read_trials(file)

    def test_a_file_that_only_calls_itself_compressed_is_refused(self, tmp_path: Path) -> None:
        (file := tmp_path / "trials.csv.gz").write_bytes(b"valid_0,valid_1\n1,2\n")
        with pytest.raises(UsageError, match="cannot be read"):
            read_trials(file)
        with pytest.raises(UsageError, match=r"none.csv cannot be read \(No such file or directory\); name a CSV file"):
            read_trials(tmp_path / "none.csv")

    def test_a_draw_is_the_same_again_and_has_a_trial_that_ends(self) -> None:
        trials = [(1.0, 1.0 / (1 + number)) for number in range(20)]
        assert draw(trials, 8, 3) == draw(trials, 8, 3) != draw(trials, 8, 4)
        assert len(set(draw(trials, 20, 1))) == 20
        with pytest.raises(UsageError, match=r"--trials 21 is more than the 20"):
            draw(trials, 21, 1)
        with pytest.raises(UsageError, match="no trial that was drawn ends with a finite loss"):
            draw([LOST, LOST], 2, 1)


def a_setting(running: int) -> Setting:
    return Setting(1.0, 100.0, running, 1.0, 0.01)


class TestRules:
    def test_under_fair_sharing_the_best_is_found_where_its_loss_is_near_its_last_one(self) -> None:
        """Two trials share a core: 40 of 100 core-seconds of the first take 80 s, both 200 s."""
        found = stopping.fair([TO_HALF, FLAT], a_setting(2))
        assert list(found) == pytest.approx([80.0, 200.0, 0.5, 0])

    @pytest.mark.parametrize("more", [-2.0, 3.0])
    def test_the_best_is_found_also_where_losses_are_negative_or_above_1(self, more: float) -> None:
        trials = [tuple(loss + more for loss in each) for each in (TO_HALF, FLAT)]
        assert stopping.fair(trials, a_setting(2)).best_found_seconds == pytest.approx(80.0)
        fair, ours, *_ = compare(trials, 2, 4, 1)
        assert ours.best_found_seconds is not None
        assert fair.best_found_seconds is not None
        assert 0 < ours.best_found_seconds < fair.best_found_seconds

    def test_one_that_waits_begins_when_one_ends(self) -> None:
        assert stopping.fair([FLAT, TO_HALF], a_setting(1)).best_found_seconds == pytest.approx(140.0)

    def test_an_oracle_serves_the_best_first_and_leaves_the_others_the_floor(self) -> None:
        """0.95 cores for it, and 0.05 for the other one: 40 core-seconds take 42 s."""
        found = stopping.oracle([FLAT, TO_HALF], a_setting(2))
        assert found.best_found_seconds == pytest.approx(40 / 0.95)
        assert (round(found.ended_seconds, 6), found.stopped) == (200.0, 0)

    def test_the_median_rule_stops_what_is_worse_than_most_and_so_a_late_bloomer(self) -> None:
        """One after another: the flat one is stopped at a fifth of its plan, and so is the late one."""
        found = stopping.median_rule([TO_HALF, FLAT, LATE], a_setting(1))
        assert found._replace(ended_seconds=round(found.ended_seconds, 6)) == Stopped(None, 140.0, 0.5, 2)

    def test_asha_takes_one_of_three_on_from_each_rung(self) -> None:
        """27 trials to 1/27, 9 to 1/9, 3 to 1/3, and the best one to its end."""
        trials = [tuple(0.7 - 0.01 * number * step / 27 for step in range(28)) for number in range(27)]
        found = stopping.asha(trials[::-1], a_setting(1))
        assert (round(found.best_loss, 6), found.stopped) == (0.44, 26)
        work = 27 / 27 + 9 * (1 / 9 - 1 / 27) + 3 * (1 / 3 - 1 / 9) + (1 - 1 / 3)
        assert found.ended_seconds == pytest.approx(100.0 * work)

    def test_a_loss_that_is_lost_is_never_the_best(self) -> None:
        assert stopping.best_of([LOST, FLAT]) == 1
        assert stopping.fair([LOST, TO_HALF, FLAT], a_setting(3)).best_loss == 0.5


class TestCompared:
    def test_the_fluid_of_fair_sharing_is_what_real_passes_give(self) -> None:
        trials = [FLAT, TO_HALF, LATE, LOST, TO_HALF]
        setting = Setting(NODE_CORES, WORK_CPU_SECONDS, 2, 4, WITHIN_RATIO)
        fluid = stopping.fair(trials, setting)
        passes = run(instance(trials, running=2, threads=4, seed=1), PolicyRun("fair", "fair"))
        assert passes.ended_seconds == pytest.approx(fluid.ended_seconds, rel=1e-3)
        assert passes.jobs[2].target_seconds == pytest.approx(fluid.best_found_seconds, rel=1e-3)

    def test_the_best_is_found_sooner_with_it_first_and_none_is_stopped(self) -> None:
        falling = tuple(max(0.5, 0.7 - 0.01 * step) for step in range(51))
        trials = [FLAT, FLAT, falling, FLAT, FLAT, FLAT]
        fair, ours, *_, oracle = compare(trials, 4, 4, 1)
        assert fair.best_found_seconds is not None
        assert ours.best_found_seconds is not None
        assert oracle.best_found_seconds is not None
        assert oracle.best_found_seconds <= ours.best_found_seconds < 0.6 * fair.best_found_seconds
        assert ours.ended_seconds <= 1.03 * fair.ended_seconds
        assert (ours.stopped, ours.best_loss) == (0, 0.5)


class TestCommand:
    def test_it_prints_a_row_for_each_policy_and_rule_as_table_json_and_csv(self, tmp_path: Path) -> None:
        rows = (f"{number},{{}},0.7,{0.7 - 0.01 * number},{0.7 - 0.02 * number}" for number in range(6))
        options = ("--sweep", str(a_file(tmp_path / "t.csv", *rows)), "--trials", "4", "--running", "2", "--seed", "3")
        printed = json.loads(slopewise("simulate", *options, "-o", "json").stdout)
        assert (printed["trials"], printed["running"], printed["seed"]) == (4, 2, 3)
        names = [each["policy"] for each in printed["policies"]]
        assert names == ["fair", "best first", "ASHA", "median rule", "oracle"]
        assert printed["policies"][0]["of_fair"] == printed["policies"][0]["ended_of_fair"] == 1.0
        assert (
            slopewise("simulate", *options, "-o", "csv").stdout.splitlines()[0].startswith("policy,best_found_seconds")
        )
        assert "median rule" in slopewise("simulate", *options).stdout

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("--sweep", "{file}", "--trials", "7"), "--trials 7 is more than the 6 of the file; give fewer."),
            (("--trials", "7", "flowcon-10"), "--trials is about a sweep; add --sweep FILE, or leave it out."),
            (("--sweep", "{file}", "--seeds", "2"), "--seeds is not about a sweep; leave it or --sweep out."),
            (("--sweep", "none.csv"), "none.csv cannot be read"),
        ],
    )
    def test_a_mistake_is_one_sentence(self, tmp_path: Path, options: tuple[str, ...], message: str) -> None:
        file = a_file(tmp_path / "t.csv", *(["0,{},0.7,0.6,0.5"] * 6))
        result = slopewise("simulate", *(each.format(file=file) for each in options))
        assert result.returncode == 2
        assert message in result.stderr
