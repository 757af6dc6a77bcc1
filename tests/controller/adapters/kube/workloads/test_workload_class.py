"""Which pods are of one workload class: the same program in one namespace, whatever the run is called."""

from __future__ import annotations

from typing import Any

import pytest
from support.gated_pods import GATE
from support.managed_pods import a_raw_pod

from slopewise.adapters.kube.cache.parsing import parse_pod
from slopewise.adapters.kube.cache.records import OwnerRef
from slopewise.adapters.kube.moves.absences import arrivals
from slopewise.adapters.kube.workloads.job_facts import facts_of
from slopewise.adapters.kube.workloads.owners import Identity
from slopewise.config.training_policy import TrainingPolicySpec


def class_of(run: str = "train-1", *, kind: str = "Job", namespace: str = "team-a", **container: Any) -> str:
    """The class of a pod of the run, as a job and as an arrival, which must be the same."""
    raw = a_raw_pod()
    annotations = {"slopewise.dev/class": container.pop("stated")} if "stated" in container else {}
    owner = {"apiVersion": "batch/v1", "kind": kind, "name": run, "uid": f"uid-of-{run}", "controller": True}
    raw["metadata"] |= {
        "name": f"{run}-x7k2p",
        "namespace": namespace,
        "uid": f"pod-of-{run}",
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "annotations": annotations,
        "ownerReferences": [owner],
    }
    raw["spec"]["containers"][0] |= {"image": "trainer:1", "command": ["python", "train.py"], **container}
    identity = Identity(OwnerRef("batch/v1", kind, run, f"uid-of-{run}"), "0")
    pod = parse_pod(raw)
    as_job = facts_of(identity, pod, None, None, TrainingPolicySpec()).workload_class
    raw["spec"]["schedulingGates"] = [GATE]
    waiting = {identity.job_uid: (identity, parse_pod(raw))}
    (arrival,) = arrivals(waiting, TrainingPolicySpec(), 0.0, lambda _: {})
    assert arrival.workload_class == as_job
    return as_job


def test_every_run_of_one_program_is_of_one_class() -> None:
    assert class_of("train-1") == class_of("train-20261123-8f2")
    assert class_of().startswith("team-a/#")
    runs = [class_of(run, args=["--run", run, f"--log=/logs/{run}.txt", f"{run}-x7k2p"]) for run in ("a", "b-7")]
    assert runs[0] == runs[1], "the name of the run in the command makes no other class"
    assert class_of("a-a", args=["aa-a-a"]) == class_of("b-7", args=["aa-b-7"]), "also within a part of another word"


@pytest.mark.parametrize(
    "other",
    [
        {"image": "trainer:2"},
        {"command": ["python", "other.py"]},
        {"args": ["--layers", "50"]},
        {"command": ["python"], "args": ["train.py"]},
        {"kind": "JobSet"},
        {"namespace": "team-b"},
    ],
)
def test_another_program_kind_or_namespace_is_another_class(other: dict[str, Any]) -> None:
    assert class_of(**other) != class_of()


def test_a_class_that_is_stated_counts_in_its_namespace() -> None:
    assert class_of(stated="resnet-50", image="trainer:1") == class_of(stated="resnet-50", image="trainer:2")
    assert class_of(stated="resnet-50") == "team-a/resnet-50"
    assert class_of(stated="resnet/50") == class_of(), "one that is unusable is as if it were not stated"
    assert class_of(image="") == "", "without an image nothing is known"
