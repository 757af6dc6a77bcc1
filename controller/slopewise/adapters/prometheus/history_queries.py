"""PromQL queries about the past: which jobs ran when, their losses, their use of CPU, memory and GPUs, their requests.

They use the matchers and the escapes of `queries.py`. Each query is about a few jobs and one stretch of time, so that
an answer has a bounded size. All functions exist in Prometheus 2.42.

A row names its job by `namespace` and `pod`. kube-state-metrics and the DCGM exporter report pods of others: scraped
with `honor_labels: false` these are in `exported_namespace` and `exported_pod`.
"""

from __future__ import annotations

from collections.abc import Collection
from string import Template

from slopewise.adapters.prometheus.queries import (
    VALUE_LABEL,
    WAIT_AND_STEPS,
    AnyOf,
    Matchers,
    duration,
    escaped,
    loss_series,
    pattern,
    render_matchers,
)

GPU_RESOURCE = ".+_(gpu|gpu_shared|tpu)|.+_mig_.+"
"""What kube-state-metrics makes of `nvidia.com/gpu`, `amd.com/gpu` or `nvidia.com/mig-1g.5gb`."""

MIN_RATE_SECONDS = 180.0
"""A rate needs two samples, and kubelets are scraped up to once a minute."""

OBJECTIVE, NODE = "objective", "node"
CPU, THROTTLED, THREADS, MEMORY, GPU_USE = USES = ("cpu", "throttled", "threads", "memory", "gpu_use")
STEPS, PLANNED, WAITED = "steps", "planned", "waited"
CPU_REQUEST, CPU_LIMIT = "cpu_request", "cpu_limit"
MEMORY_REQUEST, MEMORY_LIMIT, GPUS = "memory_request", "memory_limit", "gpus"

_NAMESPACE = Template('label_replace($rows, "namespace", "$$1", "exported_namespace", "(.+)")')
_OTHERS = Template('label_replace($rows, "pod", "$$1", "exported_pod", "(.+)")')
_CONTAINER = Template('label_replace($rows, "container", "$$1", "exported_container", "(.+)")')
_NODE = Template('label_replace($rows, "node", "$$1", "exported_node", "(.+)")')

# A job is there while it reports a loss, or while a pod with GPUs runs. A DCGM exporter that is scraped with
# honor_labels: false shows a GPU that no pod holds under its own pod: such rows have the labels of its own `up`.
LOSS_PRESENT = Template("group by (namespace, pod) (present_over_time($series[$window]))")
GPU_PRESENT = Template("""\
group by (namespace, pod) (
    $requests
  and on (namespace, pod)
    $running > 0
or
  $busy
)""")
DCGM = Template("""\
(
    $function($metric{exported_pod!="", $theirs}[$window])
  or
    $function($metric{exported_pod="", pod!="", $ours}[$window])
      unless on (namespace, pod, job, instance) last_over_time(up[$window])
)""")

# How much a query for all jobs would find, at a few moments only.
COUNTS = Template("""\
  label_replace(count($series), "$label", "series", "", "")
or
  label_replace(count(group by (namespace, pod) ($series)), "$label", "jobs", "", "")
""")

LOSS = Template("quantile_over_time(0.5, $series[$window])")

# Both of a kubelet's endpoints count once: max by container, then the sum of a pod's containers. Series of pods do not
# count, as in `queries.RESOURCES`. Where no kubelet is scraped, the training process's own figures stand in.
OF_CONTAINERS = Template("""\
sum by (namespace, pod) ($resolved)""")
BY_CONTAINER = Template("""\
max by (namespace, exported_namespace, pod, container) (
    $function($metric{pod=~"$pods", container!="", container!="POD"}[$window])
  and on (job, instance) last_over_time(up{pod=""}[$window])
)""")
OF_PROCESS = Template('sum by (namespace, pod) ($function($metric{namespace!="", pod=~"$pods"}[$window]))')
MARKED = Template('label_replace($rows, "$label", "$value", "", "")')

# Renamed before the max, while `instance` distinguishes them: series of two pods of kube-state-metrics, as after its
# restart, would else become one, which is an error of the whole query.
OF_STATE_METRICS = Template("""\
    $function($metric{pod=~"$pods", exported_pod="", $matchers}[$window])
  or
    $function($metric{exported_pod=~"$pods", $matchers}[$window])
""")

ALLOCATABLE = Template("""\
max by (node) (label_replace(
  last_over_time(kube_node_status_allocatable{resource="cpu"}[$window]), "node", "$$1", "exported_node", "(.+)"
))""")

LOSS_NAMES = Template(
    'count by (__name__) (last_over_time({__name__=~".*(loss|perplexity|accuracy).*", $matchers}[1h]))'
)


def counts(metric: str, matchers: Matchers) -> str:
    """The query for the number of series and of jobs that report this metric at a moment."""
    return COUNTS.substitute(series=loss_series(metric, matchers), label=VALUE_LABEL)


def loss_present(metric: str, matchers: Matchers, window_seconds: float) -> str:
    """The query for the jobs that reported the metric within the window."""
    return LOSS_PRESENT.substitute(series=loss_series(metric, matchers), window=duration(window_seconds))


def gpu_present(window_seconds: float) -> str:
    """The query for the pods that held GPUs within the window."""
    requests = _state_metrics(
        "max_over_time", "kube_pod_container_resource_requests", f'resource=~"{GPU_RESOURCE}"', ".+", window_seconds
    )
    return GPU_PRESENT.substitute(
        requests=f"max by (namespace, pod) ({requests})",
        running=_running("max_over_time", window_seconds),
        busy=_dcgm("last_over_time", "DCGM_FI_DEV_GPU_UTIL", ".+", window_seconds),
    )


def losses(metric: str, matchers: Matchers, pods: Collection[str], step_seconds: float) -> str:
    """The query for the losses of these pods: the median of each step, which one spike does not move."""
    series = loss_series(metric, (*matchers, ("pod", AnyOf())))
    within = series.replace('pod!="",', f'pod=~"{_pattern(pods)}",')
    return LOSS.substitute(series=within, window=duration(step_seconds))


def usage(pods: Collection[str], step_seconds: float) -> str:
    """The query for cores, the ratio of throttled periods, threads, bytes of memory and the use of GPUs, by kind."""
    pattern, rate = _pattern(pods), max(2 * step_seconds, MIN_RATE_SECONDS)
    periods, throttled = (
        _containers("rate", f"container_cpu_cfs_{kind}periods_total", pattern, rate) for kind in ("", "throttled_")
    )
    cpu = _containers("rate", "container_cpu_usage_seconds_total", pattern, rate)
    memory = _containers("max_over_time", "container_memory_working_set_bytes", pattern, rate)
    gpu, engine = (
        f"avg by (namespace, pod) ({_dcgm('avg_over_time', metric, pattern, rate)})"
        for metric in ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE")
    )
    return _either(
        {
            CPU: f"({cpu} or {_process('rate', 'process_cpu_seconds_total', pattern, rate)})",
            THROTTLED: f"({throttled} / {periods})",
            THREADS: _containers("max_over_time", "container_threads", pattern, rate),
            MEMORY: f"({memory} or {_process('max_over_time', 'process_resident_memory_bytes', pattern, rate)})",
            GPU_USE: f"({engine} or {gpu} / 100)",
        }
    )


def facts(pods: Collection[str], window_seconds: float) -> str:
    """The query for what a job planned, waited, requested and was limited to, its objective and its node, by kind."""
    pattern, window = _pattern(pods), duration(window_seconds)

    def of(metric: str, matchers: str) -> str:
        rows = _state_metrics("avg_over_time", metric, matchers, pattern, window_seconds)
        return f"sum by (namespace, pod) ({rows})"

    own = f'namespace!="", pod=~"{pattern}"'
    requests, limits = (f"kube_pod_container_resource_{kind}" for kind in ("requests", "limits"))
    nodes = _state_metrics("last_over_time", "kube_pod_info", 'node!=""', pattern, window_seconds)
    return _either(
        {
            STEPS: f"max by (namespace, pod) (max_over_time(training_steps_total{{{own}}}[{window}]))",
            PLANNED: f"max by (namespace, pod) (last_over_time(training_steps_planned{{{own}}}[{window}]))",
            WAITED: "("
            + " / ".join(
                f"max by (namespace, pod) (max_over_time({name}{{{own}}}[{window}]))" for name in WAIT_AND_STEPS
            )
            + ")",
            OBJECTIVE: f"max by (namespace, pod, objective) (last_over_time(training_info{{{own}}}[{window}]))",
            CPU_REQUEST: of(requests, 'resource="cpu"'),
            CPU_LIMIT: of(limits, 'resource="cpu"'),
            MEMORY_REQUEST: of(requests, 'resource="memory"'),
            MEMORY_LIMIT: of(limits, 'resource="memory"'),
            GPUS: of(requests, f'resource=~"{GPU_RESOURCE}"'),
            NODE: f"group by (namespace, pod, node) ({nodes})",
        }
    )


def requested() -> str:
    """The query for the CPU that the running pods of each node request together."""
    cpu, recent = 'resource="cpu"', MIN_RATE_SECONDS
    rows = _state_metrics("last_over_time", "kube_pod_container_resource_requests", cpu, ".+", recent)
    return f"sum by (node) ({rows} and on (namespace, pod) {_running('last_over_time', recent)} > 0)"


def allocatable(window_seconds: float) -> str:
    """The query for the CPU that each node offers to pods."""
    return ALLOCATABLE.substitute(window=duration(window_seconds))


def loss_names(matchers: Matchers) -> str:
    """The query for names of metrics that look like an evaluation."""
    return LOSS_NAMES.substitute(matchers=render_matchers(matchers))


def _pattern(pods: Collection[str]) -> str:
    """A regular expression for these pods inside PromQL double quotes."""
    return escaped(pattern(sorted(pods)))


def _containers(function: str, metric: str, pattern: str, seconds: float) -> str:
    rows = BY_CONTAINER.substitute(function=function, metric=metric, pods=pattern, window=duration(seconds))
    return OF_CONTAINERS.substitute(resolved=_NAMESPACE.substitute(rows=rows))


def _process(function: str, metric: str, pattern: str, seconds: float) -> str:
    return OF_PROCESS.substitute(function=function, metric=metric, pods=pattern, window=duration(seconds))


def _state_metrics(function: str, metric: str, matchers: str, pattern: str, seconds: float) -> str:
    rows = OF_STATE_METRICS.substitute(
        function=function, metric=metric, matchers=matchers, pods=pattern, window=duration(seconds)
    )
    for renamed in (_NAMESPACE, _OTHERS, _CONTAINER, _NODE):
        rows = renamed.substitute(rows=rows)
    return f"max by (namespace, pod, container, node) ({rows})"


def _running(function: str, seconds: float) -> str:
    rows = _state_metrics(function, "kube_pod_status_phase", 'phase="Running"', ".+", seconds)
    return f"max by (namespace, pod) ({rows})"


def _dcgm(function: str, metric: str, pattern: str, seconds: float) -> str:
    rows = DCGM.substitute(
        function=function,
        metric=metric,
        theirs=f'exported_pod=~"{pattern}"',
        ours=f'pod=~"{pattern}"',
        window=duration(seconds),
    )
    return _OTHERS.substitute(rows=_NAMESPACE.substitute(rows=rows))


def _either(parts: dict[str, str]) -> str:
    """One query for several kinds of rows, distinguished by `slopewise_value`."""
    return "\nor\n".join(MARKED.substitute(rows=rows, label=VALUE_LABEL, value=kind) for kind, rows in parts.items())
