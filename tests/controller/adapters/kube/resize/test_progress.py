"""Since when a kubelet has not carried out what the API server accepted: by pod, and by node for the metrics."""

from __future__ import annotations

from msgspec import structs
from support.cluster_records import a_container, a_pod
from support.worlds import FakeClock

from slopewise.adapters.kube.cache.records import PodPending
from slopewise.adapters.kube.resize.progress import ResizeProgress
from slopewise.model import CpuAllocation

SETTLED = a_pod("p")
ACCEPTED = a_pod("p", a_container(limit=1000, reported=CpuAllocation(2000, 500)))


def test_a_pod_waits_from_the_moment_that_something_is_accepted_until_it_is_in_effect() -> None:
    clock = FakeClock()
    progress = ResizeProgress(clock.monotonic)
    progress.note(None, SETTLED)
    assert progress.waited_seconds("uid-p") is None

    progress.note(SETTLED, ACCEPTED)
    clock.seconds += 30
    again = a_pod("p", a_container(limit=500, reported=CpuAllocation(2000, 500)))
    progress.note(ACCEPTED, again)
    assert progress.waited_seconds("uid-p") == 30
    assert progress.by_node() == {"n1": [30]}
    other = ResizeProgress(clock.monotonic)
    other.note(None, ACCEPTED)
    other.note(ACCEPTED, structs.replace(ACCEPTED, uid="uid-of-the-next"))
    assert (other.waited_seconds("uid-p"), other.waited_seconds("uid-of-the-next")) == (None, 0)
    other.note(structs.replace(ACCEPTED, uid="uid-of-the-next"), None)
    assert other.by_node() == {}, "one that goes or is replaced waits no more"

    progress.note(again, a_pod("p", a_container(limit=500)))
    assert progress.waited_seconds("uid-p") is None
    assert progress.by_node() == {}


def test_only_pods_that_run_wait_and_none_whose_kubelet_says_why() -> None:
    progress = ResizeProgress()
    deferred = structs.replace(ACCEPTED, pending=PodPending("Deferred", 0.0, "no room"))
    for pod in (deferred, structs.replace(ACCEPTED, phase="Pending"), structs.replace(ACCEPTED, deleting=True)):
        progress.note(None, pod)
        assert progress.waited_seconds("uid-p") is None
    progress.note(None, structs.replace(ACCEPTED, pending=PodPending("Error", 0.0, "it failed")))
    assert progress.waited_seconds("uid-p") is not None
