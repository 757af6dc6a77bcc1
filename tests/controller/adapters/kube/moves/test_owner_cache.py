"""What is asked about owners and volumes: once, a bounded number a pass, and a refusal is a reason to stay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from support.cluster_records import FakeOwnersApi, owned_by

from slopewise.adapters.kube.cache.records import STOPPED, OwnerRef
from slopewise.adapters.kube.moves.owner_cache import (
    KEPT_SECONDS,
    PAUSE_KEPT_SECONDS,
    READS_A_PASS,
    SHARED_STORAGE,
    Disk,
    OwnerReading,
    OwnerTemplate,
    Pause,
)
from slopewise.adapters.kube.moves.stop_note import StopNote
from slopewise.adapters.pauses import GRANT_SECONDS

JOB = owned_by("Job", "train", "job-1")
JOB_PATH = "/apis/batch/v1/namespaces/team/jobs/train"
CLAIM_PATH = "/api/v1/namespaces/team/persistentvolumeclaims/saved"
VOLUME_PATH = "/api/v1/persistentvolumes/pv-1"
IGNORES = [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]


def a_job(*, uid: str = "job-1", gated: bool = True, template: Mapping[str, Any] = {}, **spec: Any) -> dict[str, Any]:
    gates = [{"name": "slopewise.dev/place"}] if gated else []
    pod_spec = {"restartPolicy": "Never", "schedulingGates": gates, **template}
    return {
        "metadata": {"name": "train", "namespace": "team", "uid": uid},
        "spec": {"template": {"spec": pod_spec}, "podFailurePolicy": {"rules": IGNORES}, **spec},
    }


def a_volume(**spec: Any) -> dict[str, Any]:
    annotations = spec.pop("annotations", {})
    return {"metadata": {"name": "pv-1", "annotations": annotations}, "spec": spec}


def reading(api: FakeOwnersApi) -> OwnerReading:
    made = OwnerReading(api)  # type: ignore[arg-type]
    made.begin_pass(0.0)
    return made


def test_a_job_says_what_is_against_either_way_of_moving_it() -> None:
    ready = {"affinity": {"podAffinity": {"x": 1}}}
    assert reading(FakeOwnersApi({JOB_PATH: a_job()})).template("team", JOB, 1) == OwnerTemplate()
    found = reading(FakeOwnersApi({JOB_PATH: a_job(gated=False, template=ready)})).template("team", JOB, 1)
    assert (found.blocked_reason, found.affinity_json) == (None, '{"podAffinity": {"x": 1}}')
    assert "no scheduling gate slopewise.dev/place" in (found.not_evictable_reason or "")


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (a_job(managedBy="kueue.x-k8s.io/multikueue"), "managed by kueue.x-k8s.io/multikueue"),
        (a_job(uid="job-2"), "its Job train has been replaced"),
        ({"metadata": {"uid": "job-1"}}, "its Job train cannot be read: KeyError: 'spec'"),
    ],
)
def test_a_job_that_another_has_or_replaced_or_that_cannot_be_understood_stays(job: Any, reason: str) -> None:
    assert reason in (reading(FakeOwnersApi({JOB_PATH: job})).template("team", JOB, 1).blocked_reason or "")


@pytest.mark.parametrize(
    ("owner", "words"),
    [
        (owned_by("DaemonSet", "train", "x", "apps/v1"), "a DaemonSet"),
        (
            owned_by("Job", "t", "x", "batch.volcano.sh/v1alpha1"),
            "a Job of batch.volcano.sh/v1alpha1 is of a kind that is not read",
        ),
    ],
)
def test_owners_whose_pods_do_not_come_back_one_after_the_other_are_not_even_read(owner: OwnerRef, words: str) -> None:
    api = FakeOwnersApi()
    assert words in (reading(api).template("team", owner, 1).blocked_reason or "")
    assert api.asked == []


def test_an_owner_is_read_once_for_each_generation_whatever_its_age() -> None:
    api = FakeOwnersApi({JOB_PATH: a_job()})
    here = reading(api)
    for generation in (1, 1, 2, 2):
        here.template("team", JOB, generation)
        here.begin_pass(10 * KEPT_SECONDS)
    assert api.asked == [JOB_PATH, JOB_PATH]


def test_a_pod_that_names_an_owner_of_another_namespace_says_nothing_about_that_ones_own_pods() -> None:
    owner = owned_by("StatefulSet", "train", "job-1", "apps/v1")
    path = "/apis/apps/v1/namespaces/team/statefulsets/train"
    here = reading(FakeOwnersApi({path: a_job()}))
    assert "is not there" in (here.template("stranger", owner, 0).blocked_reason or "")
    assert here.template("team", owner, 0) == OwnerTemplate()


@pytest.mark.parametrize(("unasked_passes", "reads"), [(10, 1), (11, 2)])
def test_an_owner_that_ten_passes_have_not_asked_for_is_forgotten(unasked_passes: int, reads: int) -> None:
    api = FakeOwnersApi({JOB_PATH: a_job()})
    here = reading(api)
    here.template("team", JOB, 1)
    for _ in range(unasked_passes):
        here.begin_pass(0.0)
    here.template("team", JOB, 1)
    assert api.asked == [JOB_PATH] * reads


def test_of_many_claims_the_last_is_read_too_while_the_first_grow_old() -> None:
    claims = [f"saved-{number}" for number in range(15 * READS_A_PASS)]
    path = CLAIM_PATH.removesuffix("saved")
    bound = {f"{path}{claim}": {"spec": {"volumeName": "pv-1"}} for claim in claims}
    api = FakeOwnersApi({**bound, VOLUME_PATH: a_volume(nfs={})})
    here = reading(api)
    for seen in range(80):
        here.begin_pass(20.0 * seen)
        asked = len(api.asked)
        disks = [here.disk("team", claim) for claim in claims]
        assert len(api.asked) - asked <= 2 * READS_A_PASS, "a claim and its volume"
        if not seen:
            assert "has not been read yet; its turn comes in one of the next passes" in str(disks[-1].blocked_reason)
    assert set(disks) == {Disk()}


def test_what_has_no_generation_is_believed_for_a_while() -> None:
    api = FakeOwnersApi({CLAIM_PATH: {"spec": {"volumeName": "pv-1"}}, VOLUME_PATH: a_volume(nfs={})})
    here = reading(api)
    here.disk("team", "saved")
    here.begin_pass(KEPT_SECONDS - 1)
    here.disk("team", "saved")
    assert len(api.asked) == 2
    here.begin_pass(KEPT_SECONDS + 1)
    here.disk("team", "saved")
    assert len(api.asked) == 4


def test_a_right_that_is_missing_is_named_and_asked_for_again_later() -> None:
    api = FakeOwnersApi({JOB_PATH: 403})
    here = reading(api)
    for now in (0.0, GRANT_SECONDS - 1):
        here.begin_pass(now)
        reason = here.template("team", JOB, 1).blocked_reason
        assert reason == "its Job train may not be read; apply manifests/components/moves"
    assert len(api.asked) == 1
    api.answers[JOB_PATH] = a_job()
    here.begin_pass(GRANT_SECONDS + 1)
    assert here.template("team", JOB, 1) == OwnerTemplate()


def test_once_none_answers_no_other_is_asked_in_that_pass() -> None:
    api = FakeOwnersApi({JOB_PATH: 0})
    here = reading(api)
    assert "could not be read" in (here.template("team", JOB, 1).blocked_reason or "")
    assert "has not been read yet" in (here.disk("team", "saved").blocked_reason or "")
    assert api.asked == [JOB_PATH]


@pytest.mark.parametrize("kind", ["hostPath", "local"])
def test_a_disk_of_one_node_stays_unless_an_administrator_says_that_every_node_has_it(kind: str) -> None:
    api = FakeOwnersApi({CLAIM_PATH: {"spec": {"volumeName": "pv-1"}}, VOLUME_PATH: a_volume(**{kind: {}})})
    reason = reading(api).disk("team", "saved").blocked_reason or ""
    assert f"a {kind} volume of one node" in reason
    assert SHARED_STORAGE in reason
    api.answers[VOLUME_PATH] = a_volume(**{kind: {}}, annotations={SHARED_STORAGE: "true"})
    assert reading(api).disk("team", "saved") == Disk()


def test_where_a_volume_can_be_reached_from_is_kept_and_a_claim_without_one_is_reported() -> None:
    required = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
    volume = a_volume(csi={}, nodeAffinity={"required": required})
    api = FakeOwnersApi({CLAIM_PATH: {"spec": {"volumeName": "pv-1"}}, VOLUME_PATH: volume})
    disk = reading(api).disk("team", "saved")
    assert (disk.blocked_reason, '"zone"' in disk.node_affinity_json) == (None, True)
    unbound = FakeOwnersApi({CLAIM_PATH: {"spec": {}}})
    without = [reading(api).disk("team", "saved") for api in (unbound, FakeOwnersApi({}))]
    assert [each.blocked_reason for each in without] == [
        "its claim saved has no volume yet",
        "its claim saved, or the volume behind it, is not there",
    ]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({}, None),
        ({"suspend": True}, "its Job is suspended, and not by Slopewise"),
        ({"runPolicy": {"suspend": True}}, "its Job is suspended, and not by Slopewise"),
        ({"parallelism": 0}, "its Job has parallelism: 0"),
    ],
)
def test_an_owner_that_wants_no_pods_says_why(spec: dict[str, Any], why: str | None) -> None:
    reason = reading(FakeOwnersApi({JOB_PATH: a_job(**spec)})).pause("team", JOB, "0", 1)
    assert reason == (None if why is None else Pause("suspended", why))


@pytest.mark.parametrize(
    ("kind", "replicas", "slot", "why"),
    [
        ("Deployment", 0, "0", "its Deployment has replicas: 0"),
        ("StatefulSet", 1, "1", "its StatefulSet has replicas: 1, and train-1 is not among them any more"),
    ],
)
def test_an_owner_that_was_scaled_down_says_so(kind: str, replicas: int, slot: str, why: str | None) -> None:
    path = f"/apis/apps/v1/namespaces/team/{kind.lower()}s/train"
    owner = owned_by(kind, "train", "job-1", "apps/v1")
    reason = reading(FakeOwnersApi({path: a_job(replicas=replicas)})).pause("team", owner, slot, 0)
    assert reason == (None if why is None else Pause("suspended", why))


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("Complete", Pause("finished", "its Job has ended")),
        ("Failed", Pause("failed", "its Job has failed")),
    ],
)
def test_a_job_that_is_over_says_how(condition: str, expected: Pause) -> None:
    job = {**a_job(suspend=True), "status": {"conditions": [{"type": condition, "status": "True"}]}}
    assert reading(FakeOwnersApi({JOB_PATH: job})).pause("team", JOB, "0", 1) == expected
    stopped = a_job(suspend=True)
    stopped["metadata"]["annotations"] = {STOPPED: StopNote(0.0, "stopped at its target", "p").written()}
    reason = reading(FakeOwnersApi({JOB_PATH: stopped})).pause("team", JOB, "0", 1)
    assert reason == Pause("stopped", "stopped at its target")


def test_whether_an_owner_wants_pods_is_asked_again_when_its_spec_changes_or_after_a_minute() -> None:
    api = FakeOwnersApi({JOB_PATH: a_job()})
    asked = reading(api)
    assert asked.pause("team", JOB, "0", 1) is None
    api.answers[JOB_PATH] = a_job(suspend=True)
    asked.begin_pass(PAUSE_KEPT_SECONDS - 1)
    assert (asked.pause("team", JOB, "0", 1), len(api.asked)) == (None, 1)
    assert asked.pause("team", JOB, "0", 2) is not None
    asked.begin_pass(1e6)
    assert (asked.pause("team", JOB, "0", 2) is not None, len(api.asked)) == (True, 2), (
        "a suspension is a matter of the spec"
    )

    unversioned = reading(api)
    unversioned.pause("team", JOB, "0", 0)
    api.answers[JOB_PATH] = a_job()
    unversioned.begin_pass(PAUSE_KEPT_SECONDS - 1)
    assert unversioned.pause("team", JOB, "0", 0) is not None
    unversioned.begin_pass(PAUSE_KEPT_SECONDS)
    assert unversioned.pause("team", JOB, "0", 0) is None


@pytest.mark.parametrize("answer", [403, 404, a_job(uid="another", suspend=True), {}])
def test_of_an_owner_that_cannot_be_read_nothing_is_said(answer: Any) -> None:
    assert reading(FakeOwnersApi({JOB_PATH: answer})).pause("team", JOB, "0", 1) is None
    assert reading(FakeOwnersApi()).pause("team", owned_by("CronJob", "nightly", "c"), "0", 1) is None
