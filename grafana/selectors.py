"""PromQL of the metrics of jobs, nodes and the controller, filtered by the variables that all dashboards have.

Only labels are read that the controller itself sets (`job_namespace`, `job_name`, `job_node`), never the scrape's own
`namespace`, which a controller outside a cluster does not have. `cluster` is what a Prometheus of several clusters
adds; without it every filter matches, and the label is empty everywhere.

`max by` comes first wherever a gauge is read: after a rollout the old replica's series may still be there, and a job
must not count twice.
"""

from __future__ import annotations

import re

JOB_LABELS = "cluster, job_namespace, job_name, job_node"
OF_CLUSTER = 'cluster=~"$cluster"'
OF_NODE = f'{OF_CLUSTER},job_node=~"$node"'
OF_JOB = f'{OF_NODE},job_namespace=~"$namespace",job_name=~"$job"'
IN_POLICY = f'on ({JOB_LABELS}) slopewise_job_info{{{OF_CLUSTER},policy=~"$policy"}}'
"""Which jobs are under the chosen policies; the other metrics of a job do not name its policy."""

SLOW = "CL|CC|released|waits"
"""Classes of jobs that hardly grow, or whose next work is worth less than that of others (marginal's `waits`)."""


def per_job(metric: str, matchers: str = "", *more_labels: str) -> str:
    """The value of one of the `slopewise_job_…` gauges for each selected job, in parentheses."""
    by = ", ".join((JOB_LABELS, *more_labels))
    return f"(max by ({by}) ({metric}{{{OF_JOB}{matchers}}}) and {IN_POLICY})"


def namespaces(metric: str, by: str, matchers: str = "") -> str:
    """The sum of a gauge of namespaces, or of studies, over the chosen policies and namespaces, by these labels."""
    of = f'{OF_CLUSTER},policy=~"$policy",job_namespace=~"$namespace"{matchers}'
    inner = ", ".join(dict.fromkeys(["cluster", "policy", "job_namespace", *_labels_in(matchers), *by.split(", ")]))
    return f"sum by ({by}) (max by ({inner}) ({metric}{{{of}}}))"


def _labels_in(matchers: str) -> list[str]:
    return re.findall(r"(\w+)=", matchers)


def rate_per_job(counter: str) -> str:
    """How fast one of the `slopewise_job_…_total` counters rises for each selected job."""
    return f"(max by ({JOB_LABELS}) (rate({counter}{{{OF_JOB}}}[$__rate_interval])) and {IN_POLICY})"


def per_node(metric: str) -> str:
    """The value of a gauge of a node."""
    return f"max by (cluster, job_node) ({metric}{{{OF_NODE}}})"


def newest(metric: str, by: str = "cluster", matchers: str = "") -> str:
    """The value of a gauge of the controller: the largest one of its replicas."""
    return f"max by ({by}) ({metric}{{{OF_CLUSTER}{matchers}}})"


def total(metric: str, by: str = "cluster", matchers: str = "") -> str:
    """The sum of a gauge over all replicas."""
    return f"sum by ({by}) ({metric}{{{OF_CLUSTER}{matchers}}})"


def rate(counter: str, by: str = "cluster", matchers: str = "") -> str:
    """How fast a counter rises, over all replicas; `rate` needs counters that start at 0, as ours do."""
    return f"sum by ({by}) (rate({counter}{{{OF_CLUSTER}{matchers}}}[$__rate_interval]))"


def per_minute(counter: str, by: str) -> str:
    """How often a minute, for each value of a label."""
    return f"60 * {rate(counter, by)}"


def mean(histogram: str, by: str) -> str:
    """The mean of what a histogram has counted lately; 0 where it has counted nothing."""
    return f"{rate(f'{histogram}_sum', by)} / clamp_min({rate(f'{histogram}_count', by)}, 1e-9)"


def quantile(ratio: float, histogram: str, by: str) -> str:
    """A quantile of what a histogram has counted lately; no value where it has counted nothing."""
    return f"histogram_quantile({ratio:g}, {rate(f'{histogram}_bucket', f'{by}, le')})"
