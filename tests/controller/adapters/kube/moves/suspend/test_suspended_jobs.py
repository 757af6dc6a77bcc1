"""How long Jobs stay suspended although no pod of them is left."""

from __future__ import annotations

from support.suspended_jobs import Yard

from slopewise.adapters.kube.moves.suspend.annotation import SuspendedJobs


def test_a_job_is_counted_from_the_end_of_its_last_pod_until_it_is_resumed_and_with_its_next_move(yard: Yard) -> None:
    suspended = SuspendedJobs(yard.jobs, yard.pods, lambda: yard.clock.seconds)
    yard.put_job()
    assert suspended.seconds() == []

    yard.lingering = True  # it saves its checkpoint
    yard.begin()
    yard.work()
    yard.clock.seconds += 300
    assert suspended.seconds() == []

    yard.end_pods()
    yard.work()
    assert suspended.seconds() == [0.0]
    yard.clock.seconds += 75
    assert suspended.seconds() == [75.0]

    yard.lingering = False
    yard.settle(yard.follower(), 5)
    assert yard.running_on() == ["node-b"]
    assert suspended.seconds() == []
    yard.begin(to="node-a")
    yard.work()
    assert suspended.seconds() == [0.0]
