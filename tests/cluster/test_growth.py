"""Memory, status and events on a real API server: what `kubectl get growth` shows, and what a restart finds again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import pytest
from msgspec import structs
from support.cluster import Kubectl, PodShape
from support.waiting import eventually, wait_for
from support.worlds import a_job, a_node, a_snapshot, known

from slopewise.adapters.kube.cache.parsing import parse_pod
from slopewise.adapters.kube.cache.records import ManagedPod, OwnerRef
from slopewise.adapters.kube.cache.reflector import Reflector
from slopewise.adapters.kube.client.client import KubeApi
from slopewise.adapters.kube.events import EventRecorder
from slopewise.adapters.kube.reporting.pass_reporter import StatusReporter
from slopewise.adapters.kube.state.job_growth_object import GrowthRecord, growth_path, parse_growth
from slopewise.adapters.kube.state.job_growth_store import JobGrowthStore
from slopewise.adapters.kube.state.job_memory import KubeMemory
from slopewise.adapters.kube.state.status_writer import StatusSender, StatusWriter
from slopewise.config.training_policy import TrainingPolicySpec
from slopewise.crds.schema.definitions import definitions
from slopewise.model import Decisions, Job, MemoryState, Outcome, Pace, PassReport, Resize, Results

COLUMNS = ["NAME", "STATE", "PROGRESS", "ETA", "CPU", "PROMISE", "REASON", "AGE"]
WIDE = ["CLASS", "LOSS", "GROWTH", "STUDY", "CHANCE", "MEMORY", "POLICY", "LAST", "ACTION", "NODE"]
NAMED = "jobgrowth.slopewise.dev/train"
NOW = 1_800_000_000.0


@pytest.fixture(scope="module", autouse=True)
def applied(kubectl: Kubectl) -> None:
    kubectl.apply(*definitions().values())
    wait_for("the kinds are served", lambda: kubectl.attempt("get", "growth,tp", "-A"), lambda it: it.returncode == 0)


@pytest.fixture
def api(kubeconfig: Path) -> KubeApi:
    return KubeApi.connect(kubeconfig=str(kubeconfig))


@dataclass
class OnePod:
    """A index that knows one pod."""

    managed: ManagedPod

    def find(self, job_uid: str) -> ManagedPod | None:
        return self.managed if job_uid == self.managed.job_uid else None


@pytest.fixture
def train(kubectl: Kubectl, namespace: str, idle: PodShape) -> OnePod:
    """The pod of a Job that runs in the namespace."""
    kubectl.apply(replace(idle, cpu_limit="500m").job("train"), namespace=namespace)
    job = kubectl.get("job", "train", "-n", namespace)
    find = ("pods", "-n", namespace, "-l", "job-name=train")
    pods = wait_for("the pod is there", lambda: kubectl.get(*find)["items"], bool)
    kubectl.wait_running(namespace, pods[0]["metadata"]["name"])
    pod = parse_pod(kubectl.get(*find)["items"][0])
    owner = OwnerRef("batch/v1", "Job", "train", job["metadata"]["uid"])
    return OnePod(ManagedPod(f"{owner.uid}:0", owner, "0", pod, pod.containers[0]))


class Controller:
    """What a controller has of a policy, without its passes."""

    def __init__(self, api: KubeApi, index: OnePod) -> None:
        self.api, self.index = api, index
        # Of this namespace: the one of the test before may not be gone yet, and its growth is of a policy of this name.
        namespace = index.managed.pod.namespace
        self.watch: Reflector[GrowthRecord] = Reflector(api, growth_path(namespace), parse_growth)
        sender = StatusSender(api)
        self.writer = StatusWriter(sender.send)
        self.events = EventRecorder(api, instance="test")
        self.job_growths = JobGrowthStore(self.watch, sender, self.writer)
        self.memory = KubeMemory("training", self.job_growths, index)
        spec = TrainingPolicySpec.model_validate({"mode": "Auto", "resources": {"control": "limits"}})
        self.reporter = StatusReporter("training", spec, self.job_growths, index, self.events)

    def __enter__(self) -> Self:
        self.watch.start()
        assert eventually(lambda: self.watch.synced)
        self.writer.start()
        self.events.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.events.stop()
        self.writer.stop()
        self.watch.stop()

    def a_pass(self, state: MemoryState, at: float = NOW, **more: Any) -> None:
        """One pass over the one job."""
        self.memory.load()
        self.memory.save(state)
        job = self._job(at)
        decisions = Decisions("flowcon", (), {job.uid: "grows slowly"}, state)
        snapshot = a_snapshot([job], [a_node(job.node, 2.0)], at)
        self.reporter(PassReport(at, "flowcon", {}, at, snapshot=snapshot, decisions=decisions, **more))

    def _job(self, at: float) -> Job:
        managed = self.index.managed
        job = a_job(managed.job_uid, node=managed.pod.node or "", at=at, level=0.4321)
        study = job.objectives.in_study("digits")
        cpu = managed.container.desired
        return job.altered(allocation=cpu, steps_total=400.0, steps_planned=1000.0, objectives=study)


@pytest.fixture
def controller(api: KubeApi, train: OnePod) -> Iterator[Controller]:
    with Controller(api, train) as running:
        yield running


def remembered(train: OnePod) -> MemoryState:
    desired = train.managed.container.desired
    memory = known(job_class="NL", efficiency=0.0123, original=desired, paces=(Pace(NOW, 0.5, 1.0),))
    return MemoryState({train.managed.job_uid: memory})


def test_what_kubectl_get_growth_prints(
    kubectl: Kubectl, namespace: str, controller: Controller, train: OnePod
) -> None:
    node = train.managed.pod.node or ""
    resize = Resize(train.managed.job_uid, node, "limits", 500, 250, "class NL")
    controller.a_pass(remembered(train), results=Results((Outcome(resize, "deferred", "no room on the node"),)))
    look = ("get", "growth", "-n", namespace)
    wait_for("the status is written", lambda: kubectl.run(*look), lambda text: "Training" in text)
    head, row = kubectl.run(*look, "-o", "wide").splitlines()
    assert head.split() == COLUMNS + WIDE
    for text in (
        "train",
        "40%",
        "5m00s",
        "0.5 → 0.25",
        "deferred: no room on the node",
        "NL",
        "0.4321",
        "0.0123",
        "digits",
        node,
    ):
        assert text in row
    assert "limits 500m to 250m deferred" in row
    assert kubectl.run(*look, "-o", "name", "--field-selector", "status.study=digits").split() == [NAMED]
    assert kubectl.run(*look, "-o", "name", "--field-selector", "status.study=other").split() == []
    described = wait_for(
        "the event is there",
        lambda: kubectl.run("describe", "pod", train.managed.pod.name, "-n", namespace),
        lambda text: "ResizeDeferred" in text,
    )
    assert "CPU limits 500m to 250m: no room on the node" in described


def test_a_growth_goes_with_its_workload(
    kubectl: Kubectl, namespace: str, controller: Controller, train: OnePod
) -> None:
    controller.a_pass(remembered(train))
    assert kubectl.get("growth", "train", "-n", namespace)["status"]["pods"][0]["original"] == {
        "cpuLimit": "500m",
        "cpuRequest": "250m",
    }
    kubectl.run("delete", "job", "train", "-n", namespace)
    kubectl.wait_gone("growth", "train", namespace)
    controller.index.managed = structs.replace(train.managed, job_uid="gone")
    wait_for("it is forgotten", controller.memory.load, lambda state: not state.jobs)
