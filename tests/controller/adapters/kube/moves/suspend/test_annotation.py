"""The annotation that says how far the move of a Job is: written by us, on an object that a tenant may write too."""

from __future__ import annotations

import json

import pytest
from msgspec import structs
from support.cluster_records import FakeStore

from slopewise.adapters.kube.cache.records import MOVE, ObjectRecord, OwnerRef
from slopewise.adapters.kube.moves.suspend.annotation import JobMove, Step, move_of, under_way
from slopewise.adapters.kube.workloads.eligibility import KUEUE_LABEL
from slopewise.model import MoveUnderWay

WRITTEN = JobMove(
    workload_uid="u", namespace="team-a", name="train", step="leaving", from_node="a", to_node="b",
    since_seconds=100.0, step_since_seconds=100.0, policy="p", job_uids=("u:0", "u:1"),
    node_affinity={"x": [1]},
)  # fmt: skip


def a_job(annotation: str | None) -> ObjectRecord:
    return ObjectRecord("u", "train", "team-a", {}, None, {} if annotation is None else {MOVE: annotation})


def forged(**changes: object) -> str:
    return json.dumps({**json.loads(WRITTEN.written()), **changes})


def test_what_is_written_is_what_is_read_and_a_newer_release_may_write_more() -> None:
    assert move_of(a_job(WRITTEN.written())) == move_of(a_job(forged(more=1))) == WRITTEN
    assert move_of(a_job(None)) is None


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", "[" * 100_000, forged(step="flying"), forged(toNode="b" * 300), forged(toNode="\ud800"),
        forged(sinceSeconds=float("nan")), forged(sinceSeconds=-1e18), forged(stepSinceSeconds=1e300),
        forged(jobUids=["another:0", "u:1"]), forged(jobUids=[7]), forged(jobUids="u:0"), forged(jobUids=[]),
        forged(nodeAffinity=[1]),
    ],
)  # fmt: skip
def test_an_annotation_that_makes_no_sense_counts_as_none(text: str) -> None:
    assert move_of(a_job(text)) is None


def test_only_the_job_itself_says_whose_move_it_is() -> None:
    move = move_of(a_job(forged(workloadUid="another", namespace="team-b", name="theirs")))

    assert move is not None
    assert (move.workload_uid, move.namespace, move.name) == ("u", "team-a", "train")


def test_a_move_is_under_way_for_each_of_its_jobs_until_it_is_pinned() -> None:
    assert WRITTEN.as_under_way() == (
        MoveUnderWay("u:0", "a", "b", 100.0, "saving and ending"),
        MoveUnderWay("u:1", "a", "b", 100.0, "saving and ending"),
    )
    assert WRITTEN.at("pinning", 102.0).as_under_way()[0].step == "starting on b"
    assert WRITTEN.at("pinned", 104.0).as_under_way() == ()
    given_up = MoveUnderWay("u:0", "a", "", 100.0, "ending, to start on any node but b")
    assert WRITTEN.at("unpinning", 130.0).as_under_way()[0] == given_up
    job = a_job(WRITTEN.written())
    assert under_way(FakeStore((job,))) == [WRITTEN]
    assert under_way(FakeStore((structs.replace(job, deleting=True),))) == []


COPY = structs.replace(a_job(WRITTEN.written()), uid="v")


@pytest.mark.parametrize(
    ("written", "means"),
    [("leaving", "unpinning"), ("unpinning", "unpinning"), ("pinning", "pinned"), ("pinned", "pinned")],
)
def test_on_a_copy_of_the_job_it_is_about_the_copy_and_moves_it_nowhere(written: Step, means: Step) -> None:
    move = move_of(structs.replace(COPY, annotations={MOVE: WRITTEN.at(written, 100.0).written()}))

    assert move is not None
    assert (move.step, move.workload_uid, move.job_uids) == (means, "v", ("v:0", "v:1"))
    assert (move.node_affinity, move.to_node) == (WRITTEN.node_affinity, "b")


@pytest.mark.parametrize(
    "others",
    [
        structs.replace(COPY, owner=OwnerRef("jobset.x-k8s.io/v1alpha2", "JobSet", "set", "uid-of-set")),
        structs.replace(COPY, labels={KUEUE_LABEL: "queue"}),
    ],
    ids=["a JobSet's", "Kueue's"],
)
def test_a_copy_that_somebody_else_suspends_and_resumes_is_none_of_ours(others: ObjectRecord) -> None:
    assert move_of(others) is None
    assert move_of(structs.replace(others, annotations={MOVE: forged(jobUids=[])})) is None  # written for no pod
    assert move_of(structs.replace(others, uid="u")) == WRITTEN
