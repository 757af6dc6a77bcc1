"""Which queries a dashboard sends, and which metrics a query reads: for tests that hold both to the contract.

Tests compare the names with docs/metrics.md, and send the queries of the committed dashboards to a real Prometheus.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
METRICS_PAGE = HERE.parent / "docs" / "metrics.md"
_OF_AN_ALERT = "an alert reads it and names the object; between alerts there is nothing to see"

NOT_SHOWN: Mapping[str, str] = {
    "slopewise_job_regressed": _OF_AN_ALERT,
    "slopewise_job_resize_pending_seconds": _OF_AN_ALERT,
    "slopewise_suspended_jobs": _OF_AN_ALERT,
    "slopewise_oldest_suspended_seconds": _OF_AN_ALERT,
    "slopewise_node_departures_total": _OF_AN_ALERT,
    "slopewise_moves_max_per_node_hour": "a setting, which an alert compares with the moves",
    "slopewise_moves_max_concurrent": "a setting, which an alert compares with the moves",
    "slopewise_outage": "the event Outage and the condition Ready say it in words",
    "slopewise_left_out_series": "the event Degraded names the pod and what to do",
}
"""Metrics of the controller that no panel shows, each with the reason."""

ONE_JOB = ".+"
"""What stands for a variable that has no `All`: any one job."""

_HISTOGRAM_PARTS = ("_bucket", "_sum", "_count")
_NOT_METRICS = re.compile(
    r'"(?:\\.|[^"\\])*"'  # strings
    r"|\{[^}]*\}|\[[^\]]*\]"  # matchers and ranges
    r"|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)"  # label lists
    r"|\b(?:and|or|unless|bool|offset|group_left|group_right|inf|nan)\b"  # keywords
    r"|\b\d+(?:\.\d+)?(?:ms|[smhdwy])?\b"  # numbers and durations
)
_NAME = re.compile(r"\b[a-zA-Z_:][a-zA-Z0-9_:]*\b(?!\s*\()")


def dashboards(folder: Path = HERE / "dashboards") -> dict[str, Any]:
    """The committed dashboards, by the names of their files."""
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))}


def panel_queries(dashboard: Mapping[str, Any], *, rate_interval: str = "1m") -> list[tuple[str, str]]:
    """Title and PromQL of every query of every panel, with Grafana's variables filled in for all jobs.

    `rate_interval` stands for `$__rate_interval`: at least four scrape intervals, e.g. `20s` for a scrape of 5 s.
    """
    values = _values(dashboard, rate_interval)
    return [
        (panel["title"], _substitute(target["expr"], values))
        for panel in panels(dashboard)
        for target in panel.get("targets", ())
    ]


def substituted(dashboard: Mapping[str, Any], promql: str, *, rate_interval: str = "1m") -> str:
    """A query of this dashboard with its variables filled in for all jobs."""
    return _substitute(promql, _values(dashboard, rate_interval))


def annotation_queries(dashboard: Mapping[str, Any], *, rate_interval: str = "1m") -> list[tuple[str, str]]:
    """Name and PromQL of every annotation that Prometheus is asked for."""
    values = _values(dashboard, rate_interval)
    found = dashboard.get("annotations", {}).get("list", ())
    return [(each["name"], _substitute(each["expr"], values)) for each in found if "expr" in each]


def panels(dashboard: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Every panel that shows something, those of collapsed rows too, without the rows themselves."""
    for panel in dashboard["panels"]:
        yield from panel.get("panels", ()) if panel["type"] == "row" else (panel,)


def metric_names(promql: str) -> set[str]:
    """The metrics that an expression reads: `rate(a_total[1m]) / on (b) c{d="e"}` reads `a_total` and `c`."""
    return set(_NAME.findall(_NOT_METRICS.sub(" ", promql)))


def documented_metrics(page: Path = METRICS_PAGE) -> set[str]:
    """Every series name that docs/metrics.md promises; a histogram promises its three parts."""
    names: set[str] = set()
    for row in page.read_text(encoding="utf-8").splitlines():
        cells = re.split(r"(?<!\\)\|", row)
        if len(cells) < 4:
            continue
        for name in re.findall(r"`([a-z_:][a-z0-9_:]*)", cells[1]):
            names |= {name + part for part in _HISTOGRAM_PARTS} if "histogram" in cells[2] else {name}
    return names


def _values(dashboard: Mapping[str, Any], rate_interval: str) -> dict[str, str]:
    """What stands for each variable: its `allValue`, as when `All` is chosen."""
    variables = dashboard["templating"]["list"]
    chosen = {f"${each['name']}": each.get("allValue") or ONE_JOB for each in variables if each["type"] == "query"}
    return {"$__rate_interval": rate_interval, "$__range": "1h", **chosen}


def _substitute(promql: str, values: Mapping[str, str]) -> str:
    for variable in sorted(values, key=len, reverse=True):  # `$job_name` before `$job`
        promql = promql.replace(variable, values[variable])
    return promql
