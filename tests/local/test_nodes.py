"""This machine as two nodes, really: who starts where, and on which cores."""

from __future__ import annotations

import os

import psutil
import pytest
from local.conftest import a_policy, running, tiny
from support.waiting import eventually

from slopewise.local.session import Session
from slopewise.local.workshop import Workshop

pytestmark = [
    pytest.mark.processes,
    pytest.mark.usefixtures("nothing_left"),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two nodes need two cores"),
]


def nodes(session: Session) -> dict[str, str]:
    return {job.name: job.node for job in session.supervisor.running()}


def affinity(session: Session, name: str) -> set[frozenset[int]]:
    """The cores of the job's process and of all that it has started."""
    process = session.supervisor.records[name].process
    assert process is not None
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    return {frozenset(each.cpu_affinity() or ()) for each in family}


def test_a_policy_places_each_arrival_and_its_processes_stay_on_their_nodes_cores(workshop: Workshop) -> None:
    jobs = [tiny("a", 60), tiny("b", 60), tiny("c", 60, arrive=1)]
    with running(workshop, a_policy("flowcon2"), *jobs, nodes=2) as session:
        assert eventually(lambda: len(nodes(session)) == 3)
        cores = {node.name: {node.cpus} for node in session.nodes}
        assert sorted(nodes(session).values()) in (["node-1", "node-1", "node-2"], ["node-1", "node-2", "node-2"])
        for name, node in nodes(session).items():
            assert affinity(session, name) == cores[node]
        placed = {
            each.decision.job_uid: each.decision.node
            for report in session.all_reports()
            for each in report.results.outcomes
        }
        assert placed == nodes(session)
        assert eventually(lambda: len(newest_snapshot_nodes(session)) == 3)
        assert newest_snapshot_nodes(session) == nodes(session)


def newest_snapshot_nodes(session: Session) -> dict[str, str]:
    snapshots = [report.snapshot for report in session.all_reports() if report.snapshot is not None]
    return {job.name: job.node for job in snapshots[-1].jobs} if snapshots else {}
