"""Freezes over whole replicas: what they hold back, what they show, and how alerts make and end them."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests
from support.alerts import an_alert, body
from support.managed_pods import NAMESPACE
from support.replicas import GROWTHS, ORIGINAL, SHARE, RunningReplica, Town, wait_for
from support.waiting import eventually

from slopewise.adapters.clock import SystemClock
from slopewise.adapters.http.alert_webhook import PATH
from slopewise.adapters.kube.cache.reflector import Reflector
from slopewise.adapters.kube.state.freezes import ALERT, ENDED_LABEL, MADE_BY_LABEL, RESOLVED, freeze_path, parse_freeze
from slopewise.config.alerts import KEPT_SECONDS
from slopewise.config.freeze import in_utc
from slopewise.errors import UsageError
from slopewise.manager.freezes import AlertHandler

TOKEN = "a-token-of-the-tests"
OF_THE_NAMESPACE = {"scope": "namespace", "name": NAMESPACE}


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    return path


def put(town: Town, name: str = "f", *, spec: dict[str, Any] | None = None, **metadata: Any) -> None:
    town.server.put(freeze_path(), {"metadata": {"name": name, **metadata}, "spec": spec or OF_THE_NAMESPACE})


def condition(town: Town) -> dict[str, Any]:
    """`Managed` of the one JobGrowth; empty before it is written."""
    growths = town.server.client().get(GROWTHS)["items"]
    conditions = growths[0].get("status", {}).get("conditions", []) if growths else []
    return next((each for each in conditions if each["type"] == "Managed"), {})


def freeze(town: Town, name: str = "f") -> dict[str, Any]:
    return town.found(freeze_path(name))


def send(replica: RunningReplica, *alerts: dict[str, Any], token: str = TOKEN) -> requests.Response:
    url = f"http://127.0.0.1:{replica.replica.health.port}{PATH}"
    return requests.post(url, data=body(*alerts), headers={"Authorization": f"Bearer {token}"}, timeout=30)


def test_a_freeze_holds_changes_back_shows_it_and_lets_go_and_waits_for_no_regular_pass(town: Town) -> None:
    put(town)
    town.policy(behaviour={"intervalSeconds": 600})
    with town.replica() as replica:
        wait_for(lambda: condition(town).get("reason") == "Frozen", "the job says so", town)
        assert condition(town)["message"] == f"Freeze f (namespace/{NAMESPACE})"
        wait_for(lambda: freeze(town)["status"].get("state") == "InForce", "the Freeze says so", town)
        wait_for(lambda: town.lines("freeze begun"), "the log says so", town)
        wait_for(
            lambda: any("Frozen" in str(each.body) for each in town.server.asked("POST", "/events$")), "event", town
        )
        assert 'slopewise_freezes{effect="Freeze",scope="namespace"} 1.0' in replica.get("/metrics").text
        assert town.limit() == ORIGINAL
        assert town.server.asked("PATCH", "/resize$") == []
        town.server.remove(freeze_path("f"))
        wait_for(lambda: town.limit() == SHARE, "it goes on", town)
        wait_for(lambda: condition(town).get("reason") == "Managed", "the job says so", town)
        put(town)
        wait_for(lambda: condition(town).get("reason") == "Frozen", "the job says so", town)
        wait_for(lambda: freeze(town)["status"].get("state") == "InForce", "the Freeze says so", town)
        passes = replica.passes()
        assert not eventually(lambda: replica.passes() > passes, 4), "the state that we write triggers none"


def test_it_ends_by_itself_and_says_so(town: Town) -> None:
    put(town, spec={**OF_THE_NAMESPACE, "until": in_utc(time.time() + 4).isoformat()})
    town.policy()
    with town.replica() as replica:
        replica.wait_until_leading()
        wait_for(lambda: freeze(town)["status"].get("state") == "InForce", "it is in force", town)
        assert town.limit() == ORIGINAL
        wait_for(lambda: freeze(town)["status"]["state"] == "Ended", "its time is over", town)
        wait_for(lambda: town.limit() == SHARE, "it goes on", town)
        assert town.is_there(freeze_path("f")), "what a person has made, the person deletes"


def test_the_effect_recommend_restores_and_freeze_does_not(town: Town) -> None:
    town.policy()
    with town.replica() as replica:
        wait_for(lambda: town.limit() == SHARE, "it is resized", town)
        put(town)
        wait_for(lambda: condition(town).get("reason") == "Frozen", "it is frozen", town)
        town.policy(mode="Recommend")
        wait_for(lambda: town.lines("original resources restored"), "a restore is tried", town)
        assert town.limit() == SHARE, "nothing at all is changed"
        town.policy(mode="Auto")
        put(town, spec={**OF_THE_NAMESPACE, "effect": "Recommend"})
        wait_for(lambda: town.limit() == ORIGINAL, "it is restored", town)
        assert replica.replica.is_alive()


def test_a_deleted_policy_waits_with_its_restores_and_goes(town: Town) -> None:
    town.policy()
    with town.replica(restore_deadline_seconds=2.0):
        wait_for(lambda: town.limit() == SHARE, "it is resized", town)
        put(town)
        town.delete_policy()
        wait_for(lambda: not town.is_there("/apis/slopewise.dev/v1alpha1/trainingpolicies/p"), "the policy goes", town)
        assert town.limit() == SHARE
        town.server.remove(freeze_path("f"))
        wait_for(lambda: town.limit() == ORIGINAL, "its orphan is restored after the freeze", town)


def test_an_alert_freezes_and_its_end_lets_go_also_through_a_standby(town: Town, token_file: Path) -> None:
    started = time.time() - 5
    labels = {"slopewise_freeze": "namespace", "namespace": NAMESPACE}
    fires = an_alert(started=started, labels=labels)
    with town.replica(alert_token_file=token_file) as leader:
        leader.wait_until_leading()
        with town.replica(alert_token_file=token_file) as standby:
            wait_for(lambda: standby.get("/readyz").status_code == 200, "the second one is ready", town)
            answer = send(standby, fires)
            assert (answer.status_code, answer.text) == (200, "1 stored\n")
            town.policy()
            wait_for(lambda: condition(town).get("reason") == "Frozen", "it is frozen", town)
            assert send(standby, fires).text == "1 unchanged\n"
            assert town.limit() == ORIGINAL
            assert send(leader, an_alert(started=started, ended=started + 1, labels=labels)).text == "1 ended\n"
            wait_for(lambda: town.limit() == SHARE, "it goes on", town)
            assert send(leader, fires).text == "1 outdated\n"
            metrics = standby.get("/metrics").text
            assert 'slopewise_alert_calls_total{outcome="accepted"} 2.0' in metrics
            assert 'slopewise_alerts_total{result="stored"} 1.0' in metrics


def test_a_forged_call_makes_no_freeze_and_without_a_token_there_is_no_endpoint(town: Town, token_file: Path) -> None:
    with town.replica(alert_token_file=token_file) as replica:
        assert send(replica, an_alert(started=time.time()), token=TOKEN[::-1]).status_code == 401
    with town.replica() as replica:
        assert send(replica, an_alert(started=time.time())).status_code == 404
    assert not [each for each in town.writes() if "/freezes" in each]


def ended(town: Town, name: str, seconds_ago: float, label: str = ALERT) -> None:
    at = time.time() - seconds_ago
    put(
        town, name, spec={"scope": "all", "until": in_utc(at).isoformat()}, annotations={RESOLVED: str(at)},
        labels={MADE_BY_LABEL: label, ENDED_LABEL: "true"},
    )  # fmt: skip


def test_the_leader_deletes_those_of_alerts_that_ended_long_ago(town: Town) -> None:
    ended(town, "alert-old", KEPT_SECONDS + 60)
    ended(town, "alert-new", 60)
    ended(town, "of-a-person", KEPT_SECONDS + 60, label="me")
    with town.replica() as replica:
        replica.wait_until_leading()
        wait_for(lambda: not town.is_there(freeze_path("alert-old")), "it is deleted", town)
        assert town.is_there(freeze_path("alert-new"))
        assert town.is_there(freeze_path("of-a-person"))


def test_no_more_than_so_many_ended_ones_are_kept(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten, for this test: a thousand take a minute on a busy machine."""
    monkeypatch.setattr("slopewise.manager.freezes.MAX_ENDED", 10)
    for number in range(13):
        ended(town, f"alert-{number:04}", 10_000 - number)
    with town.replica() as replica:
        replica.wait_until_leading()
        wait_for(lambda: not town.is_there(freeze_path("alert-0002")), "the oldest go", town)
        assert town.is_there(freeze_path("alert-0003"))


def test_a_thousand_alerts_at_once_are_stored_and_a_second_time_cost_nothing(town: Town) -> None:
    now = time.time()
    alerts = [
        an_alert(number, started=now - 5, labels={"slopewise_freeze": "namespace", "namespace": f"team-{number}"})
        for number in range(1000)
    ]
    raw, results = body(*alerts), list[str]()
    with closing(town.server.client()) as api:
        store = Reflector(api, freeze_path(), parse_freeze)
        handle = AlertHandler(api, store, SystemClock().now, results.append)
        assert handle(raw) == "1000 stored"
        sent = len(town.server.requests)
        assert sent == 1000
        assert handle(raw) == "1000 unchanged"
        assert len(town.server.requests) == sent
    assert (results.count("stored"), results.count("unchanged")) == (1000, 1000)


def test_the_usable_alerts_of_a_call_count_and_the_others_are_named(town: Town) -> None:
    now, results = time.time(), list[str]()
    bad = [an_alert(number, started=now, labels={"slopewise_freeze": f"x{number}"}) for number in range(2, 7)]
    ignored = an_alert(9, started=now, labels={})
    with closing(town.server.client()) as api:
        handle = AlertHandler(api, Reflector(api, freeze_path(), parse_freeze), SystemClock().now, results.append)
        with pytest.raises(UsageError, match=r"x2.*x4.*And 2 more"):
            handle(body(an_alert(started=now), *bad, ignored))
        assert handle(body()) == "no alerts"
    assert sorted(results) == ["ignored", *["refused"] * 5, "stored"]
    assert town.is_there(freeze_path(f"alert-{1:016x}"))
