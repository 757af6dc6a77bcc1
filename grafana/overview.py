"""The Overview dashboard: what each job does, which jobs have the CPU, and whether Slopewise itself is at work.

Only metrics of docs/metrics.md are read, and only by labels that the controller itself sets: `job_namespace`,
`job_name` and `job_node`, never the scrape's own `namespace`, which a controller outside a cluster does not have.

`max by` comes first wherever a gauge is read: after a rollout the old replica's series may still be there, and
a job must not count twice.
"""

from __future__ import annotations

from collections.abc import Iterator

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import (
    Dashboard,
    DashboardCursorSync,
    Panel,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from grafana.panels import DATASOURCE, Column, Query, job_table, lines, number

UID = "slopewise-overview"
JOB = "{{job_namespace}}/{{job_name}}"
JOB_FILTER = 'job_namespace=~"$namespace",job_name=~"$job"'
CORES = "suffix: cores"
PER_SECOND = "suffix:/s"
UNSEEN_FOR_SECONDS = "time() - max(slopewise_last_pass_timestamp_seconds > 0)"
"""Zero is a controller that has not finished a pass yet, not one that last looked in 1970."""
INTERVAL_SECONDS = "clamp_min(max(slopewise_interval_seconds), 60)"
"""As in the alert: with an interval of 5 s and scrapes 30 s apart, a healthy controller seems up to 35 s late."""


def per_job(metric: str, matchers: str = "") -> str:
    """The value of one of the `slopewise_job_…` gauges for each selected job."""
    return f"max by (job_namespace, job_name, job_node) ({metric}{{{JOB_FILTER}{matchers}}})"


def per_minute(counter: str, label: str) -> str:
    """How often a minute, for each value of `label`; `rate` needs the counters to start at 0, not at 1."""
    return f"60 * sum by ({label}) (rate({counter}[$__rate_interval]))"


def overview() -> Dashboard:
    """The dashboard, ready to be written as JSON."""
    builder = (
        dashboard.Dashboard("Slopewise / Overview")
        .uid(UID)
        .description("Which jobs are learning, who has the CPU, and is the controller at work?")
        .tags(["slopewise"])
        .time("now-1h", "now")
        .refresh("30s")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(_filter("namespace", "Namespace", "slopewise_job_metrics_available", "job_namespace"))
        .with_variable(
            _filter("job", "Job", 'slopewise_job_metrics_available{job_namespace=~"$namespace"}', "job_name")
        )
    )
    for panel_id, (row, panel) in enumerate(_panels(), start=1):
        if row:
            builder.with_row(dashboard.Row(row).id(100 + panel_id))
        built = panel.build()
        built.id_val = panel_id
        builder.with_panel(_Built(built))
    return builder.build()


class _Built(Builder[Panel]):
    """A finished panel, where the SDK wants a builder: each shape has its own builder type, `id` is common."""

    def __init__(self, panel: Panel) -> None:
        self._panel = panel

    def build(self) -> Panel:
        return self._panel


def _filter(name: str, label: str, series: str, values_of: str) -> dashboard.QueryVariable:
    """A choice of jobs. `.*` stands for all, so that a job without a namespace is among them."""
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(DATASOURCE)
        .query(f"label_values({series}, {values_of})")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(VariableOption(selected=True, text="All", value="$__all"))
    )


def _panels() -> Iterator[tuple[str, Builder[Panel]]]:
    """Every panel in reading order, each with the title of the row that starts before it, if one does."""
    for title, panels in (
        ("Is anything wrong?", _health()),
        ("Jobs", _jobs()),
        ("CPU", _cpu()),
        ("Promises", _promises()),
        ("The controller", _controller()),
    ):
        for position, panel in enumerate(panels):
            yield title if position == 0 else "", panel


def _health() -> list[Builder[Panel]]:
    return [
        number(
            "Intervals since the last pass",
            "Is the controller looking? A pass that could observe should end once in each interval (one shorter than "
            "a minute counts as a minute); from 3 on the alert SlopewiseNoPass is pending. No data: no controller has "
            "finished a pass.",
            "short",
            f"({UNSEEN_FOR_SECONDS}) / {INTERVAL_SECONDS}",
            amber_from=2,
            red_from=3,
        ),
        number(
            "Jobs without fresh metrics",
            "For how many jobs is there no fresh, finite evaluation? They keep what they have: no metrics, no "
            "action. No data: no managed jobs.",
            "none",
            f"sum(1 - {per_job('slopewise_job_metrics_available')})",
            amber_from=1,
            red_from=5,
        ),
        number(
            "Diverged jobs",
            "How many jobs report a loss that is NaN or infinite? They burn CPU and learn nothing. No data: no "
            "managed jobs.",
            "none",
            f"sum({per_job('slopewise_job_diverged')})",
            amber_from=1,
            red_from=1,
        ),
    ]


def _jobs() -> list[Builder[Panel]]:
    return [
        lines(
            "Jobs by state",
            "How many managed jobs are there, and what are they doing?",
            "none",
            Query("max by (state) (slopewise_jobs)", "{{state}}"),
            stacked=True,
        ),
        lines(
            "Jobs by class",
            "How many jobs does the policy treat as new, watched or completing (FlowCon: NL, WL, CL)?",
            "none",
            Query(f"sum by (class) ({_CLASS_OF_JOB})", "{{class}}"),
            stacked=True,
        ),
        lines(
            "Age of the evaluation",
            "How old is the newest loss sample of each job? A climbing line is a job that stopped reporting.",
            "s",
            Query(per_job("slopewise_job_evaluation_age_seconds"), JOB),
        ),
        lines(
            "Loss",
            "Is it still falling? The level that the policy decided on, not a raw sample.",
            "none",
            Query(per_job("slopewise_job_evaluation"), JOB),
            width=12,
        ),
        lines(
            "Growth efficiency of CPU",
            "What does a job make of its CPU? Progress per second and per whole node of CPU (Eq. 4.2); the "
            "policy gives CPU to those on top.",
            PER_SECOND,
            Query(per_job("slopewise_job_growth_efficiency", ',resource="cpu"'), JOB),
            width=12,
        ),
        job_table("Jobs now", "Where does each job stand, and what would the policy give it?", _JOB_COLUMNS),
    ]


def _cpu() -> list[Builder[Panel]]:
    return [
        lines(
            "CPU used",
            "Who uses the CPU? Average over the last measured interval, stacked.",
            CORES,
            Query(per_job("slopewise_job_cpu_usage_cores"), JOB),
            stacked=True,
            width=12,
        ),
        lines(
            "CPU allocated",
            "Who may use the CPU? The limit of each job in effect, as its kubelet reports it, stacked. Under control: "
            "requests it is the job's share of its node: its request ÷ the sum of requests there × the node's cores. "
            "It may use more while others idle.",
            CORES,
            Query(per_job("slopewise_job_cpu_allocated_cores"), JOB),
            stacked=True,
            width=12,
        ),
        lines(
            "CPU used, allocated, accepted and wanted",
            "Is CPU given that no job uses, and does what jobs have follow what the policy wants? Sum over the "
            "selected jobs. Allocated is in effect, as kubelets report it; accepted is what the API server has stored: "
            "they stay apart where a kubelet is down. Wanted is the policy's limit; in mode Recommend it and accepted "
            "stay apart. They do so too under control: requests, where shares add up to the node and limits need not.",
            CORES,
            Query(f"sum({per_job('slopewise_job_cpu_usage_cores')})", "used"),
            Query(f"sum({per_job('slopewise_job_cpu_allocated_cores')})", "allocated"),
            Query(f"sum({per_job('slopewise_job_cpu_accepted_cores')})", "accepted"),
            Query(f"sum({per_job('slopewise_job_cpu_wanted_cores')})", "wanted"),
            width=12,
        ),
        lines(
            "Sum of growth efficiency",
            "Does the whole node learn faster? The objective of each node (Eq. 4.3).",
            PER_SECOND,
            Query("max by (job_node) (slopewise_growth_efficiency_sum)", "{{job_node}}"),
            width=12,
        ),
        lines(
            "Cores that a node has left for jobs",
            "How much of a node do other pods take? Available is what they leave of allocatable to the jobs of the "
            "policy that was applied last; dqoes and deadline promise no more than that.",
            CORES,
            Query("max by (job_node) (slopewise_node_available_cores)", "{{job_node}} available"),
            Query("max by (job_node) (slopewise_node_allocatable_cores)", "{{job_node}} allocatable"),
            width=24,
        ),
    ]


def _promises() -> list[Builder[Panel]]:
    """Only jobs whose owners state something have these; the numbers are 0 where none does."""
    return [
        number(
            "Objectives missed",
            "How many jobs take more than 10 % longer than their owners ask, and have for two intervals? 0 as well "
            "where no owner states an objective.",
            "none",
            f"sum({per_job('slopewise_job_objective_missed')}) or vector(0)",
            amber_from=1,
            red_from=3,
        ),
        number(
            "Jobs that cannot meet their deadline",
            "How many jobs would be late even with all CPU of the largest node, or are late already? 0 as well where "
            "no owner states a deadline.",
            "none",
            f"sum({per_job('slopewise_job_deadline_hopeless')}) or vector(0)",
            amber_from=1,
            red_from=3,
        ),
        number(
            "Jobs late at their present pace",
            "How many jobs need more CPU to meet their deadline? 0 as well where no owner states a deadline.",
            "none",
            f"sum({per_job('slopewise_job_deadline_slack_seconds')} < bool 0) or vector(0)",
            amber_from=1,
            red_from=5,
        ),
        lines(
            "Deviation from the objective",
            "Who is faster than asked, and who is slower? (asked − took) ÷ asked: below −10 % the objective is missed.",
            "percentunit",
            Query(per_job("slopewise_job_qoe_deviation_ratio"), JOB),
        ),
        lines(
            "Slack before the deadline",
            "Who has time to spare at the present pace, and who is late by how much?",
            "s",
            Query(per_job("slopewise_job_deadline_slack_seconds"), JOB),
        ),
        lines(
            "Targets reached",
            "How many jobs have reached the loss that their owners need, and could make room for others?",
            "none",
            Query(f"sum({per_job('slopewise_job_deliverable_reached')})", "deliverable"),
            Query(f"sum({per_job('slopewise_job_target_reached')})", "target"),
        ),
        lines(
            "Jobs held back",
            "How many arriving jobs wait for room, and how many were let in without it, a minute? The second line "
            "above 0 is a cluster that is too small for what its jobs are promised.",
            "none",
            Query("max(slopewise_held_jobs)", "held back"),
            Query("60 * sum(rate(slopewise_holds_expired_total[$__rate_interval]))", "let in without room, a minute"),
            width=12,
        ),
        lines(
            "Longest wait of a held job",
            "For how long has the job that is held back longest waited? At behaviour.maxHoldSeconds, or earlier where "
            "its deadline is near, it is let in, with room or without.",
            "s",
            Query("max(slopewise_oldest_hold_seconds)", "longest wait"),
            width=12,
        ),
    ]


def _controller() -> list[Builder[Panel]]:
    return [
        lines(
            "Passes",
            "Do passes end well? A held pass could not observe and changed nothing.",
            "cpm",
            Query(per_minute("slopewise_passes_total", "result"), "{{result}}"),
            stacked=True,
        ),
        lines(
            "Time of a pass",
            "Where does a pass spend its time? Mean of each verb, stacked.",
            "s",
            Query(
                "sum by (verb) (rate(slopewise_pass_duration_seconds_sum[$__rate_interval]))"
                " / sum by (verb) (rate(slopewise_pass_duration_seconds_count[$__rate_interval]))",
                "{{verb}}",
            ),
            stacked=True,
        ),
        lines(
            "Time since the last pass",
            "Is the controller on time? Above its bound, three intervals and at least three minutes, "
            "SlopewiseNoPass is pending.",
            "s",
            Query(UNSEEN_FOR_SECONDS, "since the last pass"),
            Query(f"3 * {INTERVAL_SECONDS}", "bound of the alert"),
        ),
        lines(
            "Resizes by outcome",
            "What was the outcome of the resizes that were let through? Failed ones are tried again on the next pass.",
            "cpm",
            Query(per_minute("slopewise_resizes_total", "outcome"), "{{outcome}}"),
            stacked=True,
            width=12,
        ),
        lines(
            "Resizes withheld, by guard",
            "Which guard holds the policy back, and how often?",
            "cpm",
            Query(per_minute("slopewise_withheld_total", "guard"), "{{guard}}"),
            stacked=True,
            width=12,
        ),
    ]


_CLASS_OF_JOB = f"max by (job_namespace, job_name, job_node, class) (slopewise_job_class{{{JOB_FILTER}}}) == 1"
_JOB_COLUMNS = (
    Column(_CLASS_OF_JOB, "", "none"),
    Column(per_job("slopewise_job_evaluation"), "Loss", "none"),
    Column(per_job("slopewise_job_progress_per_second"), "Progress", PER_SECOND),
    Column(per_job("slopewise_job_growth_efficiency", ',resource="cpu"'), "Growth efficiency", PER_SECOND),
    Column(per_job("slopewise_job_cpu_usage_cores"), "CPU used", CORES),
    Column(per_job("slopewise_job_cpu_allocated_cores"), "CPU allocated", CORES),
    Column(per_job("slopewise_job_cpu_wanted_cores"), "CPU wanted", CORES),
    Column(per_job("slopewise_job_evaluation_age_seconds"), "Age of evaluation", "s"),
)
