"""Bounds the series that one pod may have in a reading: counts them first, and leaves out a pod with more.

A pod with 100,000 series costs more than all others together, and would hold the passes of everybody. The count is one
query with a row for each pod above the bound, so it costs no rows where there is none. Every later query of the reading
then excludes such pods by matchers. A pod is named by namespace and pod, and PromQL has no "not both": a namespace with
such a pod is queried apart from the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from string import Template

from slopewise.adapters.prometheus.client import Row
from slopewise.adapters.prometheus.evaluations import JobKey, job_key
from slopewise.adapters.prometheus.mapped_queries import Source
from slopewise.adapters.prometheus.queries import (
    FACT_NAMES,
    FIRST_STEP_AT,
    MAX_PATTERN,
    NO_STEP_LABELS,
    WAIT_AND_STEPS,
    AnyOf,
    Matchers,
    NoneOf,
    checked_label_name,
    checked_metric_name,
    duration,
    pattern,
    render_matchers,
)
from slopewise.config.metric_mappings import EvaluationMapping, PodLabels, ResponseMapping

MAX_SERIES = 2_000
"""Of one pod that are read: 64 ranks with 20 series each are 1,280."""

_OWN_NAMES = (FACT_NAMES, "up", "training_(state|info|nonfinite_loss_total)", FIRST_STEP_AT, *WAIT_AND_STEPS)

COUNTED = Template("""\
count by ($pod) (last_over_time({__name__=~"$names",${matchers}slopewise_value=""}[$window])) > $most
""")

# The pods of a namespace that is left out as a whole: their jobs would seem to have no target.
PODS = Template("""\
group by (namespace, pod) (up{${matchers}slopewise_value=""})
""")

Parts = Sequence[Matchers]
"""The pods of a reading, as matchers of parts that are queried one after another."""


def counted(
    evaluations: Sequence[Source[EvaluationMapping]],
    responses: Sequence[Source[ResponseMapping]],
    forced: Matchers,
    window_seconds: float,
    most: int,
) -> str:
    """The query for pods of which any selector of a reading finds more than `most` series in this window."""
    names: dict[tuple[PodLabels, str], list[str]] = defaultdict(
        list, {(PodLabels(), render_matchers(forced)): [*_OWN_NAMES]}
    )
    for source in evaluations:
        mapping, matchers = source.mapping, source.matchers(forced)
        of_loss = render_matchers((*matchers, *mapping.labels.items())) + NO_STEP_LABELS + ","
        names[mapping.pod_labels, of_loss].append(checked_metric_name(mapping.metric))
        for steps in (mapping.steps_total, mapping.steps_planned):
            if steps is not None:
                of_steps = render_matchers((*matchers, *steps.labels.items()))
                names[mapping.pod_labels, of_steps].append(checked_metric_name(steps.metric))
    for served in responses:
        of = served.mapping
        failed = () if of.failed_count is None else (of.failed_count,)
        of_served = render_matchers((*served.matchers(forced), *of.labels.items()))
        names[of.pod_labels, of_served] += map(
            checked_metric_name, (of.count_metric, of.sum_metric, *of.in_flight, *failed)
        )
    return "or\n".join(
        COUNTED.substitute(
            pod=f"{checked_label_name(labels.namespace)}, {checked_label_name(labels.pod)}",
            names="|".join(dict.fromkeys(each)),
            matchers=matchers,
            window=duration(window_seconds),
            most=most,
        )
        for (labels, matchers), each in names.items()
    )


def above_bound(rows: Sequence[Row], labels: Collection[PodLabels], most: int) -> dict[JobKey, int]:
    """The series of each pod in the answer, if more than `most`. `labels`: by which the mappings name a pod."""
    found: dict[JobKey, int] = {}
    for row in rows:
        key = next((key for each in labels if (key := job_key(row.labels, each)) is not None), None)
        if key is not None and row.value > most:
            found[key] = max(found.get(key, 0), round(row.value))
    return found


def whole_namespaces(left_out: Collection[JobKey]) -> frozenset[str]:
    """The namespaces with more such pods than a URL can name."""
    return frozenset(namespace for namespace, pods in _by_namespace(left_out).items() if not _fits(pods))


def parts(namespaces: Sequence[str], left_out: Collection[JobKey]) -> Parts:
    """All pods of these namespaces (none: of any) but those left out; one part where there are none of those."""
    here: Matchers = (("namespace", AnyOf(tuple(namespaces))),) if namespaces else ()
    found = _by_namespace(left_out)
    if not found:
        return [here]
    apart: list[Matchers] = [
        (("namespace", namespace), ("pod", NoneOf(pods)))
        for namespace, pods in found.items()
        if _fits(pods) and (not namespaces or namespace in namespaces)
    ]
    if not namespaces or _fits(tuple(found)):
        return [(*here, ("namespace", NoneOf(tuple(found)))), *apart]
    others = [each for each in namespaces if each not in found]
    return [*((("namespace", AnyOf(chunk)),) for chunk in _chunks(others)), *apart]


def pods_of(namespaces: Collection[str], forced: Matchers) -> str:
    """The query for the pods of these namespaces."""
    return PODS.substitute(matchers=render_matchers((*forced, ("namespace", AnyOf(tuple(sorted(namespaces)))))))


def message(series: int, most: int) -> str:
    """Why a pod is left out, and what to do."""
    return f"left out: it exports {series} series of what is read, bound {most}; see which of its labels grows"


def message_of_namespace(pods: int, most: int) -> str:
    """The same of a pod beside too many of those."""
    return f"left out with its namespace: {pods} pods there export more than {most} series each of what is read"


def _by_namespace(left_out: Collection[JobKey]) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for key in sorted(left_out):
        found[key.namespace] = (*found.get(key.namespace, ()), key.pod)
    return found


def _fits(values: tuple[str, ...]) -> bool:
    return len(pattern(values)) <= MAX_PATTERN


def _chunks(values: Sequence[str]) -> Iterator[tuple[str, ...]]:
    chunk: tuple[str, ...] = ()
    for value in values:
        if chunk and not _fits((*chunk, value)):
            yield chunk
            chunk = ()
        chunk = (*chunk, value)
    if chunk:
        yield chunk
