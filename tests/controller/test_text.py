"""What others wrote takes one line of ours, and never more than it was given; a mistyped name is guessed."""

from __future__ import annotations

import pytest

from slopewise.text import bounded, mebibytes, nearest, unknown_name


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("as it is", "as it is"),
        ("two\nlines\t and more ", "two line…"),
        ("just  nine", "just nine"),
        ("ten letters", "ten lett…"),
        (ValueError("why"), "why"),
        ("", ""),
    ],
)
def test_foreign_text_becomes_one_line_of_bounded_length(text: object, shown: str) -> None:
    assert bounded(text, 9) == shown


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("flowcn", "flowcon"),
        ("Flow_Con", "flowcon"),
        ("kube_defualt", "kube-default"),
        ("arrive", "arriveSeconds"),
        ("x", None),
        ("", None),
    ],
)
def test_the_name_that_was_meant_is_the_nearest_one_if_any_is_near(word: str, meant: str | None) -> None:
    assert nearest(word, ["flowcon", "kube-default", "arriveSeconds"]) == meant


def test_a_name_that_there_is_not_is_reported_with_what_was_meant_or_with_all_there_are() -> None:
    known = ["las", "fair"]
    assert unknown_name("policy", "fiar", known) == "there is no policy 'fiar'; did you mean 'fair'?"
    assert (
        unknown_name("policy", "x", known, ", or ./a.py") == "there is no policy 'x'; use one of las, fair, or ./a.py."
    )


@pytest.mark.parametrize(
    ("mib", "shown"),
    [(14_403.2, "14403Mi"), (9_999.7, "10000Mi"), (1_000, "1000Mi"), (423.24, "423.2Mi"), (0.5, "0.5Mi"), (0, "0Mi")],
)
def test_a_size_in_memory_has_no_exponent(mib: float, shown: str) -> None:
    assert mebibytes(mib * 2**20) == shown
