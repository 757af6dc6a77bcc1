"""replication/papers.md, as committed: it is the page of today's settings, whose figures take minutes to run again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from replication.claims import Setting
from replication.comments import COMMENTS
from replication.page import HEAD, anchor, paragraph
from replication.plots import GANTT_SETTING, SWEEPS
from replication.run import SETTINGS
from replication.settings_grids import GRIDS

HERE = Path(__file__).parents[2] / "replication"
PAGE = (HERE / "papers.md").read_text(encoding="utf-8")
SEEDS = 24
AGAIN = "run `make replicate`"


def part(title: str) -> str:
    """The page's section of a setting."""
    _, _, after = PAGE.partition(f"\n## {title}\n")
    assert after, f"there is no section {title!r}: {AGAIN}"
    return after.partition("\n## ")[0]


def test_the_head_is_todays_and_names_at_least_24_seeds() -> None:
    head = HEAD.format(seeds=SEEDS)
    assert PAGE.startswith(head), AGAIN
    assert set(re.findall(r"(\d+) seeds\.$", PAGE, re.MULTILINE)) == {str(SEEDS)}


def test_the_sections_are_the_settings_in_their_order_and_the_validation() -> None:
    titles = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    assert titles == [*(setting.title for setting in SETTINGS.values()), "The simulator against real runs"], AGAIN


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_a_setting_is_in_the_summary_with_a_row_for_every_printed_figure_and_its_comments(setting: Setting) -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|", part(setting.title), re.MULTILINE)
    assert rows[1:] == [(claim.what, claim.printed) for claim in setting.claims], AGAIN
    assert f"| [{setting.title}](#{anchor(setting.title)}) |" in PAGE
    comments = COMMENTS.get(setting.name, ())
    assert [each.text for each in comments if paragraph(each) not in part(setting.title)] == [], AGAIN


def test_the_pictures_are_those_that_are_drawn() -> None:
    wanted = {each.file for each in (*SWEEPS, *GRIDS)} | {f"{GANTT_SETTING}-gantt-{number}.svg" for number in (1, 2)}
    assert set(re.findall(r"\(images/([^)]+)\)", PAGE)) == wanted
    pages = "".join(path.read_text(encoding="utf-8") for path in HERE.glob("*.md"))
    assert {path.name for path in (HERE / "images").iterdir()} == set(re.findall(r"\(images/([^)]+)\)", pages))
