"""PromQL for the facts that mappings name: response times of served models, steps of trainings, labels of losses.

Each part is one operand of FACTS or EVENTS, so that mappings cost rows but no query. A part's rows carry the kind of
its mapping (`kind`), by which they are read under the names of docs/metrics.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import Template
from typing import Generic, NamedTuple, TypeVar
from urllib.parse import quote_plus

from slopewise.adapters.prometheus.client import Row
from slopewise.adapters.prometheus.evaluations import JobKey, job_key
from slopewise.adapters.prometheus.queries import (
    REQUESTS_IN_FLIGHT,
    RESPONSES_COUNT,
    RESPONSES_SUM,
    STEP_LABELS,
    STEPS_PLANNED,
    STEPS_TOTAL,
    VALUE_LABEL,
    AnyOf,
    Matchers,
    checked_label_name,
    checked_metric_name,
    duration,
    escaped,
    render_matchers,
)
from slopewise.config.metric_mappings import EvaluationMapping, PodLabels, ResponseMapping, SeriesName

M = TypeVar("M", bound=EvaluationMapping | ResponseMapping)

MAX_QUERY = 8_000
"""Characters of a query in a URL that proxies let through."""

RESPONSES, FAILED, FAILED_ALONE = "responses", "failed_responses", "failed_count"
STEPS, PLANNED, STEP_RESETS = "mapped_steps", "mapped_planned", "mapped_resets"


@dataclass(frozen=True, slots=True)
class Source(Generic[M]):
    """A mapping, and which pods it is for."""

    mapping: M
    pods: frozenset[str] | None = None
    """None: all but those that have a mapping of their own."""
    others: frozenset[str] = frozenset()
    """The pods that have a mapping of their own."""

    def covers(self, pod: str) -> bool:
        """Whether the mapping is for this pod."""
        return pod not in self.others if self.pods is None else pod in self.pods

    def matchers(self, forced: Matchers) -> Matchers:
        """The forced matchers as matchers of the labels that name the pod, and the pods of this mapping."""
        of_pods = () if self.pods is None else (("pod", AnyOf(tuple(sorted(self.pods)))),)
        return with_pod_labels((*forced, *of_pods), self.mapping.pod_labels)


def sources_of(mappings: Sequence[M], own: Mapping[str, M | None]) -> tuple[Source[M], ...]:
    """The mappings that pods have of their own, alike ones as one, and then those for all other pods."""
    pods: list[tuple[M, set[str]]] = []
    for pod, mapping in own.items():
        if mapping is not None:
            alike = next((found for known, found in pods if known == mapping), None)
            if alike is None:
                pods.append((mapping, {pod}))
            else:
                alike.add(pod)
    taken = frozenset(pod for _, found in pods for pod in found)
    return (
        *(Source(mapping, frozenset(found)) for mapping, found in pods),
        *(Source(mapping, others=taken) for mapping in mappings),
    )


# What a model server splits by model and status code only means something as a whole: sum by. A response that fails is
# often a fast one, so those are summed apart; they have rows only where there are any.
SUMMED = Template("""\
  label_replace(sum by (__name__, $pod, instance) ($series), "slopewise_value", "$kind", "", "")
""")
SELECTED = Template("""\
last_over_time({__name__=~"$names",$matchers${matched}slopewise_value=""}[$window])""")

LARGEST = Template("""\
  label_replace(max by ($pod, instance) (last_over_time($metric{${matchers}slopewise_value=""}[$window])),
    "slopewise_value", "$kind", "", "")
""")
LABELLED = Template("""\
  label_replace(count by ($pod) ($metric{$matchers$label!=""}), "slopewise_value", "$kind", "", "")
""")
RESET = Template("""\
  label_replace(resets($metric{${matchers}slopewise_value=""}[$window]) > 0, "slopewise_value", "$kind", "", "")
""")


def kind(name: str, number: int) -> str:
    """The value of `slopewise_value` in the rows of the mapping with this number: `responses`, `responses1`."""
    return f"{name}{number or ''}"


def response_parts(
    sources: Sequence[Source[ResponseMapping]], forced: Matchers, window_seconds: float
) -> Iterator[str]:
    """What FACTS asks of response times; UsageError for a name or value that is none."""
    for number, source in enumerate(sources):
        yield from _of_server(source.mapping, number, source.matchers(forced), window_seconds)


def step_parts(sources: Sequence[Source[EvaluationMapping]], forced: Matchers, window_seconds: float) -> Iterator[str]:
    """What FACTS asks of the steps that mappings name."""
    for number, source in enumerate(sources):
        for series, value in ((source.mapping.steps_total, STEPS), (source.mapping.steps_planned, PLANNED)):
            if series is not None:
                yield _of_steps(LARGEST, source, series, forced, window_seconds, kind(value, number))


def reset_parts(sources: Sequence[Source[EvaluationMapping]], forced: Matchers, window_seconds: float) -> Iterator[str]:
    """What EVENTS asks of these steps: a count that falls, of a gauge too, is a restart."""
    for number, source in enumerate(sources):
        if (series := source.mapping.steps_total) is not None:
            yield _of_steps(RESET, source, series, forced, window_seconds, kind(STEP_RESETS, number))


def step_label_parts(sources: Sequence[Source[EvaluationMapping]], forced: Matchers) -> Iterator[str]:
    """What EVENTS asks of losses that carry a step label; LEVELS leaves them out."""
    for number, source in enumerate(sources):
        mapping = source.mapping
        matchers = render_matchers((*source.matchers(forced), *mapping.labels.items()))
        for label in STEP_LABELS:
            yield LABELLED.substitute(
                pod=_pod(mapping.pod_labels),
                metric=checked_metric_name(mapping.metric),
                matchers=matchers,
                label=label,
                kind=kind(label, number),
            )


def with_pod_labels(matchers: Matchers, labels: PodLabels) -> Matchers:
    """Matchers of the scrape's `namespace` and `pod` as matchers of the labels that name them."""
    names = {"namespace": labels.namespace, "pod": labels.pod}
    return tuple((names.get(name, name), value) for name, value in matchers)


def _of_server(mapping: ResponseMapping, number: int, forced: Matchers, window_seconds: float) -> Iterator[str]:
    """What is asked of one server's mapping: responses, those that failed, and failures that are counted apart."""
    matchers, window = render_matchers((*forced, *mapping.labels.items())), duration(window_seconds)

    def summed(value: str, names: Sequence[str], matched: Sequence[str]) -> str:
        listed = "|".join(map(checked_metric_name, names))
        series = [SELECTED.substitute(names=listed, matchers=matchers, matched=each, window=window) for each in matched]
        return SUMMED.substitute(pod=_pod(mapping.pod_labels), series=" or ".join(series), kind=kind(value, number))

    timed = (mapping.count_metric, mapping.sum_metric)
    failing = [(checked_label_name(label), _pattern(values)) for label, values in mapping.failed.items()]
    none_failed = "".join(f'{label}!~"{pattern}",' for label, pattern in failing)
    yield summed(RESPONSES, (*timed, *mapping.in_flight), [none_failed])
    if failing:
        yield summed(FAILED, timed, [f'{label}=~"{pattern}",' for label, pattern in failing])
    if mapping.failed_count is not None:
        yield summed(FAILED_ALONE, (mapping.failed_count,), [""])


def _of_steps(
    template: Template,
    source: Source[EvaluationMapping],
    series: SeriesName,
    forced: Matchers,
    window_seconds: float,
    value: str,
) -> str:
    return template.substitute(
        metric=checked_metric_name(series.metric),
        pod=_pod(source.mapping.pod_labels),
        matchers=render_matchers((*source.matchers(forced), *series.labels.items())),
        window=duration(window_seconds),
        kind=value,
    )


def _pod(labels: PodLabels) -> str:
    return f"{checked_label_name(labels.namespace)}, {checked_label_name(labels.pod)}"


def _pattern(values: Sequence[str]) -> str:
    """A regular expression for texts with `*` and `?` in them, inside PromQL double quotes."""
    wild = {"*": ".*", "?": "."}
    return escaped("|".join("".join(wild.get(each, re.escape(each)) for each in value) for value in values))


STEP_RESET = "step reset"
"""Not a fact but an event: the count of steps fell."""


class MappedFact(NamedTuple):
    """What one row says, under our name and in our unit."""

    key: JobKey
    instance: str
    name: str
    value: float
    failed: bool = False


class _Kind(NamedTuple):
    """How rows of one kind are read: our name and the factor by the metric's name, which is empty where it is lost."""

    source: Source[EvaluationMapping] | Source[ResponseMapping]
    names: Mapping[str, tuple[str, float]]
    failed: bool = False


class MappedRows:
    """Reads the rows of the mappings of one reader; others are left to the caller."""

    def __init__(
        self, evaluations: Sequence[Source[EvaluationMapping]], responses: Sequence[Source[ResponseMapping]]
    ) -> None:
        self._kinds = dict((*_step_rows(evaluations), *_of_responses(responses)))

    def is_mapped(self, labels: Mapping[str, str]) -> bool:
        """Whether a row with these labels belongs to a mapping."""
        return labels.get(VALUE_LABEL, "") in self._kinds

    def read(self, row: Row) -> Iterator[MappedFact]:
        """The fact of a row that `is_mapped`; nothing where its mapping is not for its pod."""
        labels = row.labels
        source, names, failed = self._kinds[labels.get(VALUE_LABEL, "")]
        key = job_key(labels, source.mapping.pod_labels)
        name = names.get(labels.get("__name__", ""))
        if key is not None and name is not None and source.covers(key.pod):
            yield MappedFact(key, labels.get("instance", ""), name[0], row.sample[1] * name[1], failed)


def joined(*queries: str) -> tuple[str, ...]:
    """These queries as one if a URL can hold it; the first have the fewest rows, because each `or` hashes them."""
    whole = "or\n".join(queries)
    return (whole,) if len(quote_plus(whole)) <= MAX_QUERY else queries


def without_step_labels(rows: Iterable[Row], mappings: int) -> tuple[list[Row], list[list[Row]]]:
    """All rows but those of EVENTS about losses with a step label, and these by mapping, as LEVELS has kinds."""
    kinds = {kind(label, number): (label, number) for label in STEP_LABELS for number in range(mappings)}
    others: list[Row] = []
    labelled: list[list[Row]] = [[] for _ in range(mappings)]
    for row in rows:
        known = kinds.get(row.labels.get(VALUE_LABEL, ""))
        if known is None:
            others.append(row)
        else:
            labelled[known[1]].append(Row({**row.labels, VALUE_LABEL: known[0]}, row.sample))
    return others, labelled


def _of_responses(sources: Sequence[Source[ResponseMapping]]) -> Iterator[tuple[str, _Kind]]:
    for number, source in enumerate(sources):
        mapping = source.mapping
        timed = {
            mapping.count_metric: (RESPONSES_COUNT, 1.0),
            mapping.sum_metric: (RESPONSES_SUM, mapping.seconds_per_unit),
        }
        in_flight = dict.fromkeys(mapping.in_flight, (REQUESTS_IN_FLIGHT, 1.0))
        yield kind(RESPONSES, number), _Kind(source, in_flight | timed)
        yield kind(FAILED, number), _Kind(source, timed, failed=True)
        if mapping.failed_count is not None:
            alone = {mapping.failed_count: (RESPONSES_COUNT, 1.0)}
            yield kind(FAILED_ALONE, number), _Kind(source, alone, failed=True)


def _step_rows(sources: Sequence[Source[EvaluationMapping]]) -> Iterator[tuple[str, _Kind]]:
    for number, source in enumerate(sources):
        for value, name in ((STEPS, STEPS_TOTAL), (PLANNED, STEPS_PLANNED), (STEP_RESETS, STEP_RESET)):
            yield kind(value, number), _Kind(source, {"": (name, 1.0)})


OF_THE_CONTRACT = MappedRows((), (Source(ResponseMapping()),))
"""Without a mapping: the names of docs/metrics.md."""
