"""Freezes in force for a policy, and the reason for which a write is withheld."""

from __future__ import annotations

import time
from typing import Any

import pytest
from msgspec import structs
from support.api_server import ApiServer
from support.managed_pods import a_managed_pod

from slopewise.adapters.clock import SystemClock
from slopewise.adapters.kube.cache.reflector import Reflector
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.state.freezes import (
    ENDED_LABEL,
    FreezeRecord,
    KubeFreezes,
    freeze_path,
    frozen_reason,
    in_force,
    parse_freeze,
)
from slopewise.config.freeze import in_utc
from slopewise.model import NO_FREEZES, Freeze, FreezeEffect, Freezes

NOW = 1_790_000_000.0
RAW = {"name": "f", "uid": "u", "creationTimestamp": "2026-11-23T10:00:00Z"}


def a_record(scope: str, name: str | None = None, *, lasts: float | None = 60.0, **more: Any) -> FreezeRecord:
    until = None if lasts is None else in_utc(NOW + lasts).isoformat()
    spec = {"scope": scope, "name": name, "until": until, **more.pop("spec", {})}
    return parse_freeze({"metadata": {**RAW, "name": f"{scope}-{name}", **more}, "spec": spec})


def test_each_scope_is_in_its_place_and_other_policies_have_none() -> None:
    records = [a_record("namespace", "team"), a_record("node", "n"), a_record("policy", "mine")]
    found = in_force(records, "mine", NOW)
    assert found.everywhere is not None
    assert (found.everywhere.name, set(found.namespaces), set(found.nodes)) == ("policy-mine", {"team"}, {"n"})
    assert in_force(records, "another", NOW).everywhere is None
    assert in_force([a_record("all")], "another", NOW).everywhere is not None

    weak = a_record("namespace", "team", lasts=None, spec={"effect": "Recommend"})
    assert in_force([weak, *records], "mine", NOW).namespaces["team"].effect == "Freeze", "the strictest counts"


@pytest.mark.parametrize(
    ("lasts", "meta", "holds"),
    [(None, {}, True), (1.0, {}, True), (0.0, {}, False), (9.0, {"deletionTimestamp": "2026-11-23T10:00:00Z"}, False)],
)
def test_it_ends_by_itself_or_when_it_is_deleted(lasts: float | None, meta: dict[str, Any], holds: bool) -> None:
    assert (in_force([a_record("all", lasts=lasts, **meta)], "p", NOW) != NO_FREEZES) is holds


@pytest.mark.parametrize(
    ("raw", "place"),
    [
        ({}, "scope"),
        ({"spec": {"scope": "rack", "name": "a"}}, "scope"),
        ({"spec": {"scope": "node", "name": "n", "until": "soon"}}, "until"),
    ],
)
def test_one_that_cannot_be_read_freezes_everything_and_says_so(raw: dict[str, Any], place: str) -> None:
    spec = parse_freeze({"metadata": RAW, **raw}).spec
    assert (spec.scope, spec.effect, spec.until) == ("all", "Freeze", None)
    assert spec.reason.startswith(f"this version cannot read its {place}: ")


def test_a_key_of_a_later_version_and_a_status_of_somebody_else_are_not_minded() -> None:
    raw = {"scope": "node", "name": "n", "fromTheFuture": "yes"}
    record = parse_freeze({"metadata": RAW, "spec": raw, "status": {"state": 3}})
    assert (record.spec.subject, record.state) == ("node/n", None)


def kube_freezes(server: ApiServer) -> KubeFreezes:
    """Their watch never starts: it is as far behind as one can be."""
    return KubeFreezes(server.client(), Reflector(server.client(), freeze_path(), parse_freeze), SystemClock())


def put(server: ApiServer, name: str, **labels: str) -> None:
    server.put(freeze_path(), {"metadata": {"name": name, "labels": labels}, "spec": {"scope": "all"}})


def test_before_a_write_one_counts_that_the_watch_has_not_shown(server: ApiServer) -> None:
    freezes = kube_freezes(server)
    put(server, "new")
    assert freezes.of("p") == NO_FREEZES
    assert freezes.before_write("p").everywhere is not None
    assert freezes.of("p").everywhere is not None
    server.remove(freeze_path("new"))
    put(server, "of a resolved alert", **{ENDED_LABEL: "true"})
    assert kube_freezes(server).before_write("p") == NO_FREEZES
    assert server.asked("GET")[-1].params["labelSelector"] == f"!{ENDED_LABEL}"


def test_500_freezes_of_a_tenant_are_parsed_once_and_not_before_each_write(server: ApiServer) -> None:
    parsed: list[str] = []

    def parse(raw: dict[str, Any]) -> FreezeRecord:
        parsed.append(raw["metadata"]["name"])
        return parse_freeze(raw)

    for number in range(500):
        spec = {"scope": "namespace", "name": f"tenant-{number % 7}"}
        server.put(freeze_path(), {"metadata": {"name": f"f-{number}"}, "spec": spec})
    freezes = KubeFreezes(server.client(), Reflector(server.client(), freeze_path(), parse), SystemClock())
    found = [freezes.before_write("p") for _ in range(3)][-1]
    assert len(parsed) == 500
    assert (found.of("tenant-6", "n") is not None, found.of("neighbour", "n")) == (True, None)


MANAGED = a_managed_pod()
FREEZE = Freeze("f", "Freeze", "Freeze f: fan")
OF_TEAM = Freezes(namespaces={"team-a": FREEZE})
TO_RECOMMEND = Freezes(namespaces={"team-a": Freeze("f", "Recommend", "Freeze f: fan")})
WHY = "frozen: Freeze f: fan"


def reason(freezes: Freezes, *nodes: str, effect: FreezeEffect | None = None) -> str | None:
    return frozen_reason(lambda: freezes, MANAGED, nodes, effect)


@pytest.mark.parametrize(
    ("freezes", "of_a_decision", "of_a_restore"),
    [(NO_FREEZES, None, None), (OF_TEAM, WHY, WHY), (TO_RECOMMEND, WHY, None)],
    ids=["none", "all writes", "all but restores"],
)
def test_what_a_freeze_withholds(freezes: Freezes, of_a_decision: str | None, of_a_restore: str | None) -> None:
    assert (reason(freezes, "n1"), reason(freezes, "n1", effect="Freeze")) == (of_a_decision, of_a_restore)


def test_where_freezes_cannot_be_read_nothing_is_written() -> None:
    def unread() -> Freezes:
        raise ApiError(0, "", "connection refused")

    assert "whether it is frozen cannot be read: " in str(frozen_reason(unread, None, ()))


def test_a_frozen_node_neither_loses_nor_gets_a_job_and_one_namespace_alone_has_no_freezes(server: ApiServer) -> None:
    freezes = Freezes(nodes={"n2": FREEZE})
    assert (reason(freezes, "n1"), reason(freezes, "n1", "n2"), reason(freezes, "n2", "n1")) == (None, WHY, WHY)
    of_one_namespace = KubeFreezes(server.client(), None, SystemClock())
    assert of_one_namespace.before_write("p") == of_one_namespace.of("p") == NO_FREEZES
    assert server.requests == []


def test_the_jobs_that_are_to_be_as_in_mode_recommend(server: ApiServer) -> None:
    freezes = kube_freezes(server)
    until = in_utc(time.time() + 60).isoformat()
    spec = {"scope": "namespace", "name": "team-a", "effect": "Recommend", "until": until}
    server.put(freeze_path(), {"metadata": {"name": "f"}, "spec": spec})
    freezes.before_write("p")
    other = structs.replace(MANAGED, pod=structs.replace(MANAGED.pod, namespace="other"))
    assert freezes.to_recommend("p", ["a", "b", "gone"], {"a": MANAGED, "b": other}.get) == {"a"}
