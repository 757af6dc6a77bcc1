"""Metrics of single jobs: families that are declared by name, filled with each job's figures, and written as text.

10,000 jobs have 200,000 samples. The client library makes an object of each, and names and escapes the labels of a job
again for each of its samples. Here a family keeps rows, and a job's labels are written once.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder, gzip_accepted
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from slopewise.model import Job

Figure = tuple[str, float | None, *tuple[str, ...]]
"""A family's name, the value (None: not known), and those of its own labels, where it has some."""

_LABELS = ("job_namespace", "job_name", "job_node")
_of = attrgetter("namespace", "name", "node")

Row = tuple[Job, str, str, float, tuple[str, ...]]
"""A sample: the job, its policy, its labels as text, the value, and those of the family's own labels."""


class JobFamily(Metric):
    """The samples of one figure."""

    def __init__(self, name: str, text: str, kind: str, more: Sequence[str] = ()) -> None:
        """`more`: the names of its labels beside those of every job."""
        super().__init__(f"slopewise_job_{name}", text, kind)
        self.rows: list[Row] = []
        self._more = more
        self._sample = f"{self.name}_total" if kind == "counter" else self.name

    @property
    def samples(self) -> list[Sample]:
        """For other readers than `page`."""
        names = (*_LABELS, *self._more)
        return [
            Sample(self._sample, dict(zip(names, (*_of(job), *more), strict=True)), value)
            for job, _, _, value, more in self.rows
        ]

    @samples.setter
    def samples(self, none: list[Sample]) -> None:
        """The base class begins with none."""

    def lines(self) -> str:
        """A line for each sample, the same in both formats."""
        return "".join([
            f"{self._sample}{{{labels}{_named(self._more, more) if more else ''}}} {float(value)!r}\n"
            for _, _, labels, value, more in self.rows
        ])  # fmt: skip


class JobFamilies:
    """One family for each name, without `slopewise_job_`; a figure that is not known adds no sample."""

    def __init__(
        self, gauges: Mapping[str, str], labelled: Mapping[str, tuple[str, ...]], counters: Mapping[str, str]
    ) -> None:
        """By name: help texts; of the `labelled`, gauges too, with the labels beside those of every job."""
        made = {name: JobFamily(name, text, "gauge") for name, text in gauges.items()}
        made |= {name: JobFamily(name, text, "gauge", more) for name, (text, *more) in labelled.items()}
        self._families = made | {name: JobFamily(name, text, "counter") for name, text in counters.items()}

    def add(self, job: Job, policy: str, figures: Iterable[Figure]) -> None:
        """The figures of one job."""
        labels = _named(_LABELS, _of(job))[1:]
        for name, value, *more in figures:
            if value is not None:
                self._families[name].rows.append((job, policy, labels, value, tuple(more)))

    def __iter__(self) -> Iterator[JobFamily]:
        return iter(self._families.values())


def _named(names: Sequence[str], values: Sequence[str]) -> str:
    """Labels, each after a comma."""
    escaped = (value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"') for value in values)
    return "".join([f',{name}="{value}"' for name, value in zip(names, escaped, strict=True)])


def page(registry: Collector, accept: str, encodings: str) -> tuple[list[tuple[str, str]], bytes]:
    """All metrics in a format and an encoding that are accepted, with their headers."""
    encode, content_type = choose_encoder(accept)
    headers = [("Content-Type", content_type)]
    # Of the ways to escape names, this one alone changes ours: it doubles underscores.
    parts: Iterable[bytes] = [encode(registry)] if "escaping=dots" in accept else _parts(registry, encode)
    if not gzip_accepted(encodings):
        return headers, b"".join(parts)
    packer = zlib.compressobj(level=1, wbits=31)  # 31: as gzip
    return [*headers, ("Content-Encoding", "gzip")], b"".join([*map(packer.compress, parts), packer.flush()])


def _parts(registry: Collector, encode: Callable[[Any], bytes]) -> Iterator[bytes]:
    """The library writes everything but the lines of jobs."""
    end = encode(SimpleNamespace(collect=tuple))
    for family in registry.collect():
        lines = family.lines().encode() if isinstance(family, JobFamily) else b""
        head = Metric(family.name, family.documentation, family.type) if isinstance(family, JobFamily) else family
        yield encode(SimpleNamespace(collect=lambda head=head: [head])).removesuffix(end) + lines
    yield end
