"""Tying pods to one node: whatever the owner wrote stays, and one node is left."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.api_objects import Json

from slopewise.adapters.kube.cache.records import NodeRecord
from slopewise.adapters.kube.moves.node_predicates import is_pinned_to, matches_any, pinned

SSD = {"key": "disk", "operator": "In", "values": ["ssd"]}
GPU = {"key": "gpu", "operator": "Exists"}
NODE_B = {"key": "metadata.name", "operator": "In", "values": ["b"]}


def required(*terms: Json) -> Json:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def terms_of(affinity: Json) -> list[Json]:
    terms: list[Json] = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return terms


def test_each_term_keeps_its_requirements_and_gets_the_node() -> None:
    affinity = required({"matchExpressions": [SSD]}, {"matchExpressions": [GPU], "matchFields": [NODE_B]}, {})
    before = copy.deepcopy(affinity)

    assert terms_of(pinned(affinity, "b")) == [
        {"matchExpressions": [SSD], "matchFields": [NODE_B]},
        {"matchExpressions": [GPU], "matchFields": [NODE_B]},
        {},
    ], "what matches no node does not begin to match one"
    assert affinity == before


def test_preferences_and_affinity_between_pods_stay() -> None:
    affinity = {
        "podAffinity": {"x": 1},
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]},
    }

    tied = pinned(affinity, "b")

    assert tied["podAffinity"] == {"x": 1}
    assert tied["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] == [{"weight": 1, "preference": {}}]


def test_affinity_is_a_pin_only_when_every_term_names_that_node() -> None:
    assert is_pinned_to(pinned(None, "b"), "b")
    assert not is_pinned_to(pinned(None, "b"), "c")
    assert not is_pinned_to(None, "b")
    assert not is_pinned_to(required({}), "b")
    assert not is_pinned_to(required({"matchFields": [NODE_B]}, {"matchExpressions": [SSD]}), "b")


REQUIREMENTS = st.sampled_from([SSD, GPU, {"key": "disk", "operator": "NotIn", "values": ["ssd"]}])
TERMS = st.lists(
    st.fixed_dictionaries({}, optional={"matchExpressions": st.lists(REQUIREMENTS, max_size=2)}), max_size=3
)


@given(TERMS, st.sampled_from(["a", "b"]))
def test_a_pinned_pod_fits_where_it_fitted_before_and_nowhere_but_on_that_node(terms: list[Any], name: str) -> None:
    affinity = required(*terms) if terms else None
    node = NodeRecord(name, name, {"disk": "ssd"}, 1000, 1000, ready=True)

    fitted = matches_any(terms or None, node)
    once = pinned(affinity, "b")

    assert matches_any(terms_of(once), node) == (fitted and name == "b")
    assert pinned(once, "b") == once
