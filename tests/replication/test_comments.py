"""Comments name no cause without the run that shows it, and what they name is on the page."""

from __future__ import annotations

import re

import pytest

from replication.comments import COMMENTS, Comment, ShownBy
from replication.page import paragraph
from replication.run import SETTINGS

CAUSAL = re.compile(r"\b(because|therefore|hence|due to|owing to|causes?|reasons?|too small|mean that|so that)\b")
COMMENTED = [
    pytest.param(comment, id=f"{name}-{number}")
    for name, comments in COMMENTS.items()
    for number, comment in enumerate(comments, start=1)
]
BY_CONSTRUCTION = ("by\nconstruction", "ratios mean little")
"""What a scenario is made to be, and how to read a table, need no run."""


def test_every_comment_belongs_to_a_setting() -> None:
    assert COMMENTS.keys() <= SETTINGS.keys()


@pytest.mark.parametrize("comment", COMMENTED)
def test_a_comment_that_names_a_cause_names_the_run_that_shows_it_and_that_is_on_the_page(comment: Comment) -> None:
    if CAUSAL.search(comment.text) and not any(words in comment.text for words in BY_CONSTRUCTION):
        assert comment.shown_by
    for shown_by in comment.shown_by:
        setting = SETTINGS[shown_by.setting]
        assert set(shown_by.rows) <= {claim.what for claim in setting.claims}
        assert set(shown_by.columns) <= {variant.name for variant in setting.variants}


def test_a_paragraph_leads_to_what_shows_it() -> None:
    shown = ShownBy("flowcon-10-causes", ("makespan falls",), ("hard limits", "as above"))
    assert paragraph(Comment("It falls.", (shown,))) == (
        "It falls.\nShown by [FlowCon, causes tried: ten jobs at random times]"
        "(#flowcon-causes-tried-ten-jobs-at-random-times), row “makespan falls”, columns “hard limits”, “as above”."
    )
    assert paragraph(Comment("It falls.")) == "It falls."
