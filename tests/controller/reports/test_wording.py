"""Foreign text and figures, as they are written in the terminal and in the report."""

from __future__ import annotations

import pytest

from slopewise.reports.wording import (
    change,
    cores,
    counted,
    finite,
    label,
    listed,
    no_formula,
    of_bound,
    plain,
    ratio,
    seconds,
)


@pytest.mark.parametrize(
    ("foreign", "shown"),
    [
        ("\x1b[31mred", "�[31mred"),
        ("two\nlines\tand  gaps", "two lines and gaps"),
        ("\u202egnp.exe", "�gnp.exe"),
        ("not-utf8-\udcff", "not-utf8-�"),
        ("日本語 é 🚀", "日本語 é 🚀"),
    ],
)
def test_text_that_would_act_is_shown_instead(foreign: str, shown: str) -> None:
    assert plain(foreign) == shown


@pytest.mark.parametrize("begins", ["=", "+", "-", "@", "\t="])
def test_no_cell_of_a_spreadsheet_is_a_formula_and_a_figure_stays_one(begins: str) -> None:
    assert no_formula(f"{begins}SUM(A1)") == f"'{begins.strip()}SUM(A1)"
    assert no_formula("-1.5e-3") == "-1.5e-3"


def test_a_long_list_shows_how_many_are_left_out() -> None:
    assert listed(["a", "b", "c", "d"], at_most=2) == "a, b and 2 more"
    assert listed(["a", "b"], at_most=2) == "a, b"


def test_figures_have_their_units() -> None:
    assert (seconds(None), ratio(None), cores(None)) == ("–", "–", "–")
    assert (seconds(41.26), ratio(0.824), cores(500), counted(1, "job"), counted(2, "pass", "passes")) == (
        "41.3 s",
        "×0.82",
        "0.50",
        "1 job",
        "2 passes",
    )


@pytest.mark.parametrize(
    ("value", "bound", "text"),
    [
        (41.26, 45, "41.3 of 45.0 s"),
        (0.112, 0.15, "112 of 150 ms"),
        (3.2, 0.15, "3200 of 150 ms"),
        (None, 2, "– of 2.0 s"),
    ],
)
def test_a_figure_beside_its_bound_has_the_bounds_unit(value: float | None, bound: float, text: str) -> None:
    assert of_bound(value, bound) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.82, "18 % shorter"),
        (1.3, "30 % longer"),
        (2.5, "150 % longer"),
        (0.996, "less than 1 % shorter"),
        (1.004, "less than 1 % longer"),
    ],
)
def test_a_ratio_of_durations_is_put_in_words(value: float, text: str) -> None:
    assert change(value) == text


def test_a_value_whose_sum_would_overflow_is_as_good_as_infinite() -> None:
    assert [finite(value) for value in (0.0, -3.5, 1e308, float("inf"), float("nan"))] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_a_label_is_one_line_of_bounded_length() -> None:
    assert label("<b>x</b>\n\x1b") == "<b>x</b> \N{REPLACEMENT CHARACTER}"
    assert label("x" * 40) == "x" * 17 + "…"
