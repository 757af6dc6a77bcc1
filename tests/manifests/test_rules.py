import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.readme import anchors

from grafana.queries import documented_metrics, metric_names

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "manifests/rules/slopewise.rules.yaml"
RULE_TESTS = ROOT / "manifests/rules/slopewise.rules.test.yaml"
EVERY_RULE: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]
]
ALERTS = [rule for rule in EVERY_RULE if "alert" in rule]
RECORDS = [rule for rule in EVERY_RULE if "record" in rule]
each_alert = pytest.mark.parametrize("alert", ALERTS, ids=[alert["alert"] for alert in ALERTS])


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_promtool_finds_nothing_wrong_with_the_rules(promtool: Path) -> None:
    result = run(promtool, "check", "rules", "--lint-fatal", RULES)

    assert result.returncode == 0, result.stderr
    assert f"{len(EVERY_RULE)} rules found" in result.stdout


def test_the_alerts_fire_and_stay_quiet_when_they_should(promtool: Path) -> None:
    result = run(promtool, "test", "rules", RULE_TESTS)

    assert result.returncode == 0, result.stdout + result.stderr


@each_alert
def test_an_alert_is_seen_both_firing_and_quiet_in_the_rule_tests(alert: Any) -> None:
    cases = [
        case
        for test in yaml.safe_load(RULE_TESTS.read_text(encoding="utf-8"))["tests"]
        for case in test.get("alert_rule_test", ())
        if case["alertname"] == alert["alert"]
    ]

    assert {bool(case.get("exp_alerts")) for case in cases} == {True, False}


@pytest.mark.parametrize("record", RECORDS, ids=[record["record"] for record in RECORDS])
def test_a_recording_rule_is_documented_reads_documented_metrics_and_has_a_test(record: Any) -> None:
    tests = yaml.safe_load(RULE_TESTS.read_text(encoding="utf-8"))["tests"]
    expressions = [case["expr"] for test in tests for case in test.get("promql_expr_test", ())]

    assert record["record"] in expressions
    assert f"`{record['record']}`" in (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    assert metric_names(record["expr"]) <= documented_metrics()


@each_alert
def test_an_alert_reads_only_documented_metrics(alert: Any) -> None:
    read = metric_names(alert["expr"])

    assert read
    assert read <= documented_metrics()


@each_alert
def test_an_alert_shows_how_bad_it_is_what_happened_and_where_to_read_on(alert: Any) -> None:
    page, anchor = alert["annotations"]["runbook_url"].split("#")

    assert alert["alert"].startswith("Slopewise")
    assert alert["labels"]["severity"] in ("critical", "warning")
    assert alert["annotations"]["summary"].endswith(".")
    assert alert["annotations"]["description"].endswith(".")
    assert anchor in anchors(ROOT / page)


def test_there_is_a_runbook_for_every_alert_and_for_nothing_else() -> None:
    sections = anchors(ROOT / "docs/runbooks.md") - {"runbooks"}

    assert sections == {alert["alert"].lower() for alert in ALERTS}


def test_the_runbooks_name_only_documented_metrics() -> None:
    page = (ROOT / "docs/runbooks.md").read_text(encoding="utf-8")

    assert set(re.findall(r"\b(?:training|slopewise)_[a-z_]+", page)) <= documented_metrics()
