"""How much there is to read, and how a page begins: the sizes that the pages are held to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, *sorted(ROOT.glob("docs/*.md"))]
MAX_WORDS = 50_000
MAX_README_WORDS = 1_500


def words(page: Path) -> int:
    return len(page.read_text(encoding="utf-8").split())


def test_readme_and_pages_have_at_most_50000_words() -> None:
    assert words(README) <= MAX_README_WORDS
    assert sum(words(page) for page in PAGES) <= MAX_WORDS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_begins_with_its_title_and_no_link_is_called_by_a_file_name(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert "do not edit" not in text
    assert re.findall(r"\[[\w./-]*\.(?:md|yaml|csv|py)\]\(", text) == []
