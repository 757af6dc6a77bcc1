"""Documentation that is not tested is wrong: commands, examples, anchors, names, sizes. `test_site.py` has links."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from support.readme import anchors

from slopewise.commands.app import app
from slopewise.config.jobs_file import load_jobs
from slopewise.config.training_policy import TrainingPolicy, load_training_policy
from slopewise.config.validation import validate
from slopewise.own_policies.check import check_file
from slopewise.own_policies.template import template
from slopewise_exporter.logs import LineParser

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), ROOT / "exporters/README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("replication/*.md")]
)
READ = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
GLOSSARY = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
PATHS = re.compile(r"`((?:controller|tests|testbed|benchmarks|replication|docs|examples|\.ci)/[\w./-]*)`")
NAMED = sorted(set(PATHS.findall(CONTRIBUTING + (ROOT / "docs/architecture.md").read_text(encoding="utf-8"))))
TERMS = re.findall(r'<a id="([\w-]+)"></a>', GLOSSARY)
MAX_WORDS = 50_000
MAX_README_WORDS = 1_500
CODE = re.compile(r"^ *```(\w+)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
"""Blocks of code, also those of a list, which are indented."""


def blocks(page: Path, language: str) -> list[str]:
    return [textwrap.dedent(code) for kind, code in CODE.findall(page.read_text()) if kind == language]


def commands(page: Path) -> list[list[str]]:
    """Every shell line of the page, as words; comments and continued lines are understood."""
    text = "\n".join(blocks(page, "sh")).replace("\\\n", " ")
    return [words for line in text.splitlines() if (words := shlex.split(line, comments=True))]


@cache
def whole_command() -> Any:
    return typer.main.get_command(app)


def options_of(words: list[str]) -> set[str]:
    """The options of the command that these words name."""
    command = whole_command()
    for word in words:
        if word.startswith("-") or not hasattr(command, "commands"):
            break
        default = "list" if "list" in command.commands else word  # of `slopewise policies flowcon`
        assert default in command.commands, f"there is no command {word}"
        command = command.commands[word if word in command.commands else default]
    return {option for parameter in command.params for option in parameter.opts}


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_slopewise_command_exists_with_its_options(page: Path) -> None:
    for line in commands(page):
        words = line[1:] if "=" in line[0] else line  # an environment variable before the command
        if Path(words[0]).name == "slopewise":
            own = words[: words.index("--")] if "--" in words else words
            used = {word.split("=")[0] for word in own if word.startswith("-")}
            assert used <= options_of(own[1:]) | {"--help", "--version"}, words


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_slopewise_command_of_a_sentence_exists_with_its_options(page: Path) -> None:
    for code in re.findall(r"`slopewise ([a-z][^`]*)`", page.read_text()):
        words = re.sub(r"[\[\]]", "", " ".join(code.split()).partition(" -- ")[0]).split()
        used = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert used <= options_of(words) | {"--help", "--version"}, code


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_command_of_the_exporter_exists_with_its_options(page: Path) -> None:
    for line in commands(page):
        if "slopewise-exporter" in line and line[0] != "pip":
            words = line[line.index("slopewise-exporter") + 1 :]
            own = words[: words.index("--")] if "--" in words else words
            used = {word.split("=")[0] for word in own if re.match(r"--[a-z]", word)}
            assert used <= exporter_options(own[0]), line


@cache
def exporter_options(command: str) -> set[str]:
    """The options of a command of `slopewise-exporter`, as its help lists them."""
    words = [sys.executable, "-m", "slopewise_exporter", command, "--help"]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"--[a-z-]+", shown))


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_script_of_the_repository_exists(page: Path) -> None:
    for line in commands(page):
        for word in line:
            if re.match(r"(benchmarks|examples|manifests|replication|testbed|tests)/", word):
                assert (ROOT / word).exists(), line


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_make_target_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for words in commands(page):
        if words[0] == "make":
            assert {word for word in words[1:] if "=" not in word} <= targets, words


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_python_and_yaml_examples_are_valid(page: Path, tmp_path: Path) -> None:
    for code in blocks(page, "python"):
        ast.parse(code)
    for code in blocks(page, "yaml"):
        document = yaml.safe_load(code)
        if isinstance(document, list):
            (tmp_path / "jobs.yaml").write_text(code)
            assert load_jobs(tmp_path / "jobs.yaml")
        elif document.get("kind") == "TrainingPolicy":
            assert validate(TrainingPolicy, document, where=str(page))


def test_the_examples_folder_is_valid() -> None:
    assert load_jobs(ROOT / "examples/jobs.yaml")
    assert [len(load_jobs(ROOT / "examples/sweep" / name)) for name in ("digits.yaml", "optuna.yaml")] == [24, 12]
    assert load_training_policy(ROOT / "examples/sweep/policy.yaml").spec.policy.name == "marginal"
    own_form = next(job for job in load_jobs(ROOT / "examples/no-code/jobs.yaml") if job.loss_pattern)
    found = LineParser([own_form.loss_pattern or ""]).parse("08:30:05 round 2 of 100: cost is 5000e-4")
    assert found is not None
    assert (found.loss, found.step, found.steps_planned) == (0.5, 2, 100)
    assert load_training_policy(ROOT / "examples/policy.yaml").spec.mode == "Recommend"


def test_every_dependency_says_why_it_is_here() -> None:
    listed = (ROOT / "docs/dependencies.md").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = [project["project"]["dependencies"], *project["project"]["optional-dependencies"].values()]
    groups += project["dependency-groups"].values()
    declared = {re.split(r"[^a-z0-9-]", each)[0] for group in groups for each in group if isinstance(each, str)}
    stubs = {name for name in declared if name.startswith("types-") or name.endswith("-stubs")}
    missing = {name for name in declared - stubs if f"`{name}`" not in listed}
    assert missing == {"slopewise", "slopewise-exporter"}  # our own


def test_nothing_committed_names_a_registry_or_a_path_of_somebodys_machine() -> None:
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    hosts = re.compile(r"pypi\.org|pythonhosted|registry\.npmjs|proxy\.golang|deb\.debian\.org|crates\.io")
    this_file = str(Path(__file__).relative_to(ROOT))
    for name in files:
        text = (ROOT / name).read_bytes().decode(errors="replace")
        if name != this_file:
            assert not hosts.search(text), name
            assert str(ROOT) not in text or str(ROOT) == "/", name


# --- the documents of maintainers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMED)
def test_every_file_that_is_named_exists(name: str) -> None:
    assert (ROOT / name).exists()


def test_the_map_names_every_folder_of_tests() -> None:
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert {f"tests/{name}" for name in folders} <= set(NAMED)


@pytest.mark.parametrize("page", PAGES, ids=IDS)
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


# --- sizes -----------------------------------------------------------------------------------------------------------


def words(page: Path) -> int:
    return len(page.read_text(encoding="utf-8").split())


def test_readme_and_pages_have_at_most_50000_words() -> None:
    assert words(ROOT / "README.md") <= MAX_README_WORDS
    assert sum(words(page) for page in READ) <= MAX_WORDS


@pytest.mark.parametrize("page", READ, ids=lambda page: page.name)
def test_a_page_begins_with_its_title_and_no_link_is_called_by_a_file_name(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert "do not edit" not in text
    assert re.findall(r"\[[\w./-]*\.(?:md|yaml|csv|py)\]\(", text) == []
