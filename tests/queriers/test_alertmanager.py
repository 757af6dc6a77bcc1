"""A real Alertmanager freezes and unfreezes through the webhook of a controller, with the route of docs/freezes.md."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support.alertmanager import Alertmanager
from support.managed_pods import NAMESPACE
from support.rendering import ROOT
from support.replicas import ORIGINAL, SHARE, RunningReplica, Town, wait_for

from slopewise.adapters.http.alert_webhook import PATH
from slopewise.adapters.kube.state.freezes import ENDED_LABEL, freeze_path

TOKEN = "a-token-of-the-tests"
LABELS = {"alertname": "StorageSlow", "slopewise_freeze": "namespace", "namespace": NAMESPACE}


@pytest.fixture
def town() -> Iterator[Town]:
    with Town() as town:
        town.pod()
        yield town


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return path


@pytest.fixture
def replica(town: Town, token_file: Path) -> Iterator[RunningReplica]:
    with town.replica(alert_token_file=token_file) as running:
        running.wait_until_leading()
        yield running


@pytest.fixture
def alertmanager(replica: RunningReplica, token_file: Path, tmp_path: Path) -> Iterator[Alertmanager]:
    url = f"http://127.0.0.1:{replica.replica.health.port}{PATH}"
    with Alertmanager(tmp_path, url, token_file, repeat="1s") as running:
        yield running


def freezes(town: Town) -> list[dict[str, object]]:
    """The specs of those whose alert is not resolved."""
    found = town.server.client().get(freeze_path())["items"]
    return [each["spec"] for each in found if ENDED_LABEL not in each["metadata"]["labels"]]


def test_an_alert_freezes_is_repeated_and_its_end_lets_go(
    town: Town, replica: RunningReplica, alertmanager: Alertmanager
) -> None:
    started = time.time()
    alertmanager.fire(LABELS, started, summary="checkpoints take minutes")
    wait_for(lambda: freezes(town), "the alert has made a Freeze", town)
    [spec] = freezes(town)
    assert (spec["scope"], spec["name"], spec["reason"]) == ("namespace", NAMESPACE, "checkpoints take minutes")
    town.policy()
    unchanged = {"result": "unchanged"}
    wait_for(lambda: replica.metric("slopewise_alerts_total", **unchanged), "Alertmanager repeats it", town)
    assert len(freezes(town)) == 1
    assert town.limit() == ORIGINAL
    alertmanager.resolve(LABELS, started)
    wait_for(lambda: not freezes(town), "the Freeze has ended", town)
    wait_for(lambda: town.limit() == SHARE, "changes go on", town)
    calls = {
        outcome: replica.metric("slopewise_alert_calls_total", outcome=outcome) for outcome in ("refused", "failed")
    }
    assert calls == {"refused": 0, "failed": 0}


def test_with_another_token_it_changes_nothing(town: Town, replica: RunningReplica, tmp_path: Path) -> None:
    (tmp_path / "forged").write_text(TOKEN[::-1])
    url = f"http://127.0.0.1:{replica.replica.health.port}{PATH}"
    with Alertmanager(tmp_path, url, tmp_path / "forged") as alertmanager:
        alertmanager.fire(LABELS, time.time())
        outcome = {"outcome": "unauthorised"}
        wait_for(lambda: replica.metric("slopewise_alert_calls_total", **outcome), "it has called", town)
    assert freezes(town) == []


def test_the_route_of_the_page_is_the_tested_one(alertmanager: Alertmanager) -> None:
    page = (ROOT / "docs/freezes.md").read_text(encoding="utf-8")
    [text] = re.findall(r"<!-- alertmanager.yml -->\n```yaml\n(.*?)```", page, re.DOTALL)
    shown, tested = yaml.safe_load(text), alertmanager.configuration("1s")
    [of_page], [of_test] = shown["route"]["routes"], tested["route"]["routes"]
    assert of_page.items() <= of_test.items()
    [hook], [tested_hook] = (each["receivers"][1]["webhook_configs"] for each in (shown, tested))
    assert {**hook, "url": "", "http_config": ""} == {**tested_hook, "url": "", "http_config": ""}
    assert hook["url"] == f"http://slopewise-alerts.slopewise-system.svc:8080{PATH}"
    assert hook["http_config"]["authorization"]["type"] == "Bearer"
