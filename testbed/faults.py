"""Faults for tests: stop, continue, kill, start and restart a component, or a whole node, of a test-bed that is up.

A node is its kubelet, its containerd and all of its containers: what is lost with a machine.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from slopewise.errors import UsageError
from testbed import cluster, leftovers, nodes
from testbed.processes import Processes
from testbed.settings import NODES, Node, Settings


class Faults:
    """Acts on the components of one test-bed by name: those of `names`. UsageError for any other name."""

    def __init__(self, settings: Settings) -> None:
        """UsageError from every method when no test-bed is up."""
        self._settings = settings

    def names(self) -> list[str]:
        """What can be named: every component, and every node."""
        return _names(cluster.running(self._settings))

    def stop(self, name: str) -> None:
        """Let it hang (SIGSTOP): its sockets stay open without answers."""
        self._signal(name, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Let it go on after `stop`, with all that came in meanwhile."""
        self._signal(name, signal.SIGCONT)

    def kill(self, name: str) -> None:
        """End it with SIGKILL, as a crash would; it stays away until `start`."""
        with self._alone() as processes:
            self._kill(name, processes)

    def start(self, name: str) -> None:
        """Start it again when it is dead, with the same arguments. A node's containerd comes first."""
        with self._alone() as processes:
            self._start(name, processes)

    def restart(self, name: str) -> None:
        """Kill it and start it again at once."""
        with self._alone() as processes:
            self._kill(name, processes)
            self._start(name, processes)

    @contextmanager
    def _alone(self) -> Iterator[Processes]:
        """What is known of the components, read after everybody else has written what they did."""
        with cluster.one_at_a_time(self._settings):
            yield cluster.running(self._settings)

    def _kill(self, name: str, processes: Processes) -> None:
        processes.end(_components(name, processes), at_once=True)
        if (node := _node(name)) is not None:
            leftovers.kill_strays(self._settings.cache_folder, self._settings.node_folder(node))
            leftovers.kill_containers(node)

    def _start(self, name: str, processes: Processes) -> None:
        node = _node(name)
        for component in _components(name, processes):
            known = processes.state.components[component]
            if known.life() == "dead":
                processes.start(known.program)
            if node is not None and component == nodes.containerd_name(node):
                cluster.wait_for_socket(self._settings, node, processes)

    def _signal(self, name: str, number: int) -> None:
        processes = cluster.running(self._settings)
        for component in _components(name, processes):
            processes.signal(component, number)
        if (node := _node(name)) is not None:
            leftovers.signal_containers(node, number)


def _names(processes: Processes) -> list[str]:
    return [*processes.state.components, *(node.name for node in NODES)]


def _components(name: str, processes: Processes) -> Sequence[str]:
    """The components that a name means, in the order in which they are started."""
    if (node := _node(name)) is not None:
        return (nodes.containerd_name(node), nodes.kubelet_name(node))
    if name not in processes.state.components:
        raise UsageError(f"{name!r} is no component of the test-bed; choose one of {', '.join(_names(processes))}.")
    return (name,)


def _node(name: str) -> Node | None:
    return next((node for node in NODES if node.name == name), None)
