"""Pods are resolved to jobs; no pod becomes another's, and none loses the name it is remembered by."""

from __future__ import annotations

import pytest
from support.cluster_records import FakeOwnersApi, FakeStore, a_pod, an_object, owned_by

from slopewise.adapters.kube.cache.records import ObjectRecord, OwnerRef, PodRecord
from slopewise.adapters.kube.workloads.owners import Identity, Owners, Resolution

JOB = owned_by("Job", "train", "job-1")
JOBSET = owned_by("JobSet", "set", "set-1", "jobset.x-k8s.io/v1alpha2")
TRAINJOB = owned_by("TrainJob", "tj", "tj-1", "trainer.kubeflow.org/v1alpha1")
JOBSET_PATH = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets/set"
TRAINJOB_PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/tj"
INDEX = "batch.kubernetes.io/job-completion-index"


def reference(owner: OwnerRef) -> dict[str, object]:
    return {
        "apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid, "controller": True,
    }  # fmt: skip


def resolver(api: FakeOwnersApi | None = None, *jobs: ObjectRecord) -> Owners:
    return Owners(FakeStore(jobs or (an_object("train", "job-1"),)), api or FakeOwnersApi())  # type: ignore[arg-type]


def resolve(*pods: PodRecord, owners: Owners | None = None) -> Resolution:
    return (owners or resolver()).resolve(pods)


def uids(resolution: Resolution) -> dict[str, str]:
    return {uid: pod.name for uid, (_, pod) in resolution.pods.items()}


def test_a_bare_pod_is_its_own_workload() -> None:
    (found,) = resolve(a_pod("p")).pods.values()
    assert found[0] == Identity(OwnerRef("v1", "Pod", "p", "uid-p"), "0")
    assert found[0].job_uid == "uid-p:0"


def test_a_chain_is_followed_to_its_end_and_each_owner_is_asked_once() -> None:
    api = FakeOwnersApi(
        {JOBSET_PATH: {"uid": "set-1", "ownerReferences": [reference(TRAINJOB)]}, TRAINJOB_PATH: {"uid": "tj-1"}}
    )
    owners = resolver(api, an_object("train", "job-1", owner=JOBSET))
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "node", "jobset.sigs.k8s.io/job-index": "0"}
    pods = [a_pod(f"p{index}", owner=JOB, labels={**labels, INDEX: f"{index}"}) for index in range(2)]
    assert uids(resolve(*pods, owners=owners)) == {"tj-1:node-0-0": "p0", "tj-1:node-0-1": "p1"}
    resolve(*pods, a_pod("p2", owner=JOB, labels={**labels, INDEX: "2"}), owners=owners)
    assert api.asked == [JOBSET_PATH, TRAINJOB_PATH]


@pytest.mark.parametrize(
    ("owner", "path", "labels", "uid"),
    [
        (
            owned_by("PyTorchJob", "pt", "pt-1", "kubeflow.org/v1"),
            "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/pt",
            {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "1"},
            "pt-1:worker-1",
        ),
        (
            owned_by("StatefulSet", "ss", "ss-1", "apps/v1"),
            "/apis/apps/v1/namespaces/team/statefulsets/ss",
            {"apps.kubernetes.io/pod-index": "3"},
            "ss-1:3",
        ),
        (owned_by("ReplicaSet", "rs", "rs-1", "apps/v1"), "/apis/apps/v1/namespaces/team/replicasets/rs", {}, "d-1:0"),
    ],
)
def test_other_controllers_number_their_pods_too(owner: OwnerRef, path: str, labels: dict[str, str], uid: str) -> None:
    deployment = owned_by("Deployment", "d", "d-1", "apps/v1")
    found = {path: {"uid": owner.uid, "ownerReferences": [reference(deployment)] if owner.kind == "ReplicaSet" else []}}
    owners = resolver(FakeOwnersApi({**found, "/apis/apps/v1/namespaces/team/deployments/d": {"uid": "d-1"}}))
    assert uids(resolve(a_pod("p", owner=owner, labels=labels), owners=owners)) == {uid: "p"}


@pytest.mark.parametrize(("kind", "version"), [("CronJob", "batch/v1"), ("Trial", "kubeflow.org/v1beta1")])
def test_each_run_of_a_cron_job_and_of_a_trial_of_katib_is_a_workload_of_its_own(kind: str, version: str) -> None:
    owners = resolver(None, an_object("train", "job-1", owner=owned_by(kind, "nightly", "owner-1", version)))
    ((identity, _),) = resolve(a_pod("p", owner=JOB), owners=owners).pods.values()
    assert (identity.job_uid, identity.warnings) == ("job-1:0", ())


@pytest.mark.parametrize(
    ("answer", "expected"), [(403, "its owner JobSet set may not be read"), (404, "its owner JobSet set is not there")]
)
def test_a_chain_ends_where_it_may_not_be_read_and_says_so(answer: int, expected: str) -> None:
    owners = resolver(FakeOwnersApi({JOBSET_PATH: answer}), an_object("train", "job-1", owner=JOBSET))
    ((identity, _),) = resolve(a_pod("p", owner=JOB), owners=owners).pods.values()
    assert identity.job_uid == "job-1:0"
    assert identity.warnings == (f"{expected}, so its job is only known up to there",)


def test_a_kind_that_is_not_read_is_named_and_not_asked_for() -> None:
    api = FakeOwnersApi()
    pod = a_pod("p", owner=owned_by("RayCluster", "r", "r-1", "ray.io/v1"))
    ((identity, _),) = resolve(pod, owners=resolver(api)).pods.values()
    assert identity.job_uid == "uid-p:0"
    assert "RayCluster r is of a kind that is not read" in identity.warnings[0]
    assert api.asked == []


def test_a_reference_to_another_namespaces_job_makes_no_pod_its_own() -> None:
    thief = a_pod("thief", namespace="evil", owner=JOB, created_at_seconds=2e9)
    victim = a_pod("victim", owner=JOB)
    assert uids(resolve(thief, victim)) == {"uid-thief:0": "thief", "job-1:0": "victim"}


def test_a_job_that_was_made_again_under_its_name_is_not_the_owner_of_older_pods() -> None:
    owners = resolver(
        FakeOwnersApi({"/apis/batch/v1/namespaces/team/jobs/train": {"uid": "job-2"}}), an_object("train", "job-2")
    )
    ((identity, _),) = resolve(a_pod("p", owner=JOB), owners=owners).pods.values()
    assert identity.job_uid == "uid-p:0"
    assert "has been replaced" in identity.warnings[0]


def test_a_hostile_name_cannot_lead_the_request_elsewhere() -> None:
    api = FakeOwnersApi()
    owner = owned_by("JobSet", "../../../../../api/v1/secrets?x=", "u", "jobset.x-k8s.io/v1?y=")
    resolve(a_pod("p", owner=owner), owners=resolver(api))
    (path,) = api.asked
    assert path.startswith("/apis/jobset.x-k8s.io/v1%3Fy%3D/namespaces/team/jobsets/..%2F..%2F")
    assert "?" not in path


def test_owners_that_own_each_other_in_a_circle_end_somewhere() -> None:
    circle = owned_by("Job", "train", "job-1")
    owners = resolver(None, an_object("train", "job-1", owner=circle))
    assert uids(resolve(a_pod("p", owner=circle), owners=owners)) == {"job-1:0": "p"}


def test_pods_whose_owner_cannot_be_asked_now_are_left_out_and_asked_for_again() -> None:
    api = FakeOwnersApi({JOBSET_PATH: 500})
    owners = resolver(api, an_object("train", "job-1", owner=JOBSET))
    pods = (a_pod("bare"), a_pod("p", owner=JOB))
    first = owners.resolve(pods)
    assert uids(first) == {"uid-bare:0": "bare"}
    assert list(first.left_out) == ["team/p"]
    api.answers[JOBSET_PATH] = {"uid": "set-1"}
    second = owners.resolve(pods)
    assert uids(second) == {"uid-bare:0": "bare", "set-1:0": "p"}
    assert second.left_out == {}


def test_an_api_server_that_does_not_answer_is_asked_once_a_pass() -> None:
    api = FakeOwnersApi({JOBSET_PATH: 0, JOBSET_PATH[:-3] + "other": 0})
    other = owned_by("JobSet", "other", "set-2", "jobset.x-k8s.io/v1alpha2")
    owners = resolver(api, an_object("a", "job-a", owner=JOBSET), an_object("b", "job-b", owner=other))
    pods = [a_pod(name, owner=owned_by("Job", name, f"job-{name}")) for name in ("a", "b")]
    assert set(resolve(*pods, owners=owners).left_out) == {"team/a", "team/b"}
    assert len(api.asked) == 1


A, B = a_pod("a", owner=JOB), a_pod("b", owner=JOB)
OLD, BY_OLD = a_pod("old", owner=JOB), {"job-1:0": "old"}
LEAVING = a_pod("old", owner=JOB, deleting=True)
NEW = a_pod("new", owner=JOB, created_at_seconds=2e6)
NEW_WAITS = a_pod("new", owner=JOB, node=None, phase="Pending", created_at_seconds=2e6)
DONE, FAILED = (a_pod("a", owner=JOB, phase=phase) for phase in ("Succeeded", "Failed"))
RETRY = a_pod("b", owner=JOB, created_at_seconds=2e6)


@pytest.mark.parametrize(
    "seen",
    [
        [((A, B), {"job-1:a": "a", "job-1:b": "b"}), ((A,), {"job-1:a": "a"})],
        [((A,), {"job-1:0": "a"}), ((A, B), {"job-1:0": "a", "job-1:b": "b"})],
        [((DONE, B), {"job-1:a": "a", "job-1:b": "b"})],
        [((FAILED, RETRY), {"job-1:0": "b"})],
        [((OLD,), BY_OLD), ((LEAVING, NEW_WAITS), BY_OLD), ((LEAVING, NEW), {"job-1:0": "new"})],
    ],
    ids=[
        "alike pods go by their names and keep them",
        "an only pod keeps its slot",
        "one that succeeded leaves its name to none",
        "the pod that retries a failed one takes its slot",
        "the replacement of an evicted one takes its slot once it has a node",
    ],
)
def test_a_pod_keeps_its_slot_for_its_successor_alone(seen: list[tuple[tuple[PodRecord, ...], dict[str, str]]]) -> None:
    api = FakeOwnersApi()
    owners = resolver(api)
    for pods, expected in seen:
        found = owners.resolve(pods)
        assert uids(found) == expected
        assert owners.resolve(pods) is found, "nothing is computed again while nothing changes"
    assert api.asked == []


def test_after_a_restart_a_pod_goes_by_the_name_that_was_recorded() -> None:
    recorded = Identity(OwnerRef("batch/v1", "Job", "train", "job-1"), "a")
    api = FakeOwnersApi()
    owners = Owners(
        FakeStore((an_object("train", "job-1"),)),
        api,  # type: ignore[arg-type]
        lambda pod: recorded if pod.uid == "uid-a" else None,
    )
    ((uid, (identity, _)),) = owners.resolve([a_pod("a", owner=JOB, labels={"slopewise.dev/study": "s"})]).pods.items()
    assert (uid, identity.study) == ("job-1:a", "s"), "a recorded pod is still a trial"


@pytest.mark.parametrize(
    ("labels", "study"),
    [
        ({"slopewise.dev/study": "mine", "katib.kubeflow.org/experiment": "theirs"}, "mine"),
        ({"katib.kubeflow.org/experiment": "theirs"}, "theirs"),
        ({"slopewise.dev/study": ""}, ""),
    ],
)
def test_a_trial_is_known_by_its_labels(labels: dict[str, str], study: str) -> None:
    owners = resolver()
    for late in ({}, labels, {}, labels):
        ((uid, (identity, _)),) = resolve(a_pod("p", labels=late), owners=owners).pods.items()
        assert (uid, identity.study) == ("uid-p:0", study if late else ""), "also while it runs"
    pods = [a_pod(f"p{index}", owner=JOB, labels={**labels, INDEX: str(index)}) for index in (0, 1)]
    found = resolve(*pods).pods
    assert {uid: identity.study for uid, (identity, _) in found.items()} == {"job-1:0": study, "job-1:1": study}


@pytest.mark.parametrize(("name", "study"), [("tune", "tune"), ("no label: \n", ""), ("x" * 64, "")])
def test_an_optimization_job_is_a_study_and_its_train_jobs_are_the_workloads(name: str, study: str) -> None:
    owner = reference(owned_by("OptimizationJob", name, "opt-1", TRAINJOB.api_version))
    api = FakeOwnersApi({TRAINJOB_PATH: {"uid": "tj-1", "ownerReferences": [owner]}})
    ((identity, _),) = resolve(a_pod("p", owner=TRAINJOB), owners=resolver(api)).pods.values()
    assert (identity.workload.uid, identity.study, identity.warnings) == ("tj-1", study, ())
