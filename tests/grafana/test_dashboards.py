import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from grafana.queries import documented_metrics, metric_names, panel_queries, panels

ROOT = Path(__file__).resolve().parents[2]
OVERVIEW: dict[str, Any] = json.loads((ROOT / "grafana/dashboards/overview.json").read_text(encoding="utf-8"))
PANELS = list(panels(OVERVIEW))
each_panel = pytest.mark.parametrize("panel", PANELS, ids=[panel["title"] for panel in PANELS])


def generate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "grafana/generate.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_committed_json_is_what_the_code_generates() -> None:
    result = generate("--check")

    assert (result.returncode, result.stderr) == (0, "")


def test_check_names_the_file_that_is_out_of_date_and_leaves_it_alone(tmp_path: Path) -> None:
    stale = tmp_path / "overview.json"
    stale.write_text("{}")

    result = generate("--check", "--folder", str(tmp_path))

    assert result.returncode == 1
    assert str(stale) in result.stderr
    assert stale.read_text() == "{}"


def test_the_same_code_writes_the_same_bytes_in_another_folder(tmp_path: Path) -> None:
    assert generate("--folder", str(tmp_path)).returncode == 0

    committed = (ROOT / "grafana/dashboards/overview.json").read_bytes()
    assert (tmp_path / "overview.json").read_bytes() == committed


@each_panel
def test_a_panel_says_what_it_answers_in_which_unit_and_asks_the_chosen_data_source(panel: Any) -> None:
    assert "?" in panel["description"]
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"]["uid"] == "$datasource"
    assert {target["datasource"]["uid"] for target in panel["targets"]} == {"$datasource"}


@each_panel
def test_a_panel_reads_only_documented_metrics(panel: Any) -> None:
    read = set().union(*(metric_names(target["expr"]) for target in panel["targets"]))

    assert read
    assert read <= documented_metrics()


@each_panel
def test_a_panel_asks_for_no_label_that_only_a_cluster_would_attach(panel: Any) -> None:
    for target in panel["targets"]:
        assert not re.search(r"\b(namespace|pod|instance|job|node|service|container)\b\s*(=|,|\))", target["expr"])


def test_variables_offer_only_values_of_documented_metrics() -> None:
    queries = [v["query"] for v in OVERVIEW["templating"]["list"] if v["type"] == "query"]
    read = {match for query in queries for match in re.findall(r"label_values\((\w+)", query)}

    assert read
    assert read <= documented_metrics()


def test_links_and_copies_stay_valid_because_identities_are_stable_and_unique() -> None:
    ids = [panel["id"] for panel in OVERVIEW["panels"]]

    assert OVERVIEW["uid"] == "slopewise-overview"
    assert OVERVIEW.get("id") is None
    assert len(ids) == len(set(ids))


def test_no_panel_overlaps_another_or_leaves_the_grid() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in OVERVIEW["panels"]:
        cells = set(_cells(panel["gridPos"]))
        assert not cells & taken, panel["title"]
        taken |= cells

    assert max(x for x, _ in taken) == 23


def test_rates_span_the_window_that_grafana_knows_to_be_wide_enough() -> None:
    ranges = {found for panel in PANELS for target in panel["targets"] for found in _ranges(target["expr"])}

    assert ranges == {"$__rate_interval"}


def test_the_panels_count_an_interval_as_no_shorter_than_the_alert_does() -> None:
    rules = yaml.safe_load((ROOT / "manifests/rules/slopewise.rules.yaml").read_text(encoding="utf-8"))
    (alert,) = (rule for rule in rules["groups"][0]["rules"] if rule.get("alert") == "SlopewiseNoPass")
    expressions = [target["expr"] for panel in PANELS for target in panel["targets"]]
    bounds = [promql for promql in expressions if "slopewise_interval_seconds" in promql]

    assert len(bounds) == 2
    assert {_shortest_interval_seconds(promql) for promql in (alert["expr"], *bounds)} == {60}


def test_prometheus_understands_every_query(promtool: Path, tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:query:number{number}", "expr": promql}
        for number, (_, promql) in enumerate(panel_queries(OVERVIEW))
    ]
    file = tmp_path / "queries.rules.yaml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))  # JSON is YAML

    result = subprocess.run([promtool, "check", "rules", file], capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr
    assert f"{len(rules)} rules found" in result.stdout


def _cells(position: dict[str, int]) -> Iterator[tuple[int, int]]:
    for x in range(position["x"], position["x"] + position["w"]):
        for y in range(position["y"], position["y"] + position["h"]):
            yield x, y


def _shortest_interval_seconds(promql: str) -> int:
    (found,) = re.findall(r"clamp_min\(.*?,\s*(\d+)\s*\)", promql, flags=re.DOTALL)
    return int(found)


def _ranges(promql: str) -> list[str]:
    return re.findall(r"\[([^\]]*)\]", promql)
