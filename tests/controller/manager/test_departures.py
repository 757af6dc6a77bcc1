"""What a policy shows of a workload whose pods it no longer selects."""

from __future__ import annotations

import pytest
from support.api_server import ApiServer
from support.growths import Pods, Replica
from support.worlds import START, FakeClock, a_snapshot, known

from slopewise.manager.departures import Departures
from slopewise.model import CpuAllocation, MemoryState, PassReport


@pytest.mark.parametrize(("has_others", "state"), [(False, "Unmanaged"), (True, None)])
def test_a_workload_is_shown_as_released_unless_another_policy_shows_its_own_pods_of_it(
    server: ApiServer, has_others: bool, state: str | None
) -> None:
    pods = Pods()
    replica = Replica(server.client(), pods)
    for policy, slot in (("older", "0"), ("newer", "1"))[: 1 + has_others]:
        memory = replica.memory(policy)
        memory.load()
        memory.save(MemoryState({pods.add("train", slot): known(original=CpuAllocation(2000, 500))}))
    check = Departures("older", "limits", replica.job_growths, pods, lambda pod: False, FakeClock())
    check(PassReport(START, "flowcon", {}, START, snapshot=a_snapshot([])))
    (document,) = replica.job_growths.of("older")
    assert document.render().get("state") == state
