"""What all dashboards have: the variables, the links to each other, annotations of decisions, rows of panels.

The id of a panel follows from its title, so that links and alerts that name a panel stay valid when another one is
added before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from zlib import crc32

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import (
    Dashboard,
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    Panel,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from grafana.panels import DATASOURCE
from grafana.selectors import JOB_LABELS, OF_CLUSTER, OF_JOB

TAG = "slopewise"
GRAFANA = DataSourceRef(type_val="grafana", uid="-- Grafana --")
_ONE_PANEL_IN = 2**20
_CHANGED = f"changes(slopewise_job_cpu_accepted_cores{{{OF_JOB}}}[$__rate_interval])"

Rows = Mapping[str, Sequence[Builder[Panel]]]
"""Panels by the title of their row, in reading order."""


def frame(uid: str, title: str, question: str, rows: Rows, *, one_job: bool = False) -> Dashboard:
    """A dashboard. `one_job`: it is about one job, which its variable then chooses, and annotates its decisions."""
    builder = (
        dashboard.Dashboard(f"Slopewise / {title}")
        .uid(uid)
        .description(question)
        .tags([TAG])
        .time("now-1h", "now")
        .refresh("30s")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(_other_dashboards())
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    )
    for variable in _variables(one_job=one_job):
        builder.with_variable(variable)
    if one_job:
        builder.annotation(_cpu_changed()).annotation(_decisions())
    for row, panels in rows.items():
        builder.with_row(dashboard.Row(row).id(id_of(f"row {row}")))
        for panel in panels:
            built = panel.build()
            built.id_val = id_of(built.title or "")
            builder.with_panel(_Built(built))
    return builder.build()


def id_of(title: str) -> int:
    """The id of the panel with this title, the same in all versions."""
    return 1 + crc32(title.encode()) % _ONE_PANEL_IN


class _Built(Builder[Panel]):
    """A finished panel, where the SDK wants a builder: each shape has its own builder type, `id` is common."""

    def __init__(self, panel: Panel) -> None:
        self._panel = panel

    def build(self) -> Panel:
        return self._panel


def _other_dashboards() -> dashboard.DashboardLink:
    return (
        dashboard.DashboardLink("Slopewise")
        .type(DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(False)
        .include_vars(True)
        .keep_time(True)
    )


def _variables(*, one_job: bool) -> list[dashboard.QueryVariable]:
    """Grafana quotes what is special in a regular expression only in values of variables that may have several."""
    of_policy = f'{OF_CLUSTER},policy=~"$policy"'
    of_namespace = f'{of_policy},job_namespace=~"$namespace",job_node=~"$node"'
    job = _filter("job", "Job", f"slopewise_job_info{{{of_namespace}}}", "job_name")
    return [
        _all(_filter("cluster", "Cluster", "slopewise_build_info", "cluster")),
        _all(_filter("policy", "Policy", f"slopewise_job_info{{{OF_CLUSTER}}}", "policy")),
        _all(_filter("namespace", "Namespace", f"slopewise_job_info{{{of_policy}}}", "job_namespace")),
        _all(_filter("node", "Node", f"slopewise_node_allocatable_cores{{{OF_CLUSTER}}}", "job_node")),
        job.multi(True) if one_job else _all(job),
    ]


def _filter(name: str, label: str, series: str, values_of: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(DATASOURCE)
        .query(f"label_values({series}, {values_of})")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
    )


def _all(variable: dashboard.QueryVariable) -> dashboard.QueryVariable:
    """Several values may be chosen. `.*` stands for all, so that a job without a namespace is among them."""
    all_of_them = VariableOption(selected=True, text="All", value="$__all")
    return variable.multi(True).include_all(True).all_value(".*").current(all_of_them)


def _cpu_changed() -> dashboard.AnnotationQuery:
    """What Prometheus has seen; it needs no right to write in Grafana."""
    return (
        dashboard.AnnotationQuery()
        .name("CPU changed")
        .datasource(DATASOURCE)
        .enable(True)
        .icon_color("blue")
        .expr(f"max by ({JOB_LABELS}) ({_CHANGED}) > 0")
    )


def _decisions() -> dashboard.AnnotationQuery:
    """What `slopewise run --grafana-url` has written: each decision with its reason."""
    tagged = dashboard.AnnotationTarget().limit(100).match_any(False).tags([TAG, "job:$job"]).type("tags")
    return (
        dashboard.AnnotationQuery()
        .name("Decisions")
        .datasource(GRAFANA)
        .enable(True)
        .icon_color("purple")
        .target(tagged)
    )
