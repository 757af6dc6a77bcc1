"""Trials of a study by their losses, what was spent on them, and whom ASHA would have stopped."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from support.printing import printed

from slopewise.reports.columns import csv_text, fitting, table_of
from slopewise.reports.ranking import Ranking, at_rungs
from slopewise.reports.trials import NOT_FINITE, Rungs, Trial, best_third


def a_trial(name: str, loss: float | None, cpu_seconds: float | None = 10.0, rungs: Rungs | None = None) -> Trial:
    return Trial(name, "finished", loss, cpu_seconds, arguments={"lr": name}, rungs=rungs or {})


def names(*trials: Trial) -> list[str]:
    return [each.name for each in Ranking("s", trials).trials]


class TestOrder:
    def test_the_lowest_loss_is_first_and_one_without_a_finite_loss_is_last(self) -> None:
        trials = (a_trial("none", None), a_trial("b", 0.2), a_trial("a", 0.1), a_trial("nan", math.nan))
        assert names(*trials) == ["a", "b", "nan", "none"]
        assert [row["place"] for row in Ranking("s", trials).rows()] == [1, 2, None, None]

    def test_of_an_objective_that_rises_the_highest_is_first(self) -> None:
        assert names(*(replace(a_trial(name, loss), objective="max") for name, loss in (("a", 0.1), ("b", 0.9)))) == [
            "b",
            "a",
        ]

    def test_different_metrics_are_not_ranked_together(self) -> None:
        said = {"b": "loss (min)", "a": "accuracy (max)", "new": "", "c": "loss (min)", "d": "accuracy (max)"}
        trials = [replace(a_trial(name, 0.5, rungs={0: 0.5}), metric=metric) for name, metric in said.items()]
        none = Ranking("s", trials)
        assert list(none.sentences()) == [
            "study s: 5 trials, not ranked, because d reports accuracy (max), and c loss (min)"
        ]
        assert ([row["place"] for row in none.rows()], none.stopped) == ([None] * 5, {})
        assert (none.as_json()["cpu_seconds_of_best"], none.as_json()["cpu_seconds_of_rest"]) == (None, 50.0)
        most = Ranking("s", trials[:-1])
        assert [(row["trial"], row["place"]) for row in most.rows()] == [("b", 1), ("c", 2), ("new", 3), ("a", None)]
        assert "a" not in most.stopped
        assert list(most.sentences())[2].endswith("of another metric: a reports accuracy (max), and c loss (min)")


class TestRows:
    def test_arguments_are_columns_and_one_that_is_called_as_a_column_gets_a_name_of_its_own(self) -> None:
        odd = replace(a_trial("a", 0.1), arguments={"lr": "0.1", "loss": "hinge"})
        (row,) = Ranking("s", [odd]).rows()
        assert list(row)[:5] == ["study", "place", "trial", "lr", "argument_loss"]
        assert (row["lr"], row["argument_loss"], row["loss"]) == ("0.1", "hinge", 0.1)

    def test_the_name_of_an_argument_is_foreign_text(self) -> None:
        odd = replace(a_trial("a", 0.1), arguments={"=[red]1\x1b[2J": "0.1"})
        ranking = Ranking("s", [odd])
        table = printed(table_of(fitting(ranking.columns(), ranking.order(), 80), ranking.rows()), 80)
        assert "=[red]1\N{REPLACEMENT CHARACTER}[2J" in table
        heading = csv_text(ranking.rows(), list(ranking.rows()[0])).splitlines()[0]
        assert heading.startswith("study,place,trial,'=[red]1\N{REPLACEMENT CHARACTER}[2J,loss,")

    def test_what_is_no_json_is_null(self) -> None:
        document = json.loads(json.dumps(Ranking("s", [a_trial("a", math.nan, None)]).as_json(), allow_nan=False))
        assert (document["trials"][0]["loss"], document["trials"][0]["cpu_seconds"]) == (None, None)

    def test_a_few_lines_name_the_best_and_what_was_spent_on_it_and_on_the_others(self) -> None:
        ranking = Ranking("s", [a_trial("b", 0.25, 30.0), a_trial("a", 0.125, 12.0), a_trial("c", None, None)])
        assert list(ranking.sentences()) == [
            "study s: the best so far of 3 trials is a, loss 0.125, finished",
            "CPU: 12 core-s on it, 30 on the others",
        ]
        assert list(Ranking("s", [a_trial("c", None)]).sentences()) == ["study s: 1 trial, none with a loss"]

    @pytest.mark.parametrize(
        ("diverged", "sentences"),
        [
            ([], []),
            (["c", "b"], ["b, c: its loss is not finite"]),
            (["b", "c", "d"], ["3 trials: its loss is not finite"]),
        ],
    )
    def test_a_line_names_those_that_have_diverged(self, diverged: list[str], sentences: list[str]) -> None:
        """In a narrow terminal the table has no room for reasons."""
        trials = [a_trial("a", 0.125), *(replace(a_trial(each, None), reason=NOT_FINITE) for each in diverged)]
        assert [each for each in Ranking("s", trials).sentences() if "finite" in each] == sentences

    def test_a_reason_of_many_trials_is_said_once_below_the_table_and_the_rows_keep_it(self) -> None:
        why = {"a": "best so far", "b": "shared fairly", "c": "shared fairly", "d": "shared fairly"}
        ranking = Ranking("s", [replace(a_trial(name, 0.1), reason=reason) for name, reason in why.items()])
        table = printed(table_of(fitting(ranking.columns(), ranking.order(), 80), ranking.shown_rows()), 80)
        assert ("best so far" in table, "shared fairly" in table) == (True, False)
        assert list(ranking.sentences())[-1] == "3 trials: shared fairly"
        assert [row["reason"] for row in ranking.rows()] == list(why.values())
        two = Ranking("s", [replace(a_trial(name, 0.1), reason="shared fairly") for name in "ab"])
        assert not any("shared fairly" in line for line in two.sentences())

    def test_cpu_that_is_not_known_is_no_zero_and_no_trial_without_a_loss_is_the_best(self) -> None:
        unknown = Ranking("s", [a_trial("a", 0.1, None), a_trial("b", 0.2, None)])
        assert list(unknown.sentences()) == ["study s: the best so far of 2 trials is a, loss 0.1, finished"]
        assert list(Ranking("s", [a_trial("a", 0.1, 5.0)]).sentences())[1] == "CPU: 5 core-s on it"
        lossless = Ranking("s", [a_trial("a", None, 5.0), a_trial("b", None, 7.0)]).as_json()
        assert (lossless["cpu_seconds_of_best"], lossless["cpu_seconds_of_rest"]) == (None, 12.0)

    def test_the_chance_of_those_that_run_is_a_column(self) -> None:
        ranking = Ranking("s", [replace(a_trial("a", 0.1), chance=0.123), a_trial("b", 0.2)])
        table = printed(table_of(fitting(ranking.columns(), ranking.order(), 80), ranking.shown_rows()), 80)
        assert ("CHANCE" in table, "12 %" in table) == (True, True)
        assert [row["chance"] for row in ranking.rows()] == [0.123, None]


class TestAsha:
    def test_one_of_three_goes_on_from_each_rung(self) -> None:
        assert best_third({"a": 3.0, "b": 1.0, "c": 2.0, "d": 0.5, "e": 9.0, "f": 9.0, "g": 9.0}) == ["d", "b"]
        losses = {f"t{number}": float(number) for number in range(9)}
        trials = [a_trial(name, loss, rungs={0: loss, 1: loss, 2: loss}) for name, loss in losses.items()]
        stopped = Ranking("s", trials).stopped
        assert {name for name, part in stopped.items() if part == 1 / 27} == {f"t{number}" for number in range(3, 9)}
        assert {name for name, part in stopped.items() if part == 1 / 9} == {"t1", "t2"}
        assert "t0" not in stopped
        assert list(Ranking("s", trials).sentences())[2] == ("ASHA (η = 3) would have stopped 8: t1, t2, t3 and 5 more")

    def test_of_fewer_than_three_none_is_stopped(self) -> None:
        assert Ranking("s", [a_trial("a", 0.1, rungs={0: 0.1}), a_trial("b", 0.9, rungs={0: 0.9})]).stopped == {}

    def test_a_late_bloomer_would_have_been_stopped_although_it_is_the_best(self) -> None:
        late = a_trial("late", 0.01, rungs={0: 9.0})
        early = [a_trial(f"t{number}", 0.5, rungs={0: 1.0 + number}) for number in range(3)]
        assert "late" in Ranking("s", [late, *early]).stopped

    def test_a_loss_at_a_rung_lies_between_those_around_it_and_is_not_known_where_they_are_far(self) -> None:
        points = np.array([[18.0, 0.9], [22.0, 0.7], [50.0, 0.6], [70.0, 0.4]], "<f4")
        assert at_rungs(points, 540.0) == {0: pytest.approx(0.8), 1: pytest.approx(0.5)}
        assert at_rungs(points[1:], 540.0) == {1: pytest.approx(0.5)}
        assert at_rungs(points[[0, 3]], 540.0) == at_rungs(points[:0], 540.0) == {}


def test_what_a_session_is_asked_by_loads_neither_numpy_nor_rich() -> None:
    """They were 0.2 s of each `slopewise submit`, when trials and their table were one module."""
    slow = "{'numpy', 'rich.text'} & sys.modules.keys()"
    code = f"import sys, slopewise.adapters.local.session_requests; print(sorted({slow}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "[]"
