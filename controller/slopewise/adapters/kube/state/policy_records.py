"""What is stored of a policy in the status of its TrainingPolicy: intervals of nodes, class records, departed jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from slopewise.model import ClassFigures, Departed, NodeMemory


class Intervals(NamedTuple):
    """What is stored of nodes, by name: when each was evaluated (Unix seconds), and its interval in seconds."""

    nodes: Mapping[str, tuple[float, float]] = MappingProxyType({})
    placement_nodes: Mapping[str, tuple[float, float]] = MappingProxyType({})
    """Of the policy of `spec.placement`."""


NONE_STORED = Intervals()

ClassRecords = Mapping[str, tuple[ClassFigures, ...]]
"""What the jobs of each workload class have shown (`MemoryState.classes`)."""


class PolicyRecords(NamedTuple):
    """What is stored of a policy beside nodes: as in `MemoryState`."""

    classes: ClassRecords = MappingProxyType({})
    departed: tuple[Departed, ...] = ()


NO_RECORDS = PolicyRecords()

OnNodes = Callable[[Mapping[str, NodeMemory], Mapping[str, NodeMemory]], None]
"""Stores the evaluations of nodes: by the policy, and by its placement."""
