"""What others wrote takes one line of ours, and never more than it was given."""

from __future__ import annotations

import pytest

from controller.texts import bounded


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
