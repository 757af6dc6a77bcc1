"""The leader is killed at every write of a pass; the next one goes on without a mistake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from support.chain import Chain
from support.fault_stage import ORIGINAL, STORED, Stage
from support.gateway import Request
from support.waiting import wait_for

PODS = ("a", "b", "c")
SHARES = dict.fromkeys(PODS, 667)
"""A third of node-a's two cores."""

MAX_WRITES = 40
"""Of one pass over three pods; it makes about 14."""

UNDISTURBED = "nothing"


def is_of(kind: str, request: Request) -> bool:
    """Whether it is a write of this kind."""
    return request.kind == kind


def rounds(chain: Chain, moment: str, act: Callable[[], object], is_done: Callable[[], bool]) -> Iterator[str]:
    """`act` once undisturbed, and then once for each write that was seen, with the leader killed at it.

    Yields what was being written, while another one leads. A write that does not come again kills no leader, and is
    reported as undisturbed. `is_done`: what `act` asks for has been done. That no more is written does not say it: a
    first pass that waits for Prometheus on a busy machine is as quiet, and no resize would be among the writes that
    kill.
    """

    def is_over() -> bool:
        return chain.is_over() and (not chain.leader.is_running() or is_done())

    chain.begin()
    act()
    wait_for("all writes", is_over, bool)
    writes = Counter(request.kind for request in chain.gateway.requests if request.acts)
    assert sum(writes.values()) <= MAX_WRITES
    yield UNDISTURBED
    for kind, count in writes.items():
        for number in range(count):
            chain.begin()
            chain.kill_at(partial(is_of, kind), number, moment)
            act()
            wait_for(f"{kind} {number}", is_over, bool)
            chain.disarm()
            if chain.killed_at is not None:
                chain.take_over()
            yield UNDISTURBED if chain.killed_at is None else kind


@pytest.fixture
def chain(stage: Stage) -> Chain:
    stage.pods(*PODS)
    return Chain(stage)


@pytest.mark.parametrize("moment", ["after", pytest.param("before", marks=pytest.mark.faults)])
def test_a_pass_that_is_cut_short_at_any_write_is_finished_by_the_next_leader(chain: Chain, moment: str) -> None:
    stage, seen = chain.stage, Counter[str]()
    for kind in rounds(chain, moment, stage.policy, lambda: stage.resized.keys() >= set(PODS)):
        seen[kind] += 1
        stage.wait_for_limits(SHARES)
        assert stage.resized == dict.fromkeys(PODS, 1), f"killed {moment} {kind}"
        assert stage.originals() == dict.fromkeys(PODS, STORED), f"killed {moment} {kind}"
        stage.delete_policy()
        assert stage.cpu() == dict.fromkeys(PODS, ORIGINAL), f"killed {moment} {kind}"
    assert seen["patch pods/resize"] == 3
    assert seen["create jobgrowths"] == 3
    assert seen["patch trainingpolicies"] == 1
