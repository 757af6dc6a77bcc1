"""The Nodes dashboard: what each node offers, what its jobs have and use, how fast they learn, what is not yet done."""

from __future__ import annotations

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Dashboard, Panel

from grafana.alerts import bound_of
from grafana.frame import frame
from grafana.overview import CORES, KEPT, PER_SECOND
from grafana.panels import Column, Link, Query, lines, rows_now
from grafana.selectors import per_job, per_node, rate_per_job

UID = "slopewise-nodes"
_NODE = "{{job_node}}"
_TO_ITS_JOBS = f"/d/slopewise-overview?var-node=${{__data.fields.Node:percentencode}}&{KEPT}"
_NONE = f"0 * {per_node('slopewise_node_allocatable_cores')}"
"""0 for each node: one whose kubelet follows has no series of its own."""


def nodes() -> Dashboard:
    """The dashboard, ready to be written as JSON."""
    return frame(
        UID,
        "Nodes",
        "What do nodes have, what do their jobs take of it, and does every kubelet follow?",
        {"Now": [_table()], "CPU": _cpu(), "Jobs": _jobs(), "Kubelets": _kubelets()},
    )


def _of_jobs(metric: str) -> str:
    return f"sum by (cluster, job_node) ({per_job(metric)})"


def _table() -> Builder[Panel]:
    columns = (
        Column(per_node("slopewise_node_allocatable_cores"), "Allocatable", CORES),
        Column(per_node("slopewise_node_available_cores"), "Available", CORES),
        Column(_of_jobs("slopewise_job_cpu_allocated_cores"), "Allocated", CORES),
        Column(_of_jobs("slopewise_job_cpu_usage_cores"), "Used", CORES),
        Column(f"count by (cluster, job_node) ({per_job('slopewise_job_metrics_available')})", "Jobs", "none"),
        Column(per_node("slopewise_growth_efficiency_sum"), "Sum of growth", PER_SECOND),
    )
    return rows_now(
        "Nodes now",
        "Where is CPU left, and where do jobs learn most? A node's name leads to its jobs.",
        columns,
        {"cluster": "Cluster", "job_node": "Node"},
        links=[Link("Node", "Jobs of this node", _TO_ITS_JOBS)],
    )


def _cpu() -> list[Builder[Panel]]:
    return [
        lines(
            "Cores that a node has left for jobs",
            "How much of a node do other pods take? Available is what they leave of allocatable to the jobs of the "
            "policy that was applied last; dqoes and deadline promise no more than that.",
            CORES,
            Query(per_node("slopewise_node_available_cores"), f"{_NODE} available"),
            Query(per_node("slopewise_node_allocatable_cores"), f"{_NODE} allocatable"),
        ),
        lines(
            "CPU allocated to jobs",
            "How much of each node have its jobs, in effect?",
            CORES,
            Query(_of_jobs("slopewise_job_cpu_allocated_cores"), _NODE),
            stacked=True,
        ),
        lines(
            "CPU used by jobs",
            "How much of each node do its jobs use?",
            CORES,
            Query(_of_jobs("slopewise_job_cpu_usage_cores"), _NODE),
            stacked=True,
        ),
    ]


def _jobs() -> list[Builder[Panel]]:
    periods = f"sum by (cluster, job_node) ({rate_per_job('slopewise_job_cpu_periods_total')})"
    throttled = f"sum by (cluster, job_node) ({rate_per_job('slopewise_job_cpu_throttled_periods_total')})"
    return [
        lines(
            "Jobs on each node",
            "Where do jobs run, and when were they moved?",
            "none",
            Query(f"count by (cluster, job_node) ({per_job('slopewise_job_metrics_available')})", _NODE),
            stacked=True,
            width=6,
        ),
        lines(
            "Sum of growth efficiency of a node",
            "Which node's jobs make most of its CPU (Eq. 4.3)?",
            PER_SECOND,
            Query(per_node("slopewise_growth_efficiency_sum"), _NODE),
            width=6,
        ),
        lines(
            "Throttling of the node's jobs",
            "In which part of their periods were jobs stopped by their limits? No data on one machine, which has "
            "no kubelet.",
            "percentunit",
            Query(f"{throttled} / clamp_min({periods}, 1e-9)", _NODE),
            width=6,
        ),
        lines(
            "Memory of the node's jobs",
            "How much memory do jobs use, and how much do they reserve?",
            "bytes",
            Query(_of_jobs("slopewise_job_memory_working_set_bytes"), f"{_NODE} working set"),
            Query(_of_jobs("slopewise_job_memory_request_bytes"), f"{_NODE} requested"),
            width=6,
        ),
    ]


def _kubelets() -> list[Builder[Panel]]:
    return [
        lines(
            "Pods whose kubelet has not followed",
            "Where is CPU accepted and not in effect?",
            "none",
            Query(f"{per_node('slopewise_unconfirmed_pods')} or {_NONE}", _NODE),
            width=12,
            alerts=["SlopewiseKubeletBehind"],
        ),
        lines(
            "Longest wait for a kubelet",
            "For how long has the first of them waited? Above the red line SlopewiseKubeletBehind is pending.",
            "s",
            Query(f"{per_node('slopewise_oldest_unconfirmed_seconds')} or {_NONE}", _NODE),
            width=12,
            red_from=bound_of("SlopewiseKubeletBehind"),
            alerts=["SlopewiseKubeletBehind"],
        ),
    ]
