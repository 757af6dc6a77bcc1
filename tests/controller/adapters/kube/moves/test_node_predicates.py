"""Nodes that would not take a pod, as the default scheduler sees it, each with what is in the way."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.cluster_records import a_node_record

from slopewise.adapters.kube.cache.records import Taint, Toleration
from slopewise.adapters.kube.moves.node_predicates import Needs, NodeFit

NOTHING = Needs()
GPU_TAINT = Taint("gpu", "yes", "NoSchedule")


def refusal(node: Any, needs: Needs = NOTHING, request_millicores: int = 0, reserved: int = 0) -> str | None:
    """Why this node would not take it; None: it would."""
    fit = NodeFit((node,))
    fit.set_requests({node.name: reserved})
    return fit.refused(needs, request_millicores).get(node.name)


def affinity(*terms: dict[str, Any]) -> str:
    required = {"nodeSelectorTerms": list(terms)}
    return json.dumps({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}})


def expressions(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def test_a_pod_that_asks_for_nothing_is_refused_by_nodes_that_are_not_ready_alone() -> None:
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]}
    wish = Needs(affinity_json=json.dumps({"nodeAffinity": preferred}))
    assert refusal(a_node_record("a", taints=(Taint("old", "", "PreferNoSchedule"),)), wish) is None
    assert refusal(a_node_record("a", ready=False)) == "it is not ready"


def test_what_a_node_lacks_is_named() -> None:
    here, elsewhere = (a_node_record("a", labels={"zone": zone}) for zone in ("x", "y"))
    needs = Needs(node_selector=(("zone", "x"),))
    assert refusal(here, needs) is None
    assert refusal(elsewhere, needs) == "it has no label zone=x, which the pod's nodeSelector asks for"
    volume = Needs(volumes_json=(json.dumps({"nodeSelectorTerms": [expressions("zone", "In", "y")]}),))
    assert refusal(here, volume) == "a volume of the pod cannot be reached from it"
    assert refusal(elsewhere, volume) is None
    cordoned = a_node_record("a", unschedulable=True)
    assert refusal(cordoned) == "its taint node.kubernetes.io/unschedulable:NoSchedule is not tolerated"
    assert refusal(cordoned, Needs(tolerations=(Toleration("", "Exists", "", ""),))) is None


@pytest.mark.parametrize(
    ("toleration", "takes"),
    [
        (Toleration("gpu", "Equal", "yes", "NoSchedule"), True),
        (Toleration("gpu", "Exists", "", ""), True),
        (Toleration("", "Exists", "", ""), True),
        (Toleration("gpu", "Equal", "no", ""), False),
        (Toleration("gpu", "Exists", "", "NoExecute"), False),
        (Toleration("", "Equal", "yes", ""), False),
    ],
)
def test_a_taint_refuses_what_does_not_tolerate_it(toleration: Toleration, takes: bool) -> None:
    node = a_node_record("a", taints=(GPU_TAINT,))
    why = refusal(node, Needs(tolerations=(toleration,)))
    assert why == (None if takes else "its taint gpu=yes:NoSchedule is not tolerated")


@pytest.mark.parametrize(
    ("term", "takes"),
    [
        (expressions("zone", "In", "x", "y"), True),
        (expressions("zone", "NotIn", "y"), True),
        (expressions("absent", "Exists"), False),
        (expressions("absent", "DoesNotExist"), True),
        (expressions("cores", "Gt", "15"), True),
        (expressions("cores", "Gt", "16"), False),
        (expressions("cores", "Lt", "17"), True),
        (expressions("zone", "Gt", "1"), False),
        (expressions("zone", "Unreachable", "x"), False),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}, True),
        ({}, False),
    ],
)
def test_required_node_affinity_is_read_as_the_scheduler_reads_it(term: dict[str, Any], takes: bool) -> None:
    node = a_node_record("a", labels={"zone": "x", "cores": "16"})
    why = refusal(node, Needs(affinity_json=affinity(term)))
    assert why == (None if takes else "the pod's required node affinity excludes it")


def test_of_several_terms_one_is_enough_and_within_one_all_must_hold() -> None:
    node = a_node_record("a", labels={"zone": "x"})
    other, this = expressions("zone", "In", "y"), expressions("zone", "In", "x")
    both = {"matchExpressions": other["matchExpressions"] + this["matchExpressions"]}
    assert refusal(node, Needs(affinity_json=affinity(other, this))) is None
    assert refusal(node, Needs(affinity_json=affinity(both))) is not None


def test_what_the_last_pass_did_not_ask_for_is_forgotten() -> None:
    fit, needs = NodeFit((a_node_record("a"),)), Needs(node_selector=(("job", "1"),))
    fit.set_requests({})
    found = fit.refused(needs, 0)
    fit.set_requests({})
    assert fit.refused(needs, 0) is found
    for _ in range(2):
        fit.set_requests({})
    assert fit.refused(needs, 0) is not found


def test_a_node_whose_cpu_is_reserved_refuses_a_request_that_does_not_fit() -> None:
    node = a_node_record("a", cpu=4000)
    assert refusal(node, request_millicores=1000, reserved=3000) is None
    reason = refusal(node, request_millicores=1001, reserved=3000)
    assert reason == "it requests 1001m, and 1000m are not reserved by managed pods"
