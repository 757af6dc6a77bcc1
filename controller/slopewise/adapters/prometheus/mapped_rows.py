"""Reads rows about response times and steps, whose names mappings give, under the names of docs/metrics.md.

Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from slopewise.adapters.prometheus.client import Row
from slopewise.adapters.prometheus.evaluations import JobKey, job_key
from slopewise.adapters.prometheus.mapped_queries import (
    FAILED,
    FAILED_ALONE,
    PLANNED,
    RESPONSES,
    STEP_RESETS,
    STEPS,
    Source,
    kind,
)
from slopewise.adapters.prometheus.queries import (
    REQUESTS_IN_FLIGHT,
    RESPONSES_COUNT,
    RESPONSES_SUM,
    STEP_LABELS,
    STEPS_PLANNED,
    STEPS_TOTAL,
    VALUE_LABEL,
)
from slopewise.config.metric_mappings import EvaluationMapping, ResponseMapping

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
        self._kinds = dict((*_of_steps(evaluations), *_of_responses(responses)))

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


def without_step_labels(rows: Iterable[Row], mappings: int) -> tuple[list[Row], list[list[Row]]]:
    """The rows of EVENTS, and apart from them those about losses with a step label, by mapping, as LEVELS has kinds."""
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


def _of_steps(sources: Sequence[Source[EvaluationMapping]]) -> Iterator[tuple[str, _Kind]]:
    for number, source in enumerate(sources):
        for value, name in ((STEPS, STEPS_TOTAL), (PLANNED, STEPS_PLANNED), (STEP_RESETS, STEP_RESET)):
            yield kind(value, number), _Kind(source, {"": (name, 1.0)})


OF_THE_CONTRACT = MappedRows((), (Source(ResponseMapping()),))
"""Without a mapping: the names of docs/metrics.md."""
