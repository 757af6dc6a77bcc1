"""The few shapes of panel that our dashboards use: lines, one number, a table of jobs.

Before this: nothing. After it: `overview.py` fills the shapes with questions and PromQL. Every shape takes the
question its panel answers, which becomes the description, and a unit, so that neither can be forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    Threshold,
    ThresholdsMode,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

DATASOURCE = DataSourceRef(type_val="prometheus", uid="$datasource")
LINES_HEIGHT = 8
NUMBER_HEIGHT = 4


class Query(NamedTuple):
    """One PromQL expression and how its series are named in the legend."""

    promql: str
    legend: str


class Column(NamedTuple):
    """One column of a table of jobs. An empty `title` hides the value: the query is there for its labels."""

    promql: str
    title: str
    unit: str


def lines(
    title: str, question: str, unit: str, *queries: Query, stacked: bool = False, width: int = 8
) -> timeseries.Panel:
    """Values over time, one line a series, with the last value of each in the legend."""
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
    )
    for ref_id, query in zip("ABCDEFGH", queries, strict=False):
        panel.with_target(_target(query.promql, ref_id).range().legend_format(query.legend))
    return panel


def number(title: str, question: str, unit: str, promql: str, *, amber_from: float, red_from: float) -> stat.Panel:
    """The value now, coloured from the two bounds on.

    Instant: the last value of a range stays green for the hour after its controller has gone.
    """
    steps = [Threshold(None, "green"), Threshold(amber_from, "orange"), Threshold(red_from, "red")]
    return (
        stat.Panel()
        .title(title)
        .description(question)
        .datasource(DATASOURCE)
        .unit(unit)
        .no_value("no data")
        .height(NUMBER_HEIGHT)
        .span(8)
        .color_mode(BigValueColorMode.VALUE)
        .graph_mode(BigValueGraphMode.NONE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
        .with_target(_target(promql, "A").instant().legend_format(title))
    )


def job_table(title: str, question: str, columns: Sequence[Column]) -> table.Panel:
    """One row a job, now: the answers of all columns' queries merged on the labels that they share."""
    panel = table.Panel().title(title).description(question).datasource(DATASOURCE).unit("none")
    panel.height(LINES_HEIGHT + 2).span(24)
    for ref_id, column in zip("ABCDEFGHIJ", columns, strict=False):
        panel.with_target(_target(column.promql, ref_id).instant().format(PromQueryFormat.TABLE))
    panel.with_transformation(DataTransformerConfig("merge", options={}))
    panel.with_transformation(DataTransformerConfig("organize", options=_organised(columns)))
    for column in columns:
        if column.title:
            panel.override_by_name(column.title, [DynamicConfigValue("unit", column.unit)])
    return panel


def _target(promql: str, ref_id: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().datasource(DATASOURCE).expr(promql).ref_id(ref_id)


def _legend() -> common.VizLegendOptions:
    legend = common.VizLegendOptions().show_legend(True).display_mode(LegendDisplayMode.TABLE)
    return legend.placement(LegendPlacement.BOTTOM).calcs(["lastNotNull"])


def _organised(columns: Sequence[Column]) -> dict[str, object]:
    """Grafana calls the value of query A `Value #A`, and gives every row the query's time."""
    values = {f"Value #{ref_id}": column.title for ref_id, column in zip("ABCDEFGHIJ", columns, strict=False)}
    return {
        "excludeByName": {"Time": True, **{name: True for name, title in values.items() if not title}},
        "renameByName": {
            "job_namespace": "Namespace",
            "job_name": "Job",
            "job_node": "Node",
            "class": "Class",
            **{name: title for name, title in values.items() if title},
        },
    }
