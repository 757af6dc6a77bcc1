"""The page that explains `marginal`: its pictures are drawn by today's code, and its words are those of the policy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.pictures import show_the_same

from replication.explained import FEW, FOLDER, draw_ends, draw_fits, draw_turns, draw_value, outcomes
from slopewise.policies.marginal import DUE, FAVOURS, FIRST, OBJECTIVE, WAITS, Parameters

PAGE = FOLDER.parent.parent / "marginal.md"
AGAIN = "run `python -m replication.explained`"


@pytest.mark.parametrize("draw", [draw_value, draw_fits])
def test_pictures_of_the_arithmetic_are_those_of_today(draw: object, tmp_path: Path) -> None:
    assert callable(draw)
    name = draw(tmp_path)
    assert show_the_same(tmp_path / name, FOLDER / name), AGAIN


def test_pictures_of_runs_are_those_of_today_and_jobs_end_sooner_in_them_and_the_whole_no_later(tmp_path: Path) -> None:
    """What the page says beside them."""
    few, all_of_them = outcomes(FEW), outcomes({})
    for name in (draw_turns(*few, tmp_path), draw_ends(*all_of_them, tmp_path)):
        assert show_the_same(tmp_path / name, FOLDER / name), AGAIN
    fair, ours = few
    fair_seconds, our_seconds = (sum(job.jct_seconds or 0.0 for job in run.jobs) for run in (fair, ours))
    assert our_seconds < 0.9 * fair_seconds
    assert ours.ended_seconds < 1.02 * fair.ended_seconds


def test_every_picture_is_on_the_page_with_words_for_those_who_do_not_see_it() -> None:
    pictures = dict(re.findall(r"!\[([^\]]+)\]\(images/marginal/([a-z]+\.svg)\)", PAGE.read_text(encoding="utf-8")))
    assert {*pictures.values()} == {path.name for path in FOLDER.iterdir()}
    assert all(len(words) > 40 for words in pictures)


def test_sentences_and_settings_are_the_policys() -> None:
    text = PAGE.read_text(encoding="utf-8")
    sentences = re.findall(r"^\| [a-z-]+ \| [\d.]+ \| (\w+): .* \|$", text, re.MULTILINE)
    assert len(sentences) >= 3
    assert {*sentences} <= {FIRST, WAITS, DUE, OBJECTIVE}
    assert all(f"`{favour}`" in text for favour in FAVOURS)
    assert Parameters().floor_ratio == 1 / 20
    assert "The floor is a twentieth of an even share by default" in text
