"""docs/policies.md: a section for every policy there is, and an example that keeps to the contract."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from support.policy_contract import INTERVAL, check_everything, check_limits_add_up, decide, worlds
from support.worlds import START, a_job, a_snapshot

from controller.model import ClusterSnapshot, CpuControl, MemoryState
from controller.policies import PolicyProtocol, Setting, names

PAGE = (Path(__file__).parents[2] / "docs/policies.md").read_text()
POLICIES = [name.replace("_", "-") for name in names()]
GUIDE = "Write one of your own"


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The page's example, loaded from a file of its own as if it lay among the policies."""
    (code,) = re.findall(r"^```python\n(.*?)^```", sections()[GUIDE], re.MULTILINE | re.DOTALL)
    file = tmp_path_factory.mktemp("example") / "newest_first.py"
    file.write_text(code)
    spec = importlib.util.spec_from_file_location("policies_page_newest_first", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # pydantic looks annotations up there
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def build(example: ModuleType, control: CpuControl) -> PolicyProtocol:
    policy: PolicyProtocol = example.Policy(example.Parameters(), Setting(INTERVAL, control))
    return policy


def test_every_policy_has_a_section_and_a_line_in_the_table_and_no_other_has() -> None:
    assert sorted(sections()) == sorted([*POLICIES, GUIDE])
    assert sorted(re.findall(r"^\| \[`([a-z0-9-]+)`\]\(#\1\) \|", PAGE, re.MULTILINE)) == sorted(POLICIES)


@pytest.mark.parametrize("name", POLICIES)
def test_every_section_tells_source_use_and_limits(name: str) -> None:
    told = sections()[name]
    assert [mark for mark in ("- **Source**:", "- **Use it**", "- **It cannot**") if mark not in told] == []


@pytest.mark.parametrize("control", ["limits", "requests"])
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(world=worlds())
def test_the_example_keeps_to_the_contract(
    example: ModuleType, control: CpuControl, world: tuple[ClusterSnapshot, MemoryState]
) -> None:
    check_everything(lambda: build(example, control), control, *world)
    check_limits_add_up(lambda: build(example, control), *world)


def test_the_example_does_what_the_page_says(example: ModuleType) -> None:
    jobs = [a_job("old", started_at=START - 100), a_job("young", started_at=START - 10)]
    decisions = decide(build(example, "limits"), a_snapshot(jobs), MemoryState())
    assert {resize.job_uid: resize.to_millicores for resize in decisions.resizes} == {"old": 25, "young": 975}
    assert decisions.reasons["young"] == "1 in order of age, limit 0.975 of 1 cores"
    assert example.__doc__.startswith("Newest first:")
