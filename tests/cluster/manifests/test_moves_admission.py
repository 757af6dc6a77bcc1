"""What the API server lets the accounts of the controller and of the sweeper do to pods and Jobs, and what not.

All objects are made once, and everything is a dry run, which admission policies judge like any write. No pod runs:
those without a gate ask for a node that is not there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.accounts import SYSTEM, api_of_account, refusal
from support.cluster import Kubectl, PodShape
from support.waiting import wait_for

from slopewise.adapters.kube.cache.parsing import parse_pod
from slopewise.adapters.kube.cache.records import MOVE, MOVES_ALLOWED, MOVES_LABEL, PLACE_GATE, PLACED
from slopewise.adapters.kube.client.client import KubeApi
from slopewise.adapters.kube.client.protocol import MERGE_PATCH, STRATEGIC_MERGE_PATCH, Json, path_of
from slopewise.adapters.kube.moves.eviction import evict
from slopewise.adapters.kube.moves.node_predicates import pinned
from slopewise.adapters.kube.moves.scheduling_gate import Aim, release_patch

DRY = {"dryRun": "All"}
NOWHERE = "a-node-that-is-not-there"
PIN = pinned(None, NOWHERE)
OTHER_GATE = "example.org/quota"
OPEN = {"schedulingGates": [{"$patch": "delete", "name": PLACE_GATE}]}

BEGIN = {"metadata": {"annotations": {MOVE: "{}"}}, "spec": {"suspend": True}}
RESUME = {
    "metadata": {"annotations": {MOVE: "{}"}},
    "spec": {"suspend": False, "template": {"spec": {"affinity": PIN}}},
}
FREE = {"metadata": {"annotations": {MOVE: None}}, "spec": {"suspend": False, "template": {"spec": {"affinity": None}}}}
QUEUED: dict[str, Any] = {"labels": {"kueue.x-k8s.io/queue-name": "team"}}
JOBSET = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "a", "uid": "1", "controller": True}


@pytest.fixture(scope="module")
def stage(installed: Kubectl, idle: PodShape) -> Iterator[str]:
    """A namespace where jobs may be moved, with the pods `gated` and `theirs` and Jobs whose names say how they are."""
    shape = dataclasses.replace(idle, node=NOWHERE)
    unlabelled = dataclasses.replace(shape, labels={})
    with installed.own_namespace() as namespace:
        installed.apply(
            gated(idle, "gated", PLACE_GATE, OTHER_GATE),
            gated(idle, "theirs", OTHER_GATE),
            job(shape, "running"),
            job(unlabelled, "running-unlabelled"),
            job(shape, "running-queued", **QUEUED),
            job(shape, "running-controlled", ownerReferences=[JOBSET]),
            job(shape, "suspended", suspended=True),
            job(shape, "moving", suspended=True, annotations={MOVE: "{}"}),
            job(unlabelled, "moving-edited", suspended=True, annotations={MOVE: "{}"}, **QUEUED),
            namespace=namespace,
        )
        yield namespace


@pytest.fixture(scope="module")
def elsewhere(installed: Kubectl, idle: PodShape) -> Iterator[str]:
    """A namespace that does not opt in to moves, with the pod `gated` and the Jobs `running` and `moving`."""
    shape = dataclasses.replace(idle, node=NOWHERE)
    with installed.own_namespace() as namespace:
        installed.run("label", "namespace", namespace, f"{MOVES_LABEL}-")
        installed.apply(
            gated(idle, "gated", PLACE_GATE, OTHER_GATE),
            job(shape, "running"),
            job(shape, "moving", suspended=True, annotations={MOVE: "{}"}),
            namespace=namespace,
        )
        yield namespace


def gated(shape: PodShape, name: str, *gates: str) -> Json:
    pod = shape.pod(name)
    pod["spec"]["schedulingGates"] = [{"name": gate} for gate in gates]
    return pod


def job(shape: PodShape, name: str, *, suspended: bool = False, **metadata: Any) -> Json:
    made = shape.job(name)
    made["metadata"].update(metadata)
    made["spec"]["suspend"] = suspended
    return made


@pytest.fixture(scope="module")
def sweeper(installed: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> KubeApi:
    """The API server as the sweeper sees it."""
    return api_of_account(installed, SYSTEM, "slopewise-sweeper", tmp_path_factory.mktemp("sweeper"))


@pytest.fixture(params=["controller", "sweeper"])
def either(request: pytest.FixtureRequest, controller: KubeApi, sweeper: KubeApi) -> KubeApi:
    """Both accounts, one after the other."""
    return controller if request.param == "controller" else sweeper


def granted(call: Callable[[], object]) -> None:
    """It is let through, once rights and policies are in force (a second, if at all)."""
    said = wait_for("it is let through", lambda: refusal(call), lambda said: not said)
    assert said == ""


def refused(call: Callable[[], object], because: str) -> None:
    """It is refused with these words, once rights and policies are in force."""
    said = wait_for(f"it is refused: {because}", lambda: refusal(call), lambda said: because in said)
    assert because in said


def patched_pod(api: KubeApi, namespace: str, name: str, patch: Json) -> Callable[[], Json]:
    return lambda: api.patch(path_of("v1", "pods", namespace, name), patch, STRATEGIC_MERGE_PATCH, DRY)


def patched_job(api: KubeApi, namespace: str, name: str, patch: Json, below: str = "") -> Callable[[], Json]:
    return lambda: api.patch(f"{path_of('batch/v1', 'jobs', namespace, name)}{below}", patch, MERGE_PATCH, DRY)


# --- pods behind a gate -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "aim",
    [None, Aim(NOWHERE, pin=True), Aim(NOWHERE, pin=False)],
    ids=["anywhere", "on a node", "on a node if it has room"],
)
def test_both_accounts_open_a_gated_pod(either: KubeApi, stage: str, aim: Aim | None) -> None:
    patch = release_patch(parse_pod(either.get(path_of("v1", "pods", stage, "gated"))), aim)

    granted(patched_pod(either, stage, "gated", patch))

    opened = patched_pod(either, stage, "gated", patch)()
    assert opened["spec"]["schedulingGates"] == [{"name": OTHER_GATE}]


@pytest.mark.parametrize(
    ("patch", "because"),
    [
        ({"spec": {"schedulingGates": [{"$patch": "delete", "name": OTHER_GATE}]}}, "and no other gate"),
        ({"metadata": {"annotations": {PLACED: NOWHERE}}}, "its own scheduling gate with every change"),
        ({"spec": {"containers": [{"name": "trainer", "image": "example.org/evil:1"}]}}, "not spec.containers"),
    ],
    ids=["gate", "gate stays", "image"],
)
def test_neither_account_changes_anything_else_of_a_gated_pod(
    either: KubeApi, stage: str, patch: Json, because: str
) -> None:
    refused(patched_pod(either, stage, "gated", patch), because)


def test_neither_account_changes_a_pod_without_our_gate(either: KubeApi, stage: str) -> None:
    patch = {"spec": {"containers": [{"name": "trainer", "image": "example.org/evil:1"}]}}

    refused(patched_pod(either, stage, "theirs", patch), "only pods that carry")


# --- evictions --------------------------------------------------------------------------------------------------------


def evicted(api: KubeApi, namespace: str, options: Json) -> Callable[[], Json]:
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "gated"},
        "deleteOptions": {**options, "dryRun": ["All"]},
    }
    return lambda: api.create(f"{path_of('v1', 'pods', namespace, 'gated')}/eviction", body)


@pytest.mark.parametrize(
    ("options", "because"),
    [
        ({}, "by its uid"),
        ({"preconditions": {"resourceVersion": "1"}}, "by its uid"),
        ({"preconditions": {"uid": "1"}, "gracePeriodSeconds": 0}, "never shortens"),
    ],
    ids=["no precondition", "no uid", "grace period"],
)
def test_an_eviction_names_its_pod_by_uid_and_leaves_it_its_time(
    either: KubeApi, stage: str, options: Json, because: str
) -> None:
    refused(evicted(either, stage, options), because)


def test_neither_account_evicts_where_the_namespace_does_not_opt_in_to_moves(either: KubeApi, elsewhere: str) -> None:
    pod = parse_pod(either.get(path_of("v1", "pods", elsewhere, "gated")))

    said = wait_for("it is refused", lambda: evict(either, pod, dry_run=True), lambda seen: seen is not None)

    assert said is not None
    assert (said.result, said.detail.partition(";")[0]) == (
        "infeasible",
        f"Slopewise evicts pods only in namespaces that are labelled {MOVES_LABEL}={MOVES_ALLOWED}",
    )


def test_a_label_of_another_value_opts_in_to_nothing(installed: Kubectl, controller: KubeApi, elsewhere: str) -> None:
    uid = installed.get("pod", "gated", "-n", elsewhere)["metadata"]["uid"]

    installed.run("label", "namespace", elsewhere, f"{MOVES_LABEL}=true", "--overwrite")
    try:
        refused(evicted(controller, elsewhere, {"preconditions": {"uid": uid}}), f"{MOVES_LABEL}={MOVES_ALLOWED}")
    finally:
        installed.run("label", "namespace", elsewhere, f"{MOVES_LABEL}-")


def test_an_arriving_pod_is_placed_also_where_the_namespace_does_not_opt_in_to_moves(
    either: KubeApi, elsewhere: str
) -> None:
    granted(patched_pod(either, elsewhere, "gated", {"spec": OPEN}))


# --- Jobs -------------------------------------------------------------------------------------------------------------


def test_the_sweeper_begins_no_move(sweeper: KubeApi, stage: str) -> None:
    refused(patched_job(sweeper, stage, "running", BEGIN), "begins none")


def test_a_job_whose_owner_has_edited_it_in_mid_move_is_resumed_all_the_same(either: KubeApi, stage: str) -> None:
    granted(patched_job(either, stage, "moving-edited", FREE))


@pytest.mark.parametrize("name", ["running-unlabelled", "running-queued", "running-controlled"])
def test_a_move_is_begun_only_of_jobs_that_their_owners_have_given_us_and_no_other_suspends(
    controller: KubeApi, stage: str, name: str
) -> None:
    refused(
        patched_job(controller, stage, name, BEGIN), "labelled slopewise.dev/managed, which no other object controls"
    )


def test_no_move_is_begun_where_the_namespace_does_not_opt_in(controller: KubeApi, elsewhere: str) -> None:
    refused(patched_job(controller, elsewhere, "running", BEGIN), f"labelled {MOVES_LABEL}={MOVES_ALLOWED}")


@pytest.mark.parametrize("patch", [RESUME, FREE], ids=["on a node", "anywhere"])
def test_a_move_that_was_begun_goes_on_where_the_namespace_opts_out_meanwhile(
    either: KubeApi, elsewhere: str, patch: Json
) -> None:
    granted(patched_job(either, elsewhere, "moving", patch))


@pytest.fixture(scope="module")
def tenant(installed: Kubectl, stage: str, tmp_path_factory: pytest.TempPathFactory) -> KubeApi:
    """The API server as somebody sees it who may do everything in the stage's namespace, statuses included."""
    installed.run("create", "serviceaccount", "tenant", "-n", stage)
    installed.run("create", "role", "everything", "--verb=*", "--resource=jobs,jobs/status", "-n", stage)
    installed.run(
        "create", "rolebinding", "tenant", "--role=everything", f"--serviceaccount={stage}:tenant", "-n", stage
    )
    return api_of_account(installed, stage, "tenant", tmp_path_factory.mktemp("tenant"))


@pytest.mark.parametrize("name", ["running", "moving"])
def test_a_tenant_says_of_no_job_how_far_its_move_is(tenant: KubeApi, stage: str, name: str) -> None:
    forged = {"metadata": {"annotations": {MOVE: '{"step": "leaving"}'}}}

    refused(patched_job(tenant, stage, name, forged), "Slopewise's own note of a move")
    refused(patched_job(tenant, stage, name, forged, "/status"), "Slopewise's own note of a move")


def test_a_tenant_makes_no_job_that_is_being_moved(tenant: KubeApi, stage: str, idle: PodShape) -> None:
    forged = job(idle, "forged", annotations={MOVE: "{}"})

    refused(lambda: tenant.create(path_of("batch/v1", "jobs", stage), forged, DRY), "Slopewise's own note of a move")


@pytest.mark.parametrize(
    "patch",
    [{"metadata": {"labels": {"a": "b"}}}, {"metadata": {"annotations": {MOVE: None}}}],
    ids=["label", "annotation taken off"],
)
def test_a_tenant_edits_his_own_job_in_mid_move(tenant: KubeApi, stage: str, patch: Json) -> None:
    granted(patched_job(tenant, stage, "moving", patch))


@pytest.mark.parametrize(
    ("patch", "because"),
    [
        (BEGIN, "suspending a Job that runs"),
        ({"spec": {"suspend": False}}, "resumes no other"),
        ({"spec": {"template": {"spec": {"affinity": PIN}}}}, "where a Job may run only for a move"),
    ],
    ids=["moved", "resumed", "tied to a node"],
)
def test_a_job_that_its_owner_has_suspended_is_left_alone(
    controller: KubeApi, stage: str, patch: Json, because: str
) -> None:
    refused(patched_job(controller, stage, "suspended", patch), because)


@pytest.mark.parametrize(
    ("patch", "because"),
    [
        ({"spec": {"suspend": True}}, "only for a move"),
        ({"spec": {"parallelism": 5}}, "not spec.parallelism"),
    ],
    ids=["suspend", "parallelism"],
)
def test_neither_account_changes_anything_else_of_a_job(either: KubeApi, stage: str, patch: Json, because: str) -> None:
    refused(patched_job(either, stage, "running", patch), because)
