"""docs/policies.md has a section for every policy; the example of docs/own-policies.md keeps to the contract."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from support.worlds import START, a_job, a_snapshot

from slopewise import policy_api
from slopewise.composition import Composed
from slopewise.config.pass_settings import policy_of
from slopewise.config.training_policy import TrainingPolicy
from slopewise.model import MemoryState
from slopewise.own_policies.contract import decide
from slopewise.own_policies.drawn_worlds import INTERVAL
from slopewise.own_policies.loading import load_file
from slopewise.own_policies.template import template
from slopewise.policies import PolicyFile, Setting, find, names

DOCS = Path(__file__).parents[2] / "docs"
PAGE, OWN = ((DOCS / name).read_text() for name in ("policies.md", "own-policies.md"))
POLICIES = [name.replace("_", "-") for name in names()]
TWO = "Two policies as one"
PROMISES = "Promises on several nodes"


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def example_code() -> str:
    (code,) = re.findall(r"^```python\n(.*?)^```", OWN, re.MULTILINE | re.DOTALL)
    return str(code)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> PolicyFile:
    """The page's example, in a file of its own as a user would have it."""
    file = tmp_path_factory.mktemp("example") / "newest_first.py"
    file.write_text(example_code())
    return load_file(file)


def test_every_policy_has_a_section_and_a_line_in_the_table_and_no_other_has() -> None:
    assert sorted(sections()) == sorted([*POLICIES, PROMISES, TWO])
    assert sorted(re.findall(r"^\| \[`([a-z0-9-]+)`\]\(#\1\) \|", PAGE, re.MULTILINE)) == sorted(POLICIES)


@pytest.mark.parametrize("name", POLICIES)
def test_every_section_shows_source_use_and_limits(name: str) -> None:
    section = sections()[name]
    assert [mark for mark in ("- **Source**:", "- **Use it**", "- **It cannot**") if mark not in section] == []


@pytest.mark.parametrize("name", POLICIES)
def test_the_table_says_what_a_policy_may_decide(name: str) -> None:
    (row,) = re.findall(rf"^\| \[`{name}`\]\(#{name}\) \|(.*)\|$", PAGE, re.MULTILINE)
    called = {"resize": "CPU", "place": "placement", "migrate": "migration"}
    decided = [word for action, word in called.items() if action in find(name).actions]
    assert row.split("|")[0].strip() == (", ".join(decided) or "nothing")


def test_the_section_of_two_policies_names_those_that_can_be_a_placement_and_its_example_is_one() -> None:
    section = sections()[TWO]
    (named,) = re.findall(r"A placement places or migrates: (.*?)\.", section, re.DOTALL)
    placing = [name for name in POLICIES if find(name).chooses_nodes and not find(name).simulator_only]
    assert sorted(re.findall(r"`(.*?)`", named)) == placing
    (example,) = re.findall(r"^```yaml\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    document = TrainingPolicy.model_validate({"spec": {"mode": "Auto", **yaml.safe_load(example)}})
    assert isinstance(policy_of(document), Composed)


@pytest.mark.parametrize("name", POLICIES)
def test_the_table_says_what_a_policy_is_for_in_its_own_words(name: str) -> None:
    (row,) = re.findall(rf"^\| \[`{name}`\]\(#{name}\) \|(.*)\|$", PAGE, re.MULTILINE)
    assert row.split("|")[-1].strip() == find(name).purpose


def test_the_example_is_what_a_new_policy_begins_with() -> None:
    assert example_code() == template("newest-first")


def test_the_example_does_what_the_page_says(example: PolicyFile) -> None:
    jobs = [a_job("old", started_at=START - 100), a_job("young", started_at=START - 10)]
    policy = example.build(example.parameters(), Setting(INTERVAL, "limits"))
    decisions = decide(policy, a_snapshot(jobs), MemoryState())
    assert {resize.job_uid: resize.to_millicores for resize in decisions.resizes} == {"old": 25, "young": 975}
    assert decisions.reasons["young"] == "1 in order of age, limit 0.975 of 1 cores"
    assert example.description.startswith("newest-first:")


def test_the_page_names_all_that_a_policy_may_import_and_nothing_else() -> None:
    (table,) = re.findall(r"^\| import \|.*?(?=^$)", OWN, re.MULTILINE | re.DOTALL)
    assert sorted(re.findall(r"`(\w+)`", "".join(re.findall(r"^\|([^|]*)\|", table, re.MULTILINE)))) == sorted(
        policy_api.__all__
    )
