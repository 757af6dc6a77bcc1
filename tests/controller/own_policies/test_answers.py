"""A policy of the user's that fails or answers nonsense: the pass is held, and nothing is changed."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
from support.own_policy import a_file, deciding
from support.passes import pass_over
from support.worlds import START, FakeMemory, a_job, a_node, a_snapshot, known

from slopewise.errors import PolicyError
from slopewise.model import CpuAllocation, MemoryState
from slopewise.own_policies.loading import load_file
from slopewise.policies import PolicyProtocol, Setting

WORLD = a_snapshot([a_job("a", limit=1000), a_job("b")], [a_node("n1", 2.0), a_node("n2", 2.0)])
MEMORY = MemoryState({uid: known().altered(original=CpuAllocation(2000, 1000)) for uid in ("a", "b")})


NODES = """nodes = {{name: {} for name, look in fair.memory.nodes.items()}}
        return replace(fair, memory=replace(fair.memory, nodes=nodes))"""


def policy(folder: Path, *lines: str) -> PolicyProtocol:
    found = load_file(a_file(folder, deciding(*lines)))
    return found.build(found.parameters(), Setting(20.0, "limits"))


def test_a_policy_that_decides_well_is_obeyed_and_may_give_back_what_a_job_came_with(tmp_path: Path) -> None:
    mine = policy(
        tmp_path,
        'less = Resize("a", "n1", "limits", 1000, 500, "enough")',
        'back = Resize("a", "n1", "limits", 1000, 2000, "its own", is_rollback=True)',
        "return replace(fair, resizes=(less if snapshot.taken_at_seconds == 1e6 else back,))",
    )
    decided = [mine.decide(replace(WORLD, taken_at_seconds=at), MEMORY).resizes[0] for at in (START, START + 20)]
    assert [(each.to_millicores, each.is_rollback) for each in decided] == [(500, False), (2000, True)]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("return 1 / 0", "failed: ZeroDivisionError: division by zero (line "),
        ("raise SystemExit(1)", "failed: SystemExit: 1 (line "),
        ("return None", "decide returned None, and not Decisions"),
        ("return replace(fair, resizes=('a',))", "resizes holds a str, and not only Resize"),
        ("return replace(fair, reasons={'a': 'why'})", "reasons has none for b; give one for every job"),
        ("return replace(fair, reasons={**fair.reasons, 'c': 'why'})", "reasons has one for c, which is no job"),
        ("return replace(fair, reasons={**fair.reasons, 'a': 7})", "a reason is 7, and not a text"),
        ("return replace(fair, memory=MemoryState())", "memory.jobs has lost a; begin with the memory"),
        (
            "return replace(fair, memory=replace(memory, jobs={uid: JobMemory() for uid in memory.jobs}))",
            "memory.jobs has another levels for a, which is not the policy's to write",
        ),
        ("memory.jobs['a'].original = None; return fair", "immutable type: 'JobMemory'"),
        (
            "memory.jobs['a'] = memory.jobs['a'].altered(original=None); return self.fair(snapshot, memory)",
            "another original for a, which is",
        ),
        (
            "memory.jobs['a'] = memory.jobs['a'].with_decided(wanted_cores=-1.0); return self.fair(snapshot, memory)",
            "memory.jobs wants -1.0 cores for a",
        ),
        (
            "memory.jobs['a'] = memory.jobs['a'].with_decided(state={'n': 3}); return self.fair(snapshot, memory)",
            "memory.jobs has a decision on a that cannot be stored: Expected `str`, got `object` - at `$.state`",
        ),
        ("return replace(fair, memory=memory)", "memory.nodes has none for n"),
        (
            NODES.format("NodeMemory(frozenset(), 0.0, 20.0)"),
            "evaluates n1 next in the past",
        ),
        (
            NODES.format("replace(look, interval_seconds=0.01)"),
            "evaluates n1 every 0.01 s; at least 1 s must lie between",
        ),
        ("return replace(fair, resizes=(Resize('c', 'n1', 'limits', 1, 2, 'why'),))", "resizes has c, which is no job"),
        (
            "return replace(fair, resizes=(Resize('a', 'n1', 'limits', 500, 2000, 'why'),))",
            "the resize of a is of limits 500 on n1, and it has limits 1000 on n1",
        ),
        (
            "return replace(fair, resizes=(Resize('a', 'n1', 'limits', 1000, 0.5, 'why'),))",
            "the resize of a goes to 0.5, and not to a whole number of millicores",
        ),
        (
            "return replace(fair, resizes=(Resize('a', 'n1', 'limits', 1000, 0, 'why'),))",
            "the resize of a goes to 0 millicores; the least is 1",
        ),
        (
            "return replace(fair, resizes=(Resize('a', 'n1', 'limits', 1000, 1999, 'why', is_rollback=True),))",
            "the resize of a says is_rollback, and does not go to the job's original",
        ),
        ("return replace(fair, moves=(Place('a', 'n2', 'why'),))", "moves places a, which does not wait for a node"),
        ("return replace(fair, moves=(Migrate('a', 'n2', 'n1', 'why'),))", "moves has a leave n2, where it is not"),
        (
            "return replace(fair, moves=(Migrate('a', 'n1', 'n9', 'why'),))",
            "the move of a goes to n9, which is no node",
        ),
    ],
)
def test_what_a_policy_must_not_do_is_one_sentence(tmp_path: Path, line: str, sentence: str) -> None:
    mine = policy(tmp_path, line)
    before = copy.deepcopy(MEMORY)
    with pytest.raises(PolicyError) as failed:
        mine.decide(WORLD, MEMORY)
    assert sentence in str(failed.value)
    assert str(failed.value).startswith("policy mine-")
    assert "\n" not in str(failed.value)
    assert before == MEMORY, "what is remembered is as it was"


def test_an_interruption_is_no_failure_of_the_policy(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        policy(tmp_path, "raise KeyboardInterrupt").decide(WORLD, MEMORY)


def test_a_pass_under_a_policy_that_raises_is_held_and_the_next_one_is_tried_again(tmp_path: Path) -> None:
    mine = policy(tmp_path, f"return fair if snapshot.taken_at_seconds > {START} else 1 / 0")
    later = a_snapshot([a_job("a", limit=1000)], at=START + 20)
    memory = FakeMemory()
    first, second = (pass_over(seen, mine, memory=memory) for seen in (WORLD, later))
    assert first.policy_failed
    assert "ZeroDivisionError" in (first.held or "")
    assert (second.held, set(memory.saved[-1].jobs)) == (None, {"a"})
