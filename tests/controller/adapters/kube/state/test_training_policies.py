"""TrainingPolicy objects: what they say, whose pods are whose, their finalizer and the document of their status."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs
from support.api_server import ApiServer, refusal
from support.managed_pods import a_managed_pod
from support.worlds import START

from slopewise.adapters.kube.cache.records import FINALIZER, MANAGED_LABEL, PLACE_GATE, PodRecord
from slopewise.adapters.kube.client.client import ApiError
from slopewise.adapters.kube.state.status_writer import StatusSender
from slopewise.adapters.kube.state.training_policies import (
    MAX_CLASSES_BYTES,
    NO_RECORDS,
    RECORDS_SECONDS,
    Intervals,
    PolicyDocument,
    PolicyRecord,
    PolicyRecords,
    claim_pods,
    classes_json,
    parse_policy,
    policy_path,
    set_finalizer,
)
from slopewise.crds.policy_status import Conflict, PolicyFacts
from slopewise.model import ClassFigures, Departed, NodeMemory


def raw(name: str = "p", spec: dict[str, Any] | None = None, created: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    meta = {"name": name, "uid": f"uid-{name}", "creationTimestamp": created, "generation": 2, "resourceVersion": "1"}
    return {"metadata": meta, "spec": spec or {}}


def a_policy(name: str = "p", created: str = "2026-01-01T00:00:00Z", **selector: Any) -> PolicyRecord:
    return parse_policy(raw(name, {"selector": selector}, created))


def a_pod(name: str, *, namespace: str = "team-a", node: str = "node-a", **labels: str) -> PodRecord:
    all_labels = {MANAGED_LABEL: "true", **labels}
    return structs.replace(
        a_managed_pod().pod, uid=f"uid-{name}", name=name, namespace=namespace, node=node, labels=all_labels
    )


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            {"mode": "auto"},
            "TrainingPolicy p: spec.mode: must be 'Observe', 'Recommend', 'Canary' or 'Auto', not 'auto'; did you mean",
        ),
        ({"policy": {"name": "flowkon"}}, "there is no policy 'flowkon'"),
        (["odd"], "must be a mapping"),
    ],
)
def test_a_policy_that_cannot_be_obeyed_is_kept_with_the_sentence_why(spec: Any, sentence: str) -> None:
    record = parse_policy(raw(spec=spec))
    assert record.document is None
    assert sentence in (record.invalid or "")


def test_the_older_policy_wins_and_the_other_one_knows_what_it_lost() -> None:
    older = a_policy("zebra", "2026-01-01T00:00:00Z", namespaces={"matchLabels": {"team": "a"}})
    newer = a_policy("ant", "2026-02-01T00:00:00Z")
    pods = [a_pod(f"pod-{number}") for number in range(4)] + [a_pod("other", namespace="team-b")]
    claims = claim_pods([newer, older], pods, {"team-a": {"team": "a"}, "team-b": {}}, {})
    assert claims.policy_of["uid-pod-0"] == "zebra"
    assert claims.policy_of["uid-other"] == "ant"
    assert claims.conflicts == {"ant": Conflict(4, ("team-a/pod-0", "team-a/pod-1", "team-a/pod-2"), "zebra")}


def test_of_two_policies_of_one_second_the_name_decides_and_no_pod_that_is_let_go_or_has_ended_is_a_conflict() -> None:
    let_go = structs.replace(a_pod("x"), labels={MANAGED_LABEL: "false"})
    ended = structs.replace(a_pod("ended"), phase="Succeeded")
    policies = [a_policy("b"), a_policy("a")]
    assert claim_pods(policies, [let_go, a_pod("y")], {}, {}).policy_of == {"uid-y": "a"}
    assert claim_pods(policies, [let_go, ended], {}, {}).conflicts == {}
    going, invalid = replace(a_policy("going"), deleting=True), parse_policy(raw("invalid", {"mode": "auto"}))
    claims = claim_pods([going, invalid, a_policy("z", "2026-03-01T00:00:00Z")], [a_pod("x")], {}, {})
    assert (claims.policy_of, claims.conflicts) == ({"uid-x": "z"}, {}), "one that goes or cannot be obeyed has none"


def test_selectors_of_pods_nodes_and_namespaces_must_all_agree() -> None:
    policy = a_policy(
        pods={"matchExpressions": [{"key": "size", "operator": "In", "values": ["big"]}]},
        nodes={"matchLabels": {"pool": "gpu"}},
        namespaces={"matchLabels": {"team": "a"}},
    )
    pods = [
        a_pod("yes", size="big"),
        a_pod("small", size="small"),
        a_pod("elsewhere", node="node-b", size="big"),
        a_pod("foreign", namespace="team-b", size="big"),
        structs.replace(a_pod("waiting", size="big"), node=None),
    ]
    claims = claim_pods(
        [policy], pods, {"team-a": {"team": "a"}, "team-b": {}}, {"node-a": {"pool": "gpu"}, "node-b": {}}
    )
    assert set(claims.policy_of) == {"uid-yes"}
    policies = [a_policy(name, nodes={"matchLabels": {"pool": name}}) for name in ("a", "b")]
    gated = structs.replace(a_pod("waits"), node=None, gates=(PLACE_GATE,))
    claims = claim_pods(policies, [gated], {}, {"node-a": {"pool": "a"}})
    assert (claims.policy_of, claims.conflicts) == ({"uid-waits": "a"}, {}), "it waits for us to find it a node"


def test_the_finalizer_is_set_once_beside_those_of_others(server: ApiServer) -> None:
    there = raw()
    there["metadata"]["finalizers"] = ["other.example/x"]
    server.put(policy_path(), there)
    api = server.client()
    set_finalizer(api, "p", wanted=True)
    set_finalizer(api, "p", wanted=True)
    assert server.get(policy_path("p"))["metadata"]["finalizers"] == ["other.example/x", FINALIZER]
    assert len(server.asked("PATCH")) == 1
    set_finalizer(api, "p", wanted=False)
    assert server.get(policy_path("p"))["metadata"]["finalizers"] == ["other.example/x"]


def classes(*names: str, job_uid: str = "uid:0") -> PolicyRecords:
    return PolicyRecords({name: (ClassFigures(job_uid, 100.0, 0.5, 2.0, 0.25, 300.0, None),) for name in names})


def departed(*uids: str) -> PolicyRecords:
    return PolicyRecords(departed=tuple(Departed(uid, "[100.0,50.0]") for uid in uids))


@pytest.mark.parametrize(
    ("records", "more"),
    [
        (classes("team-a/resnet"), classes("team-a/resnet", "team-a/bert")),
        (departed("uid:0"), departed("uid:0", "uid:1")),
    ],
    ids=["classes", "departed jobs"],
)
def test_records_come_back_after_a_restart(server: ApiServer, records: PolicyRecords, more: PolicyRecords) -> None:
    document = PolicyDocument(parse_policy(server.put(policy_path(), raw())))
    assert document.remember_records(records, 0.0)
    assert StatusSender(server.client()).send(document)
    again = parse_policy(server.get(policy_path("p")))
    assert again.records == records
    assert not PolicyDocument(again).remember_records(records, 0.0), "it is not new"
    assert PolicyDocument(again).remember_records(more, 0.0)


def test_records_of_known_classes_are_stored_once_a_minute_and_those_of_a_new_one_at_once() -> None:
    document = PolicyDocument(a_policy())
    document.remember_records(classes("a"), 0.0)
    assert not document.remember_records(classes("a", job_uid="second:0"), RECORDS_SECONDS - 1)
    assert "second" not in document.render()["classes"]
    assert not document.remember_records(classes("a", job_uid="second:0"), RECORDS_SECONDS)
    assert "second" in document.render()["classes"]
    assert document.remember_records(classes("a", "b", job_uid="third:0"), RECORDS_SECONDS + 1)
    assert "third" in document.render()["classes"]
    document.remember_records(departed("uid:0"), 2 * RECORDS_SECONDS + 1)
    assert "departed" in document.render()
    document.remember_records(PolicyRecords(), 3 * RECORDS_SECONDS + 1)
    assert "departed" not in document.render()


def test_what_is_stored_of_classes_is_bounded_and_the_last_ones_stay() -> None:
    long = classes(*(f"class-{number}" for number in range(48)), job_uid="x" * 1000)
    encoded = classes_json(long.classes) or ""
    assert 0 < len(encoded) <= MAX_CLASSES_BYTES
    assert '"class-47"' in encoded
    assert '"class-0"' not in encoded


@pytest.mark.parametrize("spoiled", ["{", 3])
def test_a_status_that_somebody_spoiled_counts_as_none_and_is_written_again(server: ApiServer, spoiled: Any) -> None:
    status = {"classes": spoiled, "departed": spoiled}
    assert parse_policy({**raw(), "status": status}).records == NO_RECORDS
    spoiled_too = {"nodes": "many", "conditions": 3}
    record = parse_policy(server.put(policy_path(), {**raw(), "status": {**status, **spoiled_too}}))
    assert record.intervals == Intervals()
    document = PolicyDocument(record)
    document.show(PolicyFacts(2, "Auto"), START)
    StatusSender(server.client()).send(document)
    assert server.get(policy_path("p"))["status"]["nodes"] == []


def test_a_policys_status_is_back_after_a_restart_and_a_placements_while_it_has_one(server: ApiServer) -> None:
    spec = {"policy": {"name": "flowcon"}, "placement": {"name": "specon"}}
    document = PolicyDocument(parse_policy(server.put(policy_path(), raw(spec=spec))))
    document.show(PolicyFacts(2, "Auto", held="Prometheus is gone"), START)
    document.remember({"n1": NodeMemory(frozenset(), 100.0, 20.0)}, {"n1": NodeMemory(frozenset(), 90.0, 30.0)})
    assert StatusSender(server.client()).send(document)
    stored = server.get(policy_path("p"))
    later = PolicyDocument(parse_policy(stored))
    later.show(PolicyFacts(2, "Auto", held="Prometheus is gone"), START + 60)
    assert not StatusSender(server.client()).send(later), "nothing changed, not even the time of the conditions"
    assert parse_policy(stored).intervals == Intervals({"n1": (100.0, 20.0)}, {"n1": (90.0, 30.0)})
    alone = parse_policy({**stored, "spec": {"policy": {"name": "flowcon"}}})
    assert alone.intervals == Intervals({"n1": (100.0, 20.0)})


def test_a_conflict_about_the_finalizer_is_read_again_but_not_for_ever(server: ApiServer) -> None:
    server.put(policy_path(), raw())
    conflict = refusal(409, "Conflict", "the object has been modified")
    server.fault(conflict, method="PATCH", times=2)
    set_finalizer(server.client(), "p", wanted=True)
    assert server.get(policy_path("p"))["metadata"]["finalizers"] == [FINALIZER]
    server.fault(conflict, method="PATCH", times=9)
    with pytest.raises(ApiError, match="modified"):
        set_finalizer(server.client(), "p", wanted=False)
