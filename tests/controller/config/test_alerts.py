"""What an alert of Alertmanager asks for, and what it may not ask for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.alerts import an_alert, body
from support.searching import examples

from slopewise.config.alerts import (
    CLOCKS_DIFFER_SECONDS,
    DEFAULT_FOR_SECONDS,
    MAX_ALERTS,
    AlertFreeze,
    asks,
    freeze_of,
    read_notification,
)
from slopewise.errors import UsageError

NOW = 1_790_000_000.0


def wanted(**alert: Any) -> AlertFreeze:
    [found] = read_notification(body(an_alert(**{"started": NOW - 60, **alert}))).alerts
    assert asks(found)
    return freeze_of(found, NOW)


def test_a_firing_alert_freezes_what_its_labels_name() -> None:
    found = wanted()
    assert (found.name, found.started_at_seconds, found.resolved_at_seconds) == (f"alert-{1:016x}", NOW - 60, None)
    assert (found.spec.subject, found.spec.effect) == ("namespace/team-a", "Freeze")
    assert (found.spec.reason, found.spec.source) == ("a disk is slow", "alert DiskTrouble")
    assert found.spec.until_seconds == NOW + DEFAULT_FOR_SECONDS
    resolved = wanted(ended=NOW - 10)
    assert (resolved.resolved_at_seconds, resolved.spec.until_seconds) == (NOW - 10, NOW - 10)
    [other] = read_notification(body(an_alert(started=NOW, labels={"namespace": "team-a"}))).alerts
    assert not asks(other), "it has no label of ours"


@pytest.mark.parametrize(
    ("labels", "subject", "effect"),
    [
        ({"slopewise_freeze": "all"}, "all", "Freeze"),
        ({"slopewise_freeze": "node", "node": "node-a.example.org"}, "node/node-a.example.org", "Freeze"),
        ({"slopewise_freeze": "policy", "policy": "training"}, "policy/training", "Recommend"),
        ({"slopewise_freeze": "policy", "policy": "p", "slopewise_effect": "Freeze"}, "policy/p", "Freeze"),
        ({"slopewise_freeze": "all", "slopewise_effect": "Recommend"}, "all", "Recommend"),
    ],
)
def test_each_scope_has_its_label(labels: dict[str, str], subject: str, effect: str) -> None:
    found = wanted(labels=labels).spec
    assert (found.subject, found.effect) == (subject, effect)


@pytest.mark.parametrize(
    "given_for",
    [
        {"labels": {"slopewise_freeze": "all", "slopewise_freeze_for": "2h"}},
        {"annotations": {"slopewise_freeze_for": "2h"}},
    ],
)
def test_it_says_how_long_it_lasts(given_for: dict[str, Any]) -> None:
    assert wanted(**given_for).spec.until_seconds == NOW + 7200


@pytest.mark.parametrize(
    ("alert", "message"),
    [
        ({"labels": {"slopewise_freeze": "everything"}}, "must be 'all', 'namespace', 'node' or 'policy'"),
        ({"labels": {"slopewise_freeze": "namespace"}}, "needs the name of what is frozen"),
        ({"labels": {"slopewise_freeze": "node", "node": "a b\x1b[31m"}}, "should match pattern"),
        ({"labels": {"slopewise_freeze": "all", "slopewise_effect": "recommend"}}, "did you mean 'Recommend'?"),
        ({"labels": {"slopewise_freeze": "all", "namespace": "team-a"}}, "'team-a' bounds it to that namespace"),
        ({"labels": {"slopewise_freeze": "node", "node": "n", "namespace": "a\x1b"}}, "bounds it to that namespace"),
        ({"annotations": {"slopewise_freeze_for": "forever"}}, "'forever' is not a time from 1m00s to 7d00h"),
        ({"annotations": {"slopewise_freeze_for": "30d"}}, "'30d' is not a time"),
        ({"started": NOW + CLOCKS_DIFFER_SECONDS + 1}, "later than now"),
        ({"started": NOW - 10, "ended": NOW - 20}, "do not fit together"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(alert: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match="alert DiskTrouble") as refused:
        wanted(**alert)
    assert message in str(refused.value)
    assert "\x1b" not in str(refused.value)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"version": "4"}',
        b"[" * 100_000,
        body(version="3"),
        body({**an_alert(started=NOW), "fingerprint": "../../pods"}),
        body({**an_alert(started=NOW), "status": "suppressed"}),
        body({**an_alert(started=NOW), "startsAt": "2026-11-23T10:00:00"}),
        body({**an_alert(started=NOW), "labels": {"a": 1}}),
        body(*[an_alert(started=NOW)] * (MAX_ALERTS + 1)),
    ],
)
def test_a_body_that_is_no_notification_is_refused(raw: bytes) -> None:
    with pytest.raises(UsageError, match="no notification of Alertmanager"):
        read_notification(raw)


@given(raw=st.one_of(st.binary(), st.recursive(st.none() | st.text() | st.integers(), st.lists).map(json.dumps)))
@examples(50)
def test_any_other_body_is_refused_and_never_an_error(raw: bytes | str) -> None:
    with pytest.raises(UsageError):
        read_notification(raw if isinstance(raw, bytes) else raw.encode())
