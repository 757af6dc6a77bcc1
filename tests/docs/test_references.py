"""The references: written by the code that validates what they describe, and whole."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from slopewise.config.job_entry import JobEntry
from slopewise.config.training_policy import TrainingPolicy

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def generate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(DOCS / "generate.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def keys(model: type) -> set[str]:
    """Every key of a document and of those in it."""
    schema = model.model_json_schema(by_alias=True)  # type: ignore[attr-defined]
    return {key for each in (schema, *schema.get("$defs", {}).values()) for key in each.get("properties", {})}


def test_check_says_what_is_out_of_date_and_writes_nothing(tmp_path: Path) -> None:
    checked = generate("--folder", str(tmp_path), "--check")
    assert checked.returncode == 1
    assert "jobs-file.md is out of date; run make generate" in checked.stderr
    assert list(tmp_path.iterdir()) == []


PAGES = ["jobs-file.md", "training-policy.md"]


@pytest.mark.parametrize(("model", "pages"), [(JobEntry, PAGES), (TrainingPolicy, PAGES[1:])])
def test_every_key_has_a_row_that_explains_it(model: type, pages: list[str]) -> None:
    text = "\n".join((DOCS / page).read_text() for page in pages)
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    explained = {row[0].strip("`") for row in rows if len(row[-1]) > 4}
    of_kubernetes = {"matchLabels", "matchExpressions", "key", "operator", "values"}
    assert keys(model) - of_kubernetes <= explained


def test_every_command_has_a_section_with_its_options() -> None:
    page = (DOCS / "command-line.md").read_text()
    for command, option in (("run", "--once"), ("dashboards push", "--token"), ("simulate", "--seeds")):
        section = page.split(f"## slopewise {command}\n")[1].split("\n## ")[0]
        assert f"- `{option} " in section or f"- `{option}`" in section


@pytest.mark.parametrize(
    "module", sorted(set(re.findall(r"`((?:controller/)?[\w/]+\.py)`", (DOCS / "moves.md").read_text())))
)
def test_every_module_that_the_page_of_moves_names_exists(module: str) -> None:
    assert (ROOT / module).is_file() or (ROOT / "controller/slopewise/adapters/kube/moves" / module).is_file()
