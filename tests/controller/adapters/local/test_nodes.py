"""This machine as nodes: how its cores are shared out, and that a process stays on its node's."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

import pytest

from slopewise.adapters.local.nodes import LocalNode, split_machine
from slopewise.errors import ActuationError, UsageError
from slopewise.model import Node

OURS = os.sched_getaffinity(0)


@pytest.fixture
def machine_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """A machine of so many cores, with numbers as in a container that was given some of them."""

    def lay_out(cores: int) -> None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4, 4 + cores)))

    return lay_out


def test_a_machine_that_is_not_split_is_one_node_with_all_cores_and_memory() -> None:
    (node,) = split_machine()
    assert (node.name, node.cpus) == ("local", frozenset(OURS))
    assert 0 < node.node.cpu_cores <= len(OURS)
    assert node.node.memory_bytes > 2**20


def test_nodes_share_out_all_cores_neighbours_together_and_the_memory_evenly(machine_of: Callable[[int], None]) -> None:
    machine_of(5)
    nodes = split_machine(2)
    assert [(node.name, sorted(node.cpus)) for node in nodes] == [("node-1", [4, 5, 6]), ("node-2", [7, 8])]
    assert nodes[0].node.cpu_cores / nodes[1].node.cpu_cores == pytest.approx(1.5)
    assert sum(node.node.memory_bytes for node in nodes) == pytest.approx(split_machine()[0].node.memory_bytes, abs=2)


@pytest.mark.parametrize("count", [0, 3])
def test_more_nodes_than_cores_are_refused_in_one_sentence(machine_of: Callable[[int], None], count: int) -> None:
    machine_of(2)
    with pytest.raises(UsageError, match=f"--nodes {count}: this machine has 2 cores for us; use 1 to 2 nodes"):
        split_machine(count)


def test_a_process_that_is_gone_cannot_be_held_and_that_is_said() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    node = LocalNode(Node("node-1", 1.0, 1), frozenset({min(OURS)}))
    with pytest.raises(ActuationError, match=f"node-1: process {process.pid} cannot be put on its cores"):
        node.hold(process.pid)
