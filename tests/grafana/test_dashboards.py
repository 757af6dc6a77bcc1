"""The dashboards as they are committed: current, understood by Prometheus, true to the metrics and to the alerts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from grafana.alerts import alerts, bound_of, runbook_of
from grafana.frame import id_of
from grafana.queries import (
    NOT_SHOWN,
    annotation_queries,
    dashboards,
    documented_metrics,
    metric_names,
    panel_queries,
    panels,
)

ROOT = Path(__file__).resolve().parents[2]
DASHBOARDS = dashboards()
PANELS = [(name, panel) for name, dashboard in DASHBOARDS.items() for panel in panels(dashboard)]
SHOWING = [(name, panel) for name, panel in PANELS if panel["type"] != "text"]
DOCUMENTED = documented_metrics()
VARIABLES = ["datasource", "cluster", "policy", "namespace", "node", "job"]
OF_PROMETHEUS = {"ALERTS"}
"""What a Prometheus exports about the rules that it has loaded."""

each_panel = pytest.mark.parametrize(
    "panel", [panel for _, panel in SHOWING], ids=[f"{name} {panel['title']}" for name, panel in SHOWING]
)
each_dashboard = pytest.mark.parametrize("name", DASHBOARDS)


def generate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "grafana/generate.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_same_code_writes_the_same_bytes_and_check_names_the_file_that_is_out_of_date(tmp_path: Path) -> None:
    assert generate("--folder", str(tmp_path)).returncode == 0
    committed = {file.name: file.read_bytes() for file in (ROOT / "grafana/dashboards").iterdir()}
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == committed

    stale = tmp_path / "job.json"
    stale.write_text("{}")

    result = generate("--check", "--folder", str(tmp_path))

    assert result.returncode == 1
    assert [str(stale)] == re.findall(r"^(\S+) is out of date", result.stderr, re.MULTILINE)
    assert stale.read_text() == "{}"


@each_panel
def test_a_panel_says_what_it_answers_in_which_unit_and_asks_the_chosen_data_source(panel: Any) -> None:
    assert "?" in panel["description"]
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"]["uid"] == "$datasource"
    assert {target["datasource"]["uid"] for target in panel["targets"]} == {"$datasource"}


@each_panel
def test_a_panel_reads_documented_metrics_of_the_chosen_clusters_by_no_label_that_only_a_cluster_attaches(
    panel: Any,
) -> None:
    read = set().union(*(metric_names(target["expr"]) for target in panel["targets"]))
    assert read
    assert read <= DOCUMENTED | OF_PROMETHEUS
    for target in panel["targets"]:
        assert not re.search(r"\b(namespace|pod|instance|job|node|service|container)\b\s*(=|,|\))", target["expr"])
        selectors = re.findall(r"\b(?:slopewise_\w+|ALERTS)\b(\{[^}]*\})?", target["expr"])

        assert selectors
        assert all('cluster=~"$cluster"' in selector for selector in selectors), target["expr"]


def test_every_metric_that_the_controller_exports_is_shown_or_listed() -> None:
    queries = [promql for dashboard in DASHBOARDS.values() for _, promql in panel_queries(dashboard)]
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for promql in queries for name in metric_names(promql)}
    exported = {name for name in DOCUMENTED if name.startswith("slopewise_")}
    exported = {re.sub(r"_(bucket|sum|count)$", "", name) for name in exported}

    assert exported - shown == set(NOT_SHOWN)
    assert all(reason for reason in NOT_SHOWN.values())


@each_dashboard
def test_a_dashboard_has_all_variables_in_one_order_and_links_to_the_others(name: str) -> None:
    dashboard = DASHBOARDS[name]
    [link] = dashboard["links"]

    assert [variable["name"] for variable in dashboard["templating"]["list"]] == VARIABLES
    assert (link["tags"], link["includeVars"], link["keepTime"]) == (dashboard["tags"], True, True)
    assert "?" in dashboard["description"]


@each_dashboard
def test_variables_offer_only_values_of_documented_metrics(name: str) -> None:
    queries = [v["query"] for v in DASHBOARDS[name]["templating"]["list"] if v["type"] == "query"]
    read = {match for query in queries for match in re.findall(r"label_values\((\w+)", query)}

    assert read
    assert read <= DOCUMENTED


@each_dashboard
def test_names_that_look_like_patterns_are_quoted_as_grafana_does_for_variables_of_several_values(
    name: str,
) -> None:
    chosen = [variable for variable in DASHBOARDS[name]["templating"]["list"] if variable["type"] == "query"]

    assert all(variable["multi"] for variable in chosen)
    assert [each["name"] for each in chosen if not each.get("includeAll")] == (["job"] if name == "job" else [])


@each_dashboard
def test_links_and_copies_stay_valid_because_identities_are_stable_and_unique(name: str) -> None:
    dashboard = DASHBOARDS[name]
    ids = [panel["id"] for panel in dashboard["panels"]]

    assert dashboard["uid"] == f"slopewise-{name}"
    assert dashboard.get("id") is None
    assert len(ids) == len(set(ids))
    assert all(panel["id"] == id_of(panel["title"]) for panel in panels(dashboard))


def test_a_title_is_of_one_panel_so_that_a_sentence_that_names_it_is_clear() -> None:
    titles = [panel["title"] for _, panel in PANELS]

    assert sorted(titles) == sorted(set(titles))


@each_dashboard
def test_no_panel_overlaps_another_or_leaves_the_grid_and_every_row_fills_the_width(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    rows: dict[int, int] = {}
    for panel in DASHBOARDS[name]["panels"]:
        position = panel["gridPos"]
        right, below = position["x"] + position["w"], position["y"] + position["h"]
        cells = set(product(range(position["x"], right), range(position["y"], below)))
        assert not cells & taken, panel["title"]
        taken |= cells
        rows[position["y"]] = rows.get(position["y"], 0) + position["w"]

    assert max(x for x, _ in taken) == 23
    assert set(rows.values()) == {24}


def test_rates_span_the_window_that_grafana_knows_to_be_wide_enough_or_all_that_is_shown() -> None:
    expressions = [target["expr"] for _, panel in SHOWING for target in panel["targets"]]
    ranges = {found for promql in expressions for found in re.findall(r"\[([^\]]*)\]", promql)}

    assert ranges == {"$__rate_interval", "$__range"}


def test_the_panels_count_an_interval_as_no_shorter_than_the_alert_does() -> None:
    expressions = [target["expr"] for _, panel in SHOWING for target in panel["targets"]]
    bounds = [promql for promql in expressions if "clamp_min(max(slopewise_interval_seconds" in promql]

    assert len(bounds) == 2
    alert = alerts()["SlopewiseNoPass"]["expr"]
    assert {_shortest_interval_seconds(promql) for promql in (alert, *bounds)} == {60}


@pytest.mark.parametrize(
    ("alert", "title", "above"),
    [
        ("SlopewiseKubeletBehind", "Longest wait for a kubelet", 0),
        ("SlopewiseWatchSilent", "Silence of watches", 0),
        ("SlopewiseMoveStuck", "Oldest move", 0),
        ("SlopewisePodsGated", "Oldest gate", 0),
        ("SlopewiseRestorePending", "Pods to be restored", 1),
        ("SlopewisePolicyRefused", "Policies that are refused", 1),
        ("SlopewiseNoPass", "Intervals since the last pass", 0),
    ],
)
def test_a_panel_turns_red_at_the_bound_of_its_alert(alert: str, title: str, above: float) -> None:
    [panel] = [panel for _, panel in PANELS if panel["title"] == title]
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    bound = 3.0 if alert == "SlopewiseNoPass" else bound_of(alert)  # in intervals, as in "> 3 * clamp_min(…)"
    assert alert != "SlopewiseNoPass" or "> 3 * clamp_min" in " ".join(alerts()[alert]["expr"].split())

    assert [step["value"] for step in steps if step["color"] == "red"] == [bound + above]
    assert runbook_of(alert) in [link["url"] for link in panel["links"]]


def test_every_alert_is_listed_with_a_runbook_that_there_is() -> None:
    [listed] = [panel for _, panel in PANELS if panel["type"] == "text"]
    linked = set(re.findall(r"\]\(https://slopewise\.dev/docs/runbooks#(\w+)\)", listed["options"]["content"]))
    pages = re.findall(r"^## (\w+)$", (ROOT / "docs/runbooks.md").read_text(encoding="utf-8"), re.MULTILINE)

    assert linked == {name.lower() for name in alerts()}
    assert linked <= {page.lower() for page in pages}


def test_every_panel_that_a_runbook_names_is_on_the_dashboard_that_it_names() -> None:
    titles = {dashboard["title"].removeprefix("Slopewise / "): dashboard for dashboard in DASHBOARDS.values()}
    text = " ".join((ROOT / "docs/runbooks.md").read_text(encoding="utf-8").split())
    named = re.findall(rf"\*([^*]+)\* on \*({'|'.join(titles)})\*", text)

    assert len(named) >= 2
    assert {title for title, name in named if title not in {each["title"] for each in panels(titles[name])}} == set()


def test_the_list_of_alerts_leads_to_panels_that_there_are_and_that_lead_to_the_same_runbook() -> None:
    [listed] = [panel for _, panel in PANELS if panel["type"] == "text"]
    found = re.findall(r"^\| \[(\w+)\].*\[(.+)\]\(/d/slopewise-(\w+)\?viewPanel=(\d+)\) \|$",
                       listed["options"]["content"], re.MULTILINE)  # fmt: skip
    assert {name for name, *_ in found} >= {"SlopewiseNoPass", "SlopewiseMoveStuck", "SlopewiseKubeletBehind"}
    for name, title, dashboard, number in found:
        [panel] = [each for each in panels(DASHBOARDS[dashboard]) if each["id"] == int(number)]
        assert panel["title"] == title
        assert runbook_of(name) in [link["url"] for link in panel["links"]]


def test_a_row_of_the_table_leads_to_the_job_with_its_name_encoded_and_to_the_same_time() -> None:
    [table] = [panel for _, panel in PANELS if panel["title"] == "Jobs now"]
    [link] = [p["value"][0] for o in table["fieldConfig"]["overrides"] for p in o["properties"] if p["id"] == "links"]

    assert link["url"].startswith(f"/d/{DASHBOARDS['job']['uid']}?")
    assert "var-job=${__data.fields.Job:percentencode}" in link["url"]
    assert "var-namespace=${__data.fields.Namespace:percentencode}" in link["url"]
    assert "from=${__from}&to=${__to}" in link["url"]
    renamed = table["transformations"][1]["options"]["renameByName"]
    assert (renamed["job_name"], renamed["job_namespace"]) == ("Job", "Namespace")


def test_the_dashboard_of_a_job_annotates_changes_and_decisions_of_that_job() -> None:
    changed, decisions = DASHBOARDS["job"]["annotations"]["list"]

    assert metric_names(changed["expr"]) <= DOCUMENTED
    assert decisions["datasource"]["uid"] == "-- Grafana --"
    assert decisions["target"]["tags"] == ["slopewise", "job:$job"]


def test_prometheus_understands_every_query(promtool: Path, tmp_path: Path) -> None:
    queries = [query for each in DASHBOARDS.values() for query in (*panel_queries(each), *annotation_queries(each))]
    rules = [{"record": f"panel:query:number{at}", "expr": promql} for at, (_, promql) in enumerate(queries)]
    file = tmp_path / "queries.rules.yaml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))  # JSON is YAML

    result = subprocess.run([promtool, "check", "rules", file], capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr
    assert f"{len(rules)} rules found" in result.stdout


def _shortest_interval_seconds(promql: str) -> int:
    (found,) = re.findall(r"clamp_min\(.*?,\s*(\d+)\s*\)", promql, flags=re.DOTALL)
    return int(found)
