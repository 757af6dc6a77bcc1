"""What an alert's Freeze is after each notification: also after those that come twice, late or in another order."""

from __future__ import annotations

import time
from typing import Any

import pytest
from support.alerts import an_alert, body
from support.api_server import ApiServer, Drop, refusal

from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.state.freezes import ENDED_LABEL, FreezeRecord, freeze_path, is_stored, parse_freeze, store
from slopewise.config.alerts import KEPT_SECONDS, AlertFreeze, freeze_of, read_notification

NAME = f"alert-{1:016x}"


@pytest.fixture
def now() -> float:
    return float(int(time.time()))


class Alerts:
    """Sends notifications about one alert at one moment."""

    def __init__(self, server: ApiServer, now: float) -> None:
        self.server, self.now = server, now
        self.api = server.client()

    def wanted(self, started: float, ended: float | None = None, **more: Any) -> AlertFreeze:
        """Seconds before now."""
        alert = an_alert(started=self.now - started, ended=None if ended is None else self.now - ended, **more)
        return freeze_of(read_notification(body(alert)).alerts[0], self.now)

    def send(self, started: float, ended: float | None = None, *, is_new: bool = False, **more: Any) -> str:
        return store(self.api, self.wanted(started, ended, **more), self.now, is_new=is_new)[0]

    @property
    def record(self) -> FreezeRecord:
        return parse_freeze(self.server.get(freeze_path(NAME)))

    @property
    def is_in_force(self) -> bool:
        return self.record.is_in_force(self.now)


@pytest.fixture
def alerts(server: ApiServer, now: float) -> Alerts:
    return Alerts(server, now)


def test_an_alert_fires_and_is_resolved(alerts: Alerts) -> None:
    assert (alerts.send(60), alerts.is_in_force) == ("stored", True)
    assert (alerts.send(60, 5, annotations={}), alerts.is_in_force) == ("ended", False)
    assert alerts.record.spec.reason == "a disk is slow", "it stays for those who look for what was frozen"
    labels = alerts.server.get(freeze_path(NAME))["metadata"]["labels"]
    assert labels[ENDED_LABEL] == "true"


def test_the_same_notification_again_lasts_longer_and_adds_no_object(alerts: Alerts) -> None:
    alerts.send(60)
    first = alerts.record.spec.until_seconds
    alerts.now += 600
    assert alerts.send(660) == "stored"
    assert alerts.record.spec.until_seconds == (first or 0) + 600
    assert alerts.send(660, is_new=True) == "stored", "another replica has just stored it"
    assert alerts.send(660, labels={"slopewise_freeze": "all"}) == "stored"
    assert alerts.record.spec.subject == "all", "nothing is left of the first scope"
    assert len(alerts.api.get(freeze_path())["items"]) == 1


@pytest.mark.parametrize("end_comes_first", [False, True])
def test_a_firing_notification_that_comes_after_its_end_does_nothing(alerts: Alerts, end_comes_first: bool) -> None:
    if not end_comes_first:
        alerts.send(60)
    assert alerts.send(60, 5, is_new=end_comes_first) == "ended"
    before = alerts.server.get(freeze_path(NAME))
    assert (alerts.send(60), alerts.send(60, is_new=True)) == ("outdated", "outdated")
    assert alerts.server.get(freeze_path(NAME)) == before


def test_an_alert_that_fires_again_freezes_again_and_its_earlier_end_does_not_count(alerts: Alerts) -> None:
    alerts.send(600)
    alerts.send(600, 300)
    assert (alerts.send(60), alerts.is_in_force) == ("stored", True)
    assert ENDED_LABEL not in alerts.server.get(freeze_path(NAME))["metadata"]["labels"]
    assert (alerts.send(600, 300), alerts.is_in_force) == ("outdated", True)
    alerts.send(600)  # sent again: it must not let the earlier end count
    assert (alerts.send(600, 300), alerts.is_in_force) == ("outdated", True)
    assert (alerts.send(60, 0), alerts.is_in_force) == ("ended", False)


def test_an_alert_that_began_long_ago_makes_none(alerts: Alerts) -> None:
    assert alerts.send(KEPT_SECONDS + 1) == "outdated"
    assert alerts.send(KEPT_SECONDS + 100, KEPT_SECONDS + 1) == "outdated"
    assert alerts.api.get(freeze_path())["items"] == []
    alerts.send(KEPT_SECONDS - 1)
    alerts.now += 3600
    assert (alerts.send(KEPT_SECONDS + 3599), alerts.is_in_force) == ("stored", True), "one that goes on stays"


def test_what_a_person_has_made_under_its_name_is_left_alone(alerts: Alerts) -> None:
    mine = alerts.server.put(freeze_path(), {"metadata": {"name": NAME}, "spec": {"scope": "all"}})
    assert (alerts.send(60), alerts.send(60, 5)) == ("unchanged", "unchanged")
    assert alerts.server.get(freeze_path(NAME)) == mine


def test_a_conflict_is_read_again(alerts: Alerts) -> None:
    alerts.send(60)
    alerts.server.fault(refusal(409, "Conflict", "the object has been modified"), method="PATCH", times=2)
    assert alerts.send(60, 5) == "ended"
    versions = [each.body["metadata"].get("resourceVersion") for each in alerts.server.asked("PATCH")]
    assert (len(versions), None in versions) == (3, False), "it overwrites no change that it has not read"


def test_what_cannot_be_stored_is_an_error(alerts: Alerts) -> None:
    alerts.server.fault(Drop(), method="POST", times=9)
    with pytest.raises(ApiError):
        alerts.send(60)


def test_a_repeated_notification_needs_no_request_while_its_freeze_lasts(alerts: Alerts) -> None:
    alerts.send(60)
    record = alerts.record
    alerts.now += 1200
    assert is_stored(record, alerts.wanted(1260), alerts.now)
    alerts.now += 3 * 3600
    assert not is_stored(record, alerts.wanted(12_060), alerts.now), "it is extended in time"
    alerts.now -= 3 * 3600
    assert not is_stored(record, alerts.wanted(1260, labels={"slopewise_freeze": "all"}), alerts.now)
    assert not is_stored(record, alerts.wanted(1260, 0), alerts.now)
    assert not is_stored(None, alerts.wanted(1260), alerts.now)
    alerts.send(1260, 0)
    assert not is_stored(alerts.record, alerts.wanted(1260), alerts.now)
