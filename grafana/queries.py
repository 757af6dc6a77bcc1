"""Which queries a dashboard sends, and which metrics a query reads: for tests that hold both to the contract.

Before this: the JSON that `generate.py` wrote, or a rule file. After it: tests compare the names with
docs/metrics.md, and send the queries to a real Prometheus.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

METRICS_PAGE = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"
_HISTOGRAM_PARTS = ("_bucket", "_sum", "_count")
_NOT_METRICS = re.compile(
    r'"(?:\\.|[^"\\])*"'  # strings
    r"|\{[^}]*\}|\[[^\]]*\]"  # matchers and ranges
    r"|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)"  # label lists
    r"|\b(?:and|or|unless|bool|offset|group_left|group_right|inf|nan)\b"  # keywords
    r"|\b\d+(?:\.\d+)?(?:ms|[smhdwy])?\b"  # numbers and durations
)
_NAME = re.compile(r"\b[a-zA-Z_:][a-zA-Z0-9_:]*\b(?!\s*\()")


def panel_queries(dashboard: Mapping[str, Any], *, rate_interval: str = "1m") -> list[tuple[str, str]]:
    """Title and PromQL of every query of every panel, with Grafana's variables filled in for all jobs.

    `rate_interval` stands for `$__rate_interval`: at least four scrape intervals, e.g. `20s` for a scrape of 5 s.
    """
    values = {"$__rate_interval": rate_interval, **_variable_values(dashboard)}
    return [
        (panel["title"], _substitute(target["expr"], values))
        for panel in panels(dashboard)
        for target in panel.get("targets", ())
    ]


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


def _variable_values(dashboard: Mapping[str, Any]) -> dict[str, str]:
    """What stands for each variable when `All` is chosen: its `allValue`."""
    variables = dashboard["templating"]["list"]
    return {f"${variable['name']}": variable["allValue"] for variable in variables if variable.get("allValue")}


def _substitute(promql: str, values: Mapping[str, str]) -> str:
    for variable in sorted(values, key=len, reverse=True):  # `$job_name` before `$job`
        promql = promql.replace(variable, values[variable])
    return promql
