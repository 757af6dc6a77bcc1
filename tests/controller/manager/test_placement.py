"""One TrainingPolicy with two policies on a cluster: both are obeyed, and what each decided is stored apart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.own_policy import a_file, deciding
from support.replicas import GROWTHS, Town, wait_for

LABELS_AND_HALVES = """\
marked = lambda known: known.with_decided(job_class="cpu's", marks=known.decided.marks | {"of-cpu"})
        jobs = {uid: marked(known) for uid, known in memory.jobs.items()}
        resizes = tuple(
            Resize(job.uid, job.node, "limits", has, 500, "half a core for everybody")
            for job in snapshot.jobs
            if not job.state.ended and (has := job.allocation.limit_millicores) not in (None, 500)
        )
        return replace(fair, resizes=resizes, memory=MemoryState(jobs, fair.memory.nodes))"""

LABELS_ALONE = """\
marked = lambda known: known.with_decided(job_class="nodes'", marks=known.decided.marks | {"of-nodes"})
        jobs = {uid: marked(known) for uid, known in memory.jobs.items()}
        return replace(fair, memory=MemoryState(jobs, fair.memory.nodes))"""


@pytest.fixture
def town(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Town]:
    monkeypatch.setenv("SLOPEWISE_POLICIES", str(tmp_path))
    a_file(tmp_path, deciding(LABELS_AND_HALVES), name="halves")
    a_file(tmp_path, deciding(LABELS_ALONE) + 'ACTIONS = ("place",)\n', name="places")
    with Town() as town:
        town.pod()
        yield town


def obey(town: Town, **policies: Any) -> None:
    town.policy(behaviour={"intervalSeconds": 2, "cooldownSeconds": 0, "maxStepRatio": 100}, **policies)


def stored_memory(town: Town) -> dict[str, Any]:
    (pod,) = town.found(f"{GROWTHS}/a")["status"].get("pods", [{}])
    memory: dict[str, Any] = json.loads(pod.get("memory") or "{}")
    return memory


def test_both_are_obeyed_and_what_each_decided_is_stored_apart(town: Town) -> None:
    obey(town, policy={"name": "halves"}, placement={"name": "places", "intervalSeconds": 4})
    with town.replica() as replica:
        wait_for(lambda: town.limit() == "500m", "the first one's resize is carried out", town)
        wait_for(lambda: "placement" in stored_memory(town), "the second one's memory is stored", town)
        memory = stored_memory(town)
        assert (memory["decided"]["job_class"], memory["decided"]["marks"]) == ("cpu's", ["of-cpu"])
        assert memory["placement"] == {"job_class": "nodes'", "marks": ["of-nodes"]}
        assert replica.get("/healthz").status_code == 200
    assert {line["policy"] for line in town.lines("pass completed")} == {"halves+places"}
