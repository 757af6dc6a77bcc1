"""The documents of maintainers: files, terms and anchors that they name exist, and the walk-through works."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from slopewise.own_policies.check import check_file
from slopewise.own_policies.template import template

ROOT = Path(__file__).parents[2]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
GLOSSARY = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
PAGES = sorted(
    [*ROOT.glob("*.md"), ROOT / "exporters/README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("replication/*.md")]
)
PATHS = re.compile(r"`((?:controller|tests|testbed|benchmarks|replication|docs|examples|\.ci)/[\w./-]*)`")
NAMED = sorted(set(PATHS.findall(CONTRIBUTING + (ROOT / "docs/architecture.md").read_text(encoding="utf-8"))))
TERMS = re.findall(r'<a id="([\w-]+)"></a>', GLOSSARY)


def anchors(page: Path) -> set[str]:
    """The anchors of a page on GitHub: those of its headings, and those that it sets itself."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    slugs = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([\w-]+)"></a>', text))


@pytest.mark.parametrize("name", NAMED)
def test_every_file_that_is_named_exists(name: str) -> None:
    assert (ROOT / name).exists()


def test_the_map_names_every_folder_of_tests() -> None:
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert {f"tests/{name}" for name in folders} <= set(NAMED)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_anchor_of_a_link_exists(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert anchor in anchors(page.parent / target if target else page), f"{target}#{anchor}"


def test_every_term_of_the_glossary_stands_once_with_a_meaning_and_a_unit() -> None:
    rows = [line.strip("| ").split(" | ") for line in GLOSSARY.splitlines() if line.startswith("| <a id=")]
    assert [row for row in rows if len(row) != 3 or not all(row)] == []
    assert [name for name, times in Counter(TERMS).items() if times > 1] == []
    assert len(TERMS) == len(rows)


def test_the_policy_of_the_walk_through_keeps_to_the_contract(tmp_path: Path) -> None:
    function, order = re.findall(r"^```python\n(.*?)^```", CONTRIBUTING, re.MULTILINE | re.DOTALL)
    text = template("fewest-steps").replace("from collections.abc", "import math\nfrom collections.abc", 1)
    text = re.sub(r"order = sorted\(.*\n", lambda _: order, text)
    file = tmp_path / "fewest_steps.py"
    file.write_text(text.replace("class Policy:", f"{function}\n\nclass Policy:", 1), encoding="utf-8")

    result = check_file(file, worlds=20)

    assert "steps_left(job), job.uid" in file.read_text(encoding="utf-8")
    assert [finding.mistake for finding in result.findings if finding.mistake] == []
