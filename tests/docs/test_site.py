"""The documentation as a site: each page in the menu, links that lead somewhere, nothing loaded from elsewhere."""

from __future__ import annotations

import importlib.util
import posixpath
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CONFIG: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def _hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs/site_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HOOKS = _hooks()
PAGES = sorted([path.name for path in (ROOT / "docs").glob("*.md")] + list(HOOKS.PROJECT.values()))
"""Every page of the menu, as a path of the site."""
STUDIES = [f"source/replication/{path.name}" for path in sorted((ROOT / "replication").glob("*.md"))]
"""Pages that commands write, in no menu: they are there because pages link to them."""


def menu(entry: Any) -> list[str]:
    """The pages of the menu, or of a part of it."""
    if isinstance(entry, dict):
        return [page for each in entry.values() for page in menu(each)]
    return [page for each in entry for page in menu(each)] if isinstance(entry, list) else [entry]


def test_every_page_is_in_the_menu_once() -> None:
    assert sorted(menu(CONFIG["nav"])) == PAGES


def test_each_role_has_a_part_of_the_menu_that_begins_with_its_quick_start() -> None:
    first = {name: menu(pages)[0] for part in CONFIG["nav"] for name, pages in part.items()}
    assert [first[name] for name in ("Train", "Operate", "Decide")] == [
        "quick-start-data-scientist.md",
        "quick-start-sre.md",
        "quick-start-platform.md",
    ]


def test_the_build_fails_on_what_it_only_warns_of() -> None:
    levels = {level for part in CONFIG["validation"].values() for level in part.values()}
    assert CONFIG["strict"] is True
    assert levels == {"warn"}
    assert CONFIG["validation"]["links"]["anchors"] == "warn"


def test_a_page_loads_nothing_from_elsewhere() -> None:
    assert CONFIG["theme"]["font"] is False
    assert set(CONFIG) & {"extra_javascript", "extra_css", "google_analytics"} == set()
    assert CONFIG["plugins"] == ["search"]


@pytest.mark.parametrize("page", [*PAGES, *STUDIES])
def test_each_link_leads_to_something_that_the_site_has(page: str) -> None:
    original = HOOKS.repository_path(page)
    brought = {HOOKS.site_path(each) for each in HOOKS.linked(original)}
    text = HOOKS.as_in_the_site(original, (ROOT / original).read_text(encoding="utf-8"))
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)", prose):
        if not target.startswith("http"):
            reached = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
            assert reached in brought, target
            assert reached in PAGES or reached.startswith(("source/", "images/")), target


@pytest.mark.parametrize(
    ("page", "written", "in_the_site"),
    [
        ("docs/moves.md", "[a](metrics.md#recording-rules)", "[a](metrics.md#recording-rules)"),
        ("docs/moves.md", "[a](../README.md#try-it)", "[a](project/readme.md#try-it)"),
        ("docs/moves.md", "[a](../examples/jobs.yaml)", "[a](source/examples/jobs.yaml)"),
        ("docs/moves.md", "[a](../manifests/crds)", "[a](source/manifests/crds/index.md)"),
        ("README.md", "![a](docs/images/loop.svg)", "![a](../images/loop.svg)"),
        ("exporters/README.md", "[a](../docs/metrics.md)", "[a](../metrics.md)"),
        ("docs/moves.md", "[a](https://example.org/b.md) [c](#d)", "[a](https://example.org/b.md) [c](#d)"),
        ("docs/moves.md", "```\n[a](../README.md)\n```\n", "```\n[a](../README.md)\n```\n"),
        ("docs/moves.md", "- a\n  - b\n", "- a\n    - b\n"),
        ("docs/moves.md", "- a\n\n  ```sh\n  b\n  ```\n", "- a\n\n    ```sh\n    b\n    ```\n"),
        ("docs/moves.md", "| `a \\| b` |", "| `a | b` |"),
    ],
)
def test_a_page_is_rewritten_for_the_site(page: str, written: str, in_the_site: str) -> None:
    assert HOOKS.as_in_the_site(page, written) == in_the_site


def test_a_folder_has_a_page_that_lists_its_files() -> None:
    page = HOOKS.listing("manifests/crds")
    assert page.startswith("# manifests/crds\n")
    assert "[trainingpolicies.yaml](trainingpolicies.yaml)" in page
    assert "[minimal](minimal/index.md)" in HOOKS.listing("manifests/overlays")


def test_what_builds_it_is_locked_with_hashes() -> None:
    lock = (ROOT / "requirements-docs.lock").read_text(encoding="utf-8")
    wanted = re.findall(r"^([a-z-]+)", (ROOT / "docs/requirements.in").read_text(encoding="utf-8"), re.MULTILINE)
    assert wanted
    for name in wanted:
        assert re.search(rf"^{name}==\S+ \\\n    --hash=sha256:", lock, re.MULTILINE), name
        assert f"`{name}`" in (ROOT / "docs/dependencies.md").read_text(encoding="utf-8")
