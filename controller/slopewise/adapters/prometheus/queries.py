"""All PromQL queries about jobs as named constants; text becomes PromQL only here, in `node_queries` and in `points`.

The number of queries does not grow with the number of jobs: LEVELS once for each evaluation mapping, FACTS with EVENTS
and, on a cluster, RESOURCES once. All functions exist in Prometheus 2.42 and 3.x. The label `slopewise_value`
distinguishes the values of one query; without it `or` would drop them, because it compares label sets, not names.

User text is checked: metric and label names must match a pattern, values are escaped, and the controller's own
matchers (its namespace) are added to the user's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from string import Template

from slopewise.config.metric_mappings import DEFAULT_IN_FLIGHT, DEFAULT_RESPONSES
from slopewise.config.quantities import LABEL_NAME, METRIC_NAME
from slopewise.errors import UsageError
from slopewise.estimators.growth import SCRAPES_PER_WINDOW
from slopewise.model import Objective

VALUE_LABEL = "slopewise_value"


@dataclass(frozen=True, slots=True)
class AnyOf:
    """One of several values of a label, compared as text; without values: any value but the empty one."""

    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NoneOf:
    """None of several values of a label, compared as text."""

    values: tuple[str, ...]


Matchers = Sequence[tuple[str, str | AnyOf | NoneOf]]
"""Pairs of label and value, not a mapping: a user's `namespace` narrows the controller's, never replaces it."""

MAX_PATTERN = 200
"""Characters of one list of values. LEVELS repeats it nine times in a URL, which then is 7 KB, and proxies refuse
those above 8; a longer list becomes "whatever it is", which costs rows and is as right: rows are joined by pod."""

STEP_LABELS = ("epoch", "step", "global_step", "iteration")
"""Labels that grow with the training: each step makes a new series, so no window fills. Others are recognised by the
values that they take (`moving_labels`)."""

NO_STEP_LABELS = ",".join(f'{label}=""' for label in STEP_LABELS)

_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")

# A reporter is a tenant: a series that carries our own marker would make label_replace() fail for everyone.
LOSS_SERIES = Template("""\
$metric{$matchers$no_step_labels,slopewise_value=""}""")

# The level is the median of the window, which one spike among four scrapes does not move: other people's exporters show
# the loss of whatever step was last. avg_over_time is NaN or infinite when one sample of the window is: that is how
# divergence shows. Only then is there something else to show, the last sample and the lowest (min_over_time skips NaN),
# and these rows say that the level counts for nothing. timestamp() knows only live series; the subquery finds the
# newest sample of one that has gone. The loss of the last minibatch is left out where the same target has a better one
# alive: it would not be chosen, and makes half of all rows. So is the number of samples where the window is full, as
# nearly all are: with a level and without a number there are WINDOW_SAMPLES. What is mostly empty comes first, because
# each `or` hashes all that stands before it.
LEVELS = Template("""\
(
  label_replace(
    last_over_time($series[$window]) unless (avg_over_time($series[$window]) > -Inf < Inf),
    "slopewise_value", "last", "", "")
or
  label_replace(
    min_over_time($series[$window]) unless (avg_over_time($series[$window]) > -Inf < Inf),
    "slopewise_value", "lowest", "", "")
or
  label_replace(quantile_over_time(0.5, $series[$window]), "slopewise_value", "level", "", "")
or
  label_replace(count_over_time($series[$window]) < $full, "slopewise_value", "samples", "", "")
or
  label_replace(
    timestamp($series) or max_over_time(timestamp($series)[$window:$scrape]),
    "slopewise_value", "sampled_at", "", "")
)
unless on ($pod, instance, stage)
  label_replace(group by ($pod, instance) ($better), "stage", "train", "", "")
""")

WINDOW_SAMPLES = SCRAPES_PER_WINDOW
"""This many samples fill a window; larger counts are not reported."""

BETTER_THAN_TRAIN = AnyOf(("eval", "train_ema"))
"""The stages of which one is chosen before `train` (`evaluations.STAGE_PREFERENCE`)."""

RESPONSES_COUNT = f"{DEFAULT_RESPONSES}_count"
RESPONSES_SUM = f"{DEFAULT_RESPONSES}_sum"
REQUESTS_IN_FLIGHT = DEFAULT_IN_FLIGHT
STEPS_TOTAL = "training_steps_total"
STEPS_PLANNED = "training_steps_planned"
THREADS, USEFUL_THREADS = "training_threads", "training_threads_useful"

CHECKPOINT_SAVED_AT = "training_checkpoint_timestamp_seconds"
CHECKPOINT_DURATION = "training_checkpoint_duration_seconds"
CHECKPOINT_ON_SIGTERM = "training_checkpoint_on_sigterm"

FIRST_STEP_AT = "training_first_step_timestamp_seconds"
FIRST_STEP_SECONDS = 900.0
"""How long after a process's first step its time is queried. A move whose job has not resumed by then has failed,
and 5,000 jobs that have run for hours cost no rows."""

WAIT_AND_STEPS = ("training_wait_seconds_total", "training_step_duration_seconds_sum")
WAIT_RATIO = "wait_ratio"
WAIT_SECONDS = 300.0
"""The least time over which waits are compared with steps: one step may take a minute."""

FACT_NAMES = (
    "training_(steps_total|steps_planned|threads|threads_useful|wait_seconds_total|checkpoint_(timestamp_seconds|duration_seconds|on_sigterm))"
    "|training_study|process_start_time_seconds"
)
"""The facts that jobs report, as one pattern: a further fact costs rows but no query. A job without checkpoints has
no rows about them."""

# Looks back over the window, so that one scrape that timed out does not turn `objective="max"` into "min". Only labels
# that are read come back, of five states the one that holds, and an objective only where it is another than the
# mapping's: 5,000 jobs are 25,000 rows like this, 5 MB, and would be 60,000.
FACTS = Template("""\
  label_replace(up{
    $matchers
    slopewise_value=""
  }, "slopewise_value", "up", "", "")
or
  (max by (__name__, namespace, pod, instance, state) (last_over_time(training_state{
    $matchers
    slopewise_value=""
  }[$window])) > 0)
or
  max by (__name__, namespace, pod, instance, objective) (last_over_time(training_info{
    $matchers
    objective!="$expected",
    slopewise_value=""
  }[$window]))
or
  label_replace(max by (__name__, namespace, pod, instance) (last_over_time($first_step{
    $matchers
    slopewise_value=""
  }[$window])) > time() - $first_step_seconds, "slopewise_value", "first_step", "", "")
or
  label_replace(
    max by (namespace, pod, instance) (increase($waits{
    $matchers
    slopewise_value=""
  }[$wait_window]))
    / max by (namespace, pod, instance) (increase($steps{
    $matchers
    slopewise_value=""
  }[$wait_window])) > 0, "slopewise_value", "wait_ratio", "", "")
or
  max by (__name__, namespace, pod, instance, study) (last_over_time({
    __name__=~"$names",
    $matchers
    slopewise_value=""
  }[$window]))
""")

# What happened within the window; rows only where something did. stdvar_over_time() is exactly 0 of equal values. Not
# increase(): an extrapolated 0.4 of one NaN would still be one NaN. Nor changes(): VictoriaMetrics counts the first
# sample of a series as one.
EVENTS = Template("""\
  label_replace(stdvar_over_time(process_start_time_seconds{
    $matchers
    slopewise_value=""
  }[$window]) > 0, "slopewise_value", "starts", "", "")
or
  label_replace(resets(training_steps_total{
    $matchers
    slopewise_value=""
  }[$window]) > 0, "slopewise_value", "resets", "", "")
or
  label_replace(stdvar_over_time(training_nonfinite_loss_total{
    $matchers
    slopewise_value=""
  }[$window]) > 0, "slopewise_value", "nonfinite", "", "")
""")


# What kubelets say of containers. Series of pods do not count: anybody may export a metric of this name. A kubelet's
# target carries no pod label and a pod's always does, and it is the scrape that writes both, so the target's own `up`
# decides. It must be there now: cAdvisor's samples bear their own time, such samples are seen for five minutes after
# their target has gone, and that a forger's target is gone must not make his series honest.
#
# Both /metrics/cadvisor and /metrics/resource may be scraped: max by, never sum by, puts them together. After a restart
# of the container the counter of its former life is seen for those five minutes, and is larger: of CPU seconds the
# newest sample counts. exported_namespace is where the namespace of a container ends up when a kubelet is scraped with
# honor_labels: false and its target has a namespace (prometheus-operator's kubelet Service is in kube-system).
RESOURCES = Template("""\
  max by (__name__, $container) ({
    __name__=~"container_(memory_working_set_bytes|cpu_cfs_(throttled_)?periods_total|pressure_cpu_waiting_seconds_total)",
    $matchers
  } and on (job, instance) up{pod=""})
or
  label_replace(max by ($container) (timestamp(container_cpu_usage_seconds_total{
    $matchers
  }) and on (job, instance) up{pod=""}), "slopewise_value", "sampled_at", "", "")
or
  label_replace(max by ($container) (
    container_cpu_usage_seconds_total{
    $matchers
  } and (
      timestamp(container_cpu_usage_seconds_total{
    $matchers
  }) == on ($container) group_left () max by ($container) (timestamp(container_cpu_usage_seconds_total{
    $matchers
  }) and on (job, instance) up{pod=""})
    ) and on (job, instance) up{pod=""}
  ), "slopewise_value", "cpu", "", "")
or
  label_replace(max by ($container) (sum by ($container, id, job, instance) ({
    __name__=~"container_fs_(reads|writes)_bytes_total",
    $matchers
  } and on (job, instance) up{pod=""})), "slopewise_value", "block_io", "", "")
or
  label_replace(max by ($pod) (sum by ($pod, id, job, instance) ({
    __name__=~"container_network_(receive|transmit)_bytes_total",
    interface!="lo",
    $pod_matchers
  } and on (job, instance) up{pod=""} and on ($pod) container_memory_working_set_bytes{
    $matchers
  })), "slopewise_value", "network_io", "", "")
""")

POD = "namespace, exported_namespace, pod"

# The end of a run asks what each job had counted when it was last seen, also of jobs that are long gone.
LAST_VALUES = Template("""\
max by (namespace, pod) (
  last_over_time($metric{
    $matchers
    slopewise_value=""
  }[$window])
)
""")


# What a job exports besides what every process does: asked for a few jobs that report no evaluation. By the addresses
# of their own targets, because kubelets and kube-state-metrics have series about every pod. Of each pod so many names
# at most, for it may export any number.
METRIC_NAMES = Template("""\
topk by (namespace, pod) ($most, count by (__name__, namespace, pod) ({
    __name__!~"up|(scrape|python|process|go|promhttp)_.+|.+_(bucket|created)",
    $matchers
    instance=~"$instances",
    pod=~"$pods"
  }))
""")

MAX_NAMES = 1_000
"""Names of metrics of one pod: a model server has some 200."""


def metric_names(matchers: Matchers, instances: Sequence[str], pods: Sequence[str]) -> str:
    """The query for the names of the metrics of a few pods whose own targets are at these addresses."""
    return METRIC_NAMES.substitute(
        most=MAX_NAMES,
        matchers=render_matchers(matchers),
        instances=escaped(pattern(instances)),
        pods=escaped(pattern(pods)),
    )


def last_values(metric: str, matchers: Matchers, window_seconds: float) -> str:
    """The query for the last value of a metric per job within the window."""
    return LAST_VALUES.substitute(
        metric=checked_metric_name(metric), matchers=render_matchers(matchers), window=duration(window_seconds)
    )


def levels(
    metric: str,
    matchers: Matchers,
    window_seconds: float,
    scrape_seconds: float,
    pod_labels: Sequence[str] = ("namespace", "pod"),
) -> str:
    """The query for the windows of one evaluation mapping; UsageError for a name that is none."""
    return LEVELS.substitute(
        pod=", ".join(map(checked_label_name, pod_labels)),
        series=loss_series(metric, matchers),
        better=loss_series(metric, (*matchers, ("stage", BETTER_THAN_TRAIN))),
        window=duration(window_seconds),
        scrape=duration(scrape_seconds),
        full=WINDOW_SAMPLES,
    )


def loss_series(metric: str, matchers: Matchers) -> str:
    """The selector of an evaluation mapping, without series that carry a step label."""
    return LOSS_SERIES.substitute(
        metric=checked_metric_name(metric), matchers=render_matchers(matchers), no_step_labels=NO_STEP_LABELS
    )


def facts(matchers: Matchers, window_seconds: float, expected: Objective | None, mapped: Sequence[str] = ()) -> str:
    """The query for the facts that jobs report, and whether they are scraped.

    `mapped`: what mappings add, each a query (`mapped_queries`).

    `expected`: the objective of every evaluation mapping, which is left out of the answer; None: they differ.
    """
    own = FACTS.substitute(
        names=FACT_NAMES,
        first_step=FIRST_STEP_AT,
        waits=WAIT_AND_STEPS[0],
        steps=WAIT_AND_STEPS[1],
        wait_window=duration(max(window_seconds, WAIT_SECONDS)),
        first_step_seconds=f"{FIRST_STEP_SECONDS:.0f}",
        matchers=render_matchers(matchers),
        window=duration(window_seconds),
        expected=expected or "",
    )
    return "or\n".join((*mapped, own))


def events(matchers: Matchers, window_seconds: float, mapped: Sequence[str] = ()) -> str:
    """The query for restarts and non-finite losses within the window; `mapped` as in `facts`."""
    return "or\n".join(
        (*mapped, EVENTS.substitute(matchers=render_matchers(matchers), window=duration(window_seconds)))
    )


def resources(matchers: Matchers, containers: AnyOf) -> str:
    """The query for the kubelets' series of containers of these names."""
    # The sandbox of a pod is a container without a name to cAdvisor, and "POD" to an older one.
    of_containers = (*matchers, ("pod", AnyOf()), ("container", AnyOf()), ("container", containers))
    return RESOURCES.substitute(
        container=f"{POD}, container",
        pod=POD,
        matchers=render_matchers(of_containers),
        pod_matchers=render_matchers((*matchers, ("pod", AnyOf()))),
    )


def render_matchers(matchers: Matchers) -> str:
    """Matchers, each with a comma, e.g. `namespace="demo",`; UsageError for a name or value that is none."""
    return "".join(f"{checked_label_name(name)}{_comparison(value)}," for name, value in matchers)


def pattern(values: Sequence[str]) -> str:
    """A regular expression for these values as text. A hyphen needs no escape, which is seven characters of a URL."""
    return "|".join(re.escape(each).replace(r"\-", "-") for each in values)


def _comparison(value: str | AnyOf | NoneOf) -> str:
    if isinstance(value, str):
        return f'="{escaped(value)}"'
    any_of = pattern(value.values)
    if isinstance(value, NoneOf):
        return f'!~"{escaped(any_of)}"'
    return f'=~"{escaped(any_of)}"' if value.values and len(any_of) <= MAX_PATTERN else '!=""'


def checked_metric_name(name: str) -> str:
    """The name itself, or UsageError: what is not a metric name could be PromQL."""
    if not METRIC_NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a metric name; use letters, digits, _ and : (PromQL is not accepted).")
    return name


def checked_label_name(name: str) -> str:
    """The name itself, or UsageError: what is not a label name could be PromQL."""
    if not LABEL_NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a label name; use letters, digits and _ (PromQL is not accepted).")
    return name


def escaped(value: str) -> str:
    r"""A label value inside PromQL double quotes, e.g. `a"b\` becomes `a\"b\\`."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{value!r} is not a label value; write it in valid UTF-8.") from error
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    return _CONTROL_CHARACTER.sub(lambda match: f"\\x{ord(match[0]):02x}", quoted)


def duration(seconds: float) -> str:
    """A PromQL duration in whole milliseconds, e.g. 2.5 s is `2500ms`."""
    return f"{round(seconds * 1000)}ms"
