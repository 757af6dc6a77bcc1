"""PromQL queries about nodes: their size, and the CPU that containers use on each.

As in `queries.py`, whose matchers and escapes they use, their number does not grow with the number of jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import Template

from slopewise.adapters.prometheus.queries import (
    MAX_PATTERN,
    POD,
    AnyOf,
    Matchers,
    duration,
    escaped,
    pattern,
    render_matchers,
)

# What each node has, for a controller that may not read nodes. The whole machine: kubelets do not export what is
# allocatable of it.
MACHINES = Template("""\
max by (__name__, node, instance) ({
    __name__=~"machine_cpu_cores|machine_memory_bytes",
    $matchers
  } and on (job, instance) up{pod=""})
""")

# The CPU that containers use, by node: of each pod in namespaces with jobs, so that those of jobs can be left out, and
# as one sum for all other namespaces. So there are as many rows as nodes and pods beside jobs, however large the rest
# of the cluster is. Both of a kubelet's endpoints, and both lives of a container that was restarted, count once. Where
# a container's own namespace is in exported_namespace, `namespace` is that of the kubelets' Service.
USE_BY_NODE = Template("""\
  sum by (node, instance) (max by (node, instance, $container) (
    $elsewhere and on (job, instance) up{pod=""}
  ))
or
  sum by (node, instance, $pod) (max by (node, instance, $container) (
    ($here or $here_exported) and on (job, instance) up{pod=""}
  ))
""")

# Of a container that still runs: an ended one would count for as long as its last samples are in the window. (A test on
# a cluster, which began a minute after another had ended, found 0.65 of a core that was idle.)
USE = Template("""(rate(container_cpu_usage_seconds_total{
    $matchers
  }[$window]) and timestamp(container_cpu_usage_seconds_total{
    $matchers
  }) > time() - $fresh)""")

# The use of devices by pod, over two minutes, as DCGM's exporter reports it; scraped with honor_labels: false it has
# the pod as exported_pod. Averaged before that is renamed: series of two pods of the exporter would else become one,
# which is an error of the whole query. What a pod beside jobs exports of other namespaces is left out
# (`use_by_container`): a tenant who forges it decides on a raise of their own jobs that report no waits, and on no cut.
GPU_USE = """\
or
  label_replace(label_replace(avg by (namespace, exported_namespace, exported_pod) (
    avg_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE{exported_pod!=""}[2m])
    or
    avg_over_time(DCGM_FI_DEV_GPU_UTIL{exported_pod!=""}[2m]) / 100
  ), "pod", "$1", "exported_pod", "(.+)"), "slopewise_value", "gpu_use", "", "")
or
  label_replace(avg by (namespace, exported_namespace, pod) (
    avg_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE{exported_pod=""}[2m])
    or
    avg_over_time(DCGM_FI_DEV_GPU_UTIL{exported_pod=""}[2m]) / 100
  ), "slopewise_value", "gpu_use", "", "")
"""

_NO_NAMESPACE = "-"
"""No namespace has this name."""

USE_SECONDS = 300.0
"""Capacity is a promise for minutes. Kubelets are scraped up to once a minute, and a rate needs some samples."""

FRESH_SECONDS = 90.0
"""A container whose newest sample is older has ended: kubelets measure every 15 s, and are scraped each minute."""


def use_by_node(matchers: Matchers, namespaces: Sequence[str]) -> str:
    """The query for the CPU that containers use on each node; per pod in these namespaces."""
    listed = pattern(namespaces) or _NO_NAMESPACE
    within = escaped(listed if len(listed) <= MAX_PATTERN else ".*")
    # The sandbox of a pod is a container without a name to cAdvisor, and "POD" to an older one.
    common = render_matchers((*matchers, ("pod", AnyOf()), ("container", AnyOf()))) + '\n    container!="POD",'

    def use(where: str) -> str:
        return USE.substitute(
            matchers=f"{common}\n    {where}", window=duration(USE_SECONDS), fresh=f"{FRESH_SECONDS:.0f}"
        )

    return USE_BY_NODE.substitute(
        container=f"{POD}, container",
        pod=POD,
        elsewhere=use(f'namespace!~"{within}", exported_namespace!~"{within}"'),
        here=use(f'namespace=~"{within}"'),
        here_exported=use(f'exported_namespace=~"{within}", exported_namespace!=""'),
    )


def machines(matchers: Matchers) -> str:
    """The query for the size of every node whose kubelet is scraped."""
    return MACHINES.substitute(matchers=render_matchers(matchers))
