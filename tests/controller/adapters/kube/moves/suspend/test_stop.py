"""Stopping a job at its target: its Job is suspended once, says why, and only its owner resumes it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs
from support.api_objects import merged
from support.api_server import Drop, refusal
from support.suspended_jobs import JOBS, NAME, UID, Yard

from slopewise.adapters.kube.cache.records import AT_TARGET, STOP, STOPPED, ManagedPod, OwnerRef
from slopewise.adapters.kube.client.protocol import Json
from slopewise.adapters.kube.moves.stop_note import StopNote, note_on
from slopewise.adapters.kube.moves.suspend.stop import JobStopper
from slopewise.model import Outcome, Stop
from slopewise.operate.sweep import Sweeper

WHY = "stopped at its target: loss 0.19 ≤ 0.2"
ASKS = {AT_TARGET: STOP}


def put_job(yard: Yard, **more: Any) -> None:
    yard.put_job(asks=ASKS, **more)


def stop(yard: Yard, managed: ManagedPod | None = None) -> Outcome[Stop]:
    pod = managed or yard.managed()
    return JobStopper(yard.api, yard.clock).stop(Stop(pod.job_uid, "node-a", WHY), pod, "training")


def test_one_patch_suspends_the_job_and_says_who_did_and_why(yard: Yard) -> None:
    put_job(yard, parallelism=2)
    pods = [yard.managed("0"), yard.managed("1")]
    assert stop(yard, pods[0]) == Outcome(
        Stop(f"{UID}:0", "node-a", WHY), "applied", f"{WHY}; its Job is suspended, and its pods save and end"
    )
    assert stop(yard, pods[1]).result == "applied"
    [patch] = yard.patches()  # the second stop of the same suspension writes nothing
    assert (patch["metadata"]["uid"], patch["spec"]) == (UID, {"suspend": True})
    assert patch["metadata"]["resourceVersion"]
    assert note_on(yard.job) == StopNote(yard.clock.seconds, WHY, "training")


def test_neither_the_thread_of_moves_nor_the_sweeper_resumes_it(yard: Yard) -> None:
    put_job(yard)
    stop(yard)
    yard.settle(yard.follower(), 120.0)
    swept = Sweeper(yard.api, None, 60.0, lambda _: False, lambda: yard.clock.seconds + 600, lambda: 0.0).run()
    assert (yard.suspended, yard.running_on(), swept.freed, swept.failed) == (True, [], {}, {})
    assert len(yard.patches()) == 1
    assert yard.violations == []


def test_a_job_that_its_owner_resumed_is_stopped_again(yard: Yard) -> None:
    put_job(yard)
    stop(yard)
    yard.work()
    yard.change_job(lambda job: job["spec"].update(suspend=False))
    yard.work()
    assert note_on(yard.job) is None
    assert stop(yard).result == "applied"
    assert len(yard.patches()) == 2


@pytest.mark.parametrize(
    ("change", "result", "why"),
    [
        ({"spec": {"suspend": True}}, "deferred", "somebody has suspended its Job; that is respected"),
        ({"metadata": {"uid": "another"}}, "failed", "its Job is gone"),
        (
            {"spec": {"template": {"metadata": {"annotations": None}}}},
            "infeasible",
            "the annotation slopewise.dev/at-target: stop is on its pod alone; put it on the Job's pod template too",
        ),
        ({"spec": {"managedBy": "example.org/kueue"}}, "infeasible", "its Job is run by example.org/kueue"),
    ],
)
def test_a_job_that_must_not_be_suspended_says_why(yard: Yard, change: Json, result: str, why: str) -> None:
    put_job(yard)
    pod = yard.managed()
    yard.server.put(JOBS, merged(yard.job, change, strategic=False))
    outcome = stop(yard, pod)
    assert (outcome.result, outcome.detail[: len(why)]) == (result, why)
    assert not yard.patches()


@pytest.mark.parametrize(
    ("owner", "workload", "why"),
    [
        (None, OwnerRef("v1", "Pod", "train", "1"), "a bare pod cannot be suspended; run it as a Job"),
        (
            OwnerRef("apps/v1", "StatefulSet", "train", "1"),
            OwnerRef("apps/v1", "StatefulSet", "train", "1"),
            "a StatefulSet is not suspended, only a Job of batch/v1 is; run it as a Job",
        ),
        (
            OwnerRef("batch/v1", "Job", "train", "1"),
            OwnerRef("jobset.x-k8s.io/v1alpha2", "JobSet", "set", "2"),
            "its JobSet set would resume its Job at once; run it as a Job of its own",
        ),
    ],
)
def test_an_unsuspendable_owner_is_not_read(yard: Yard, owner: OwnerRef | None, workload: OwnerRef, why: str) -> None:
    put_job(yard)
    pod = yard.managed()
    other = structs.replace(pod, pod=structs.replace(pod.pod, owner=owner), workload=workload)
    asked = len(yard.server.requests)
    outcome = stop(yard, other)
    assert (outcome.result, outcome.detail) == ("infeasible", why)
    assert len(yard.server.requests) == asked


@pytest.mark.parametrize(("carried_out", "result"), [(True, "applied"), (False, "failed")])
def test_after_a_lost_answer_the_job_itself_is_asked(yard: Yard, carried_out: bool, result: str) -> None:
    put_job(yard)
    yard.server.fault(Drop(after=carried_out), method="PATCH", path=f"/jobs/{NAME}$")
    assert (stop(yard).result, yard.suspended) == (result, carried_out)


# --- the note ---------------------------------------------------------------------------------------------------------


def noted(suspend: bool = True, text: str | None = None, since: str | None = None) -> Json:
    note = StopNote(0.0, WHY, "training").written() if text is None else text
    condition = {"type": "Suspended", "status": "True", "lastTransitionTime": since}
    return {
        "metadata": {"annotations": {STOPPED: note}},
        "spec": {"suspend": suspend},
        "status": {"conditions": [condition] if since else []},
    }


def test_a_note_is_read_as_it_was_written_and_says_nothing_about_a_later_suspension() -> None:
    assert note_on(noted()) == note_on(noted(since="1970-01-01T00:00:02Z")) == StopNote(0.0, WHY, "training")
    assert note_on(noted(suspend=False)) is None
    assert note_on(noted(since="1970-01-01T01:00:00Z")) is None, "its owner has resumed it, and suspended it himself"
    long = note_on(noted(text=json.dumps({"atSeconds": 1.0, "reason": "x" * 10_000, "policy": "p"})))
    assert long is not None
    assert len(long.reason) == 240


@pytest.mark.parametrize("text", ["", "[]", "[" * 3000, '{"atSeconds": 1}'])
def test_a_note_that_makes_no_sense_counts_as_none(text: str) -> None:
    assert note_on(noted(text=text)) is None


def test_without_the_right_to_suspend_it_says_which_component_grants_it(yard: Yard) -> None:
    put_job(yard)
    pod = yard.managed()
    yard.server.fault(refusal(403, "Forbidden", "jobs.batch is forbidden"), method="PATCH", path=f"/jobs/{NAME}$")
    outcome = stop(yard, pod)
    assert outcome.result == "infeasible"
    assert outcome.detail.startswith("our account may not suspend Jobs; ")
