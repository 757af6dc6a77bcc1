"""Freezes in force at one moment: which jobs may not be changed, and why."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

FreezeScope = Literal["all", "namespace", "node", "policy"]
FreezeEffect = Literal["Freeze", "Recommend"]
"""`Freeze` withholds every change, also a restore. `Recommend` is as the mode of that name: originals are restored."""


@dataclass(frozen=True, slots=True)
class Freeze:
    """One freeze in force."""

    name: str
    effect: FreezeEffect
    message: str
    """For people: what it is about, its end and its reason."""
    until_seconds: float | None = None
    """None: until it is deleted."""


@dataclass(frozen=True, slots=True)
class Freezes:
    """The freezes in force for the jobs of one policy: the strictest one of each place."""

    everywhere: Freeze | None = None
    """Of all jobs, or of the policy."""
    namespaces: Mapping[str, Freeze] = field(default_factory=dict)
    nodes: Mapping[str, Freeze] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether anything is frozen."""
        return bool(self.everywhere or self.namespaces or self.nodes)

    def of(self, namespace: str, *nodes: str) -> Freeze | None:
        """The strictest freeze of a job in this namespace, on or between these nodes; None: it may be changed."""
        if not self:
            return None
        places = (self.everywhere, self.namespaces.get(namespace), *map(self.nodes.get, nodes))
        return strictest(freeze for freeze in places if freeze is not None)


def strictest(freezes: Iterable[Freeze]) -> Freeze | None:
    """`Freeze` before `Recommend`, then the one that lasts longest, then by name; None of none."""
    return min(
        freezes, key=lambda each: (each.effect != "Freeze", -(each.until_seconds or math.inf), each.name), default=None
    )


NO_FREEZES = Freezes()
