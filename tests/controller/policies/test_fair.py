"""Fair sharing after another policy: nothing that it decided of a job stays."""

from __future__ import annotations

import pytest
from support.worlds import START, a_job, a_snapshot, known

from slopewise import memory_sizing
from slopewise.model import Ends, MemoryAllocation, MemoryState, MemoryUse, PolicyMemory
from slopewise.policies import Setting, find

MEBIBYTE = 2**20


@pytest.mark.parametrize("name", ["fair", "procon", "kube-default"])
def test_what_the_policy_before_it_saw_in_a_job_and_lowered_for_it_counts_no_longer(name: str) -> None:
    before = known(
        job_class="CL",
        wanted=0.1,
        ends=Ends(START + 60, START + 50, START + 70),
        state="[1]",
        original_memory=MemoryAllocation(1000 * MEBIBYTE),
        memory_use=MemoryUse(START, 300.0 * MEBIBYTE, 300.0 * MEBIBYTE),
    )
    snapshot = a_snapshot([a_job("a").altered(memory=MemoryAllocation(360 * MEBIBYTE))])
    found = find(name)
    decided = found.build(found.parameters(), Setting(20.0, "requests")).decide(snapshot, MemoryState({"a": before}))
    assert decided.memory.jobs["a"].decided == PolicyMemory(state="[1]")
    (back,) = memory_sizing.resizes(snapshot, decided.memory, "Requests")
    assert (back.bound, back.to_bytes) == ("request", 1000 * MEBIBYTE)
