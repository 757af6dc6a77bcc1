"""Splits this machine into nodes, each a set of cores of its own.

A node is an affinity mask, set on a job's process before it runs and inherited by all that it starts. The mask needs
no rights, whereas a cpuset needs a cgroup hierarchy of its own. A job could change its mask (`taskset`); the
built-in ones do not.
Weights compete only where jobs share a core, so they are per node by themselves: five busy loops pinned to two cores
with weights 1500 and 500, and 100, 900 and 1000, used 75 and 25 % of the first core, 5, 45 and 50 % of the second.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise

import psutil

from slopewise.adapters.local.limiters.choose import own_quota_cores
from slopewise.errors import ActuationError, UsageError
from slopewise.model import Node

ONLY_NODE = "local"
"""The name of a machine that was not split."""


@dataclass(frozen=True, slots=True)
class LocalNode:
    """One node: a set of this machine's cores."""

    node: Node
    cpus: frozenset[int]
    """The numbers of its cores, as the kernel counts them."""

    @property
    def name(self) -> str:
        """`local`, or `node-1` and so on."""
        return self.node.name

    def hold(self, pid: int) -> None:
        """Pin a process, and all that it will start, to this node's cores; ActuationError when it has ended."""
        try:
            os.sched_setaffinity(pid, self.cpus)
        except OSError as error:
            cores = ", ".join(map(str, sorted(self.cpus)))
            raise ActuationError(
                f"{self.name}: process {pid} cannot be put on its cores {cores} ({error.strerror})."
            ) from error


def split_machine(count: int = 1) -> tuple[LocalNode, ...]:
    """The cores that this process may use, as `count` nodes; UsageError when there are fewer cores than nodes.

    Each node counts its part of the memory and, where the controller's cgroup has a quota below the cores, its part
    of the quota. Worked example: 5 cores as 2 nodes are cores 0-2 and 3-4.
    """
    cpus = sorted(os.sched_getaffinity(0))
    if not 1 <= count <= len(cpus):
        raise UsageError(f"--nodes {count}: this machine has {len(cpus)} cores for us; use 1 to {len(cpus)} nodes.")
    quota_ratio = min(1.0, own_quota_cores() / len(cpus))
    memory_bytes = psutil.virtual_memory().total
    least, more = divmod(len(cpus), count)  # contiguous parts, the first ones one core larger where any are left
    ends = [least * place + min(place, more) for place in range(count + 1)]
    parts = [frozenset(cpus[start:end]) for start, end in pairwise(ends)]
    names = [ONLY_NODE] if count == 1 else [f"node-{number}" for number in range(1, count + 1)]
    return tuple(
        LocalNode(Node(name, len(part) * quota_ratio, memory_bytes // count), part)
        for name, part in zip(names, parts, strict=True)
    )
