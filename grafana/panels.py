"""The few shapes of panel that our dashboards use: lines, one number, a table, text.

Every shape takes the question that its panel answers, which becomes the description, and a unit. A panel that shows
what an alert is about has a link to the runbook of that alert.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, table, text, timeseries
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    GraphTresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    Threshold,
    ThresholdsMode,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from grafana_foundation_sdk.models.text import TextMode

from grafana.alerts import runbook_of

DATASOURCE = DataSourceRef(type_val="prometheus", uid="$datasource")
LINES_HEIGHT = 8
NUMBER_HEIGHT = 4
MAX_POINTS = 100
"""Of a line: of an hour one in 36 s. A point for each pixel costs five times as much, and passes are 20 s apart."""
REF_IDS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

P = TypeVar("P", timeseries.Panel, stat.Panel, table.Panel)


class Query(NamedTuple):
    """One PromQL expression and how its series are named in the legend."""

    promql: str
    legend: str


class Column(NamedTuple):
    """One column of a table. An empty `title` hides the value: the query is there for its labels."""

    promql: str
    title: str
    unit: str


class Link(NamedTuple):
    """Where a cell of a table leads."""

    column: str
    title: str
    url: str


JOB_HEADINGS = {"cluster": "Cluster", "job_namespace": "Namespace", "job_name": "Job", "job_node": "Node"}
"""The labels of a job, as a table names them."""


def lines(
    title: str,
    question: str,
    unit: str,
    *queries: Query,
    stacked: bool = False,
    width: int = 8,
    red_from: float | None = None,
    alerts: Sequence[str] = (),
) -> timeseries.Panel:
    """Values over time, one line a series, with the last value of each in the legend; a red line at a bound."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(question)
        .datasource(DATASOURCE)
        .unit(unit)
        .height(LINES_HEIGHT)
        .span(width)
        .line_width(1)
        .fill_opacity(30 if stacked else 0)
        .stacking(common.StackingConfig().mode(StackingMode.NORMAL if stacked else StackingMode.NONE))
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
        .legend(_legend())
        .max_data_points(MAX_POINTS)
    )
    if red_from is not None:
        panel.thresholds(_steps(Threshold(None, "transparent"), Threshold(red_from, "red")))
        panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(GraphTresholdsStyleMode.LINE))
    for ref_id, query in zip(REF_IDS, queries, strict=False):
        panel.with_target(_target(query.promql, ref_id).range().legend_format(query.legend))
    return _with_runbooks(panel, alerts)


def number(
    title: str,
    question: str,
    unit: str,
    promql: str,
    *,
    amber_from: float | None = None,
    red_from: float | None = None,
    width: int = 8,
    alerts: Sequence[str] = (),
) -> stat.Panel:
    """The value now, coloured from the two bounds on.

    Instant: the last value of a range stays green for the hour after its controller has gone.
    """
    steps = [Threshold(None, "green" if red_from is not None else "text")]
    steps += [Threshold(at, colour) for at, colour in ((amber_from, "orange"), (red_from, "red")) if at is not None]
    panel = (
        stat.Panel()
        .title(title)
        .description(question)
        .datasource(DATASOURCE)
        .unit(unit)
        .no_value("no data")
        .height(NUMBER_HEIGHT)
        .span(width)
        .color_mode(BigValueColorMode.VALUE)
        .graph_mode(BigValueGraphMode.NONE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(_steps(*steps))
        .with_target(_target(promql, "A").instant().legend_format(title))
    )
    return _with_runbooks(panel, alerts)


def rows_now(
    title: str,
    question: str,
    columns: Sequence[Column],
    headings: Mapping[str, str],
    *,
    links: Sequence[Link] = (),
    height: int = LINES_HEIGHT,
    width: int = 24,
) -> table.Panel:
    """A table as of now: the answers of all columns' queries, merged on the labels that they share."""
    panel = table.Panel().title(title).description(question).datasource(DATASOURCE).unit("none")
    panel.height(height).span(width)
    for ref_id, column in zip(REF_IDS, columns, strict=False):
        panel.with_target(_target(column.promql, ref_id).instant().format(PromQueryFormat.TABLE))
    panel.with_transformation(DataTransformerConfig("merge", options={}))
    panel.with_transformation(DataTransformerConfig("organize", options=_organised(columns, headings)))
    for column in columns:
        if column.title:
            panel.override_by_name(column.title, [DynamicConfigValue("unit", column.unit)])
    for link in links:
        led = [{"title": link.title, "url": link.url}]
        panel.override_by_name(link.column, [DynamicConfigValue("links", led)])
    return panel


def markdown(title: str, content: str, *, height: int = LINES_HEIGHT, width: int = 24) -> text.Panel:
    """Text that does not change with time."""
    return text.Panel().title(title).mode(TextMode.MARKDOWN).content(content).height(height).span(width)


def _with_runbooks(panel: P, alerts: Sequence[str]) -> P:
    links = [
        dashboard.DashboardLink(f"Runbook of {alert}").type(DashboardLinkType.LINK).url(runbook_of(alert))
        for alert in alerts
    ]
    if links:
        panel.links([link.target_blank(True) for link in links])
    return panel


def _steps(*steps: Threshold) -> dashboard.ThresholdsConfig:
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(list(steps))


def _target(promql: str, ref_id: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().datasource(DATASOURCE).expr(promql).ref_id(ref_id)


def _legend() -> common.VizLegendOptions:
    legend = common.VizLegendOptions().show_legend(True).display_mode(LegendDisplayMode.TABLE)
    return legend.placement(LegendPlacement.BOTTOM).calcs(["lastNotNull"])


def _organised(columns: Sequence[Column], headings: Mapping[str, str]) -> dict[str, object]:
    """Grafana calls the value of query A `Value #A`, and gives every row the query's time."""
    values = {f"Value #{ref_id}": column.title for ref_id, column in zip(REF_IDS, columns, strict=False)}
    return {
        "excludeByName": {"Time": True, **{name: True for name, title in values.items() if not title}},
        "renameByName": {**headings, **{name: title for name, title in values.items() if title}},
    }
