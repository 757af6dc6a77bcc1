"""A stage on which trainings are moved: a controller with the policy `shift`, movable trainings, what becomes of them.

`tests/cluster/faults/conftest.py` hands it out. Trainings begin on node-b, which they like; most tests wish them to
node-a.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.cluster import Kubectl
from support.controller_process import ControllerProcess
from support.fault_stage import Stage
from support.gateway import Gateway, Request
from support.movable import MovableTrainings
from support.waiting import wait_for

from slopewise.adapters.kube.cache.records import API_VERSION, MOVE
from slopewise.adapters.kube.moves.node_predicates import is_pinned_to

HERE, THERE = "node-b", "node-a"
REAL_NODES = {"matchExpressions": [{"key": "slopewise.dev/testbed-cpus", "operator": "Exists"}]}
"""And none that kwok simulates."""

UNBOUNDED = {"enabled": True, "maxPerNodePerHour": 100, "maxConcurrent": 100, "minStaySeconds": 0}

Json = dict[str, Any]


@dataclass
class MovingStage:
    """What a test of moves has in its hands."""

    stage: Stage
    trainings: MovableTrainings

    # --- controllers -----------------------------------------------------------------------------------------

    def policy_file(self, *, to: str = THERE, place: str = "", at_once: int = 100) -> Path:
        """Written for this test's namespace, and for as many moves as there may be, `at_once` at the same time."""
        here = {"matchLabels": {"kubernetes.io/metadata.name": self.stage.namespace}}
        spec = {
            "mode": "Auto",
            "selector": {"namespaces": here, "nodes": REAL_NODES},
            "policy": {"name": "shift", "parameters": {"to": to, "place": place}},
            "behaviour": {"intervalSeconds": 4},
            "migration": {**UNBOUNDED, "maxConcurrent": at_once},
        }
        name = self.stage.name("shift")
        document = {"apiVersion": API_VERSION, "kind": "TrainingPolicy", "metadata": {"name": name}, "spec": spec}
        path = self.stage.folder / f"policy-{to or 'elsewhere'}-{at_once}.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        return path

    def controller(self, gateway: Gateway | None = None, *, leading: bool = True, **wish: Any) -> ControllerProcess:
        """Start a replica that wants this (`policy_file`)."""
        return self.stage.controller(gateway, leading=leading, policy_file=self.policy_file(**wish))

    # --- what is seen ----------------------------------------------------------------------------------------

    def job(self, name: str) -> Json:
        return dict(self.stage.kubectl.get("job", name, "-n", self.stage.namespace))

    def is_suspended(self, name: str) -> bool:
        return bool(self.job(name)["spec"].get("suspend"))

    def move_of(self, name: str) -> Json | None:
        """The annotation in which a Job's move is kept."""
        text = self.job(name)["metadata"].get("annotations", {}).get(MOVE)
        return None if text is None else dict(json.loads(text))

    def wait_until_pinned(self, name: str, node: str = THERE) -> None:
        """Wait until the move of a Job is over, and it is on this node."""
        step = wait_for(
            f"the move of {name} is over", lambda: self.move_of(name) or {}, lambda move: move.get("step") == "pinned"
        )
        assert step["toNode"] == node
        assert is_pinned_to(self.job(name)["spec"]["template"]["spec"].get("affinity"), node)

    def wait_until_free(self, name: str) -> None:
        """Wait until nothing of a move is left on a Job: no suspension, no annotation, no pin."""
        wait_for(f"{name} is free", lambda: self.move_of(name), lambda move: move is None)
        assert not self.is_suspended(name)
        affinity = self.job(name)["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
        assert affinity.keys() == {"preferredDuringSchedulingIgnoredDuringExecution"}

    def wait_moved(self, name: str, node: str = THERE) -> None:
        """Wait until a training goes on there, and check that it lost no step."""
        before = self.trainings.wait_for_life(name, 1, node)
        assert before > 0
        self.trainings.wait_for_steps(name)
        self.trainings.diary(name).check()

    def check_unmoved(self, *names: str) -> None:
        """They have had one life, here."""
        assert {name: self.trainings.diary(name).lives for name in names} == {name: [(HERE, 0)] for name in names}

    def reported(self, controller: ControllerProcess, name: str) -> str:
        """All that the controller has said of a training so far: in its log, and in events."""
        whole = f"{self.stage.namespace}/{name}"
        found = [line for each in controller.lines("pass completed") for line in each["moves"]]
        for event in ("move advanced", "move interrupted"):
            found += [f"{each['job']} {each['reason']}" for each in controller.lines(event)]
        found += [f"{self.stage.namespace}/{about} {note}" for about, note in self._events()]
        return "\n".join(dict.fromkeys(line for line in found if whole in line))

    def wait_reported(self, controller: ControllerProcess, name: str, *words: str) -> None:
        """Wait until the controller has said these words of a training, or others of these."""
        wait_for(
            f"why {name} stays",
            lambda: self.reported(controller, name),
            lambda lines: any(each in lines for each in words),
        )

    def events(self, name: str, reason: str) -> list[str]:
        """The notes of the events of this reason about an object."""
        beginning = f"{reason} "
        return [
            said.removeprefix(beginning)
            for about, said in self._events()
            if about == name and said.startswith(beginning)
        ]

    def _events(self) -> list[tuple[str, str]]:
        found = self.stage.kubectl.get("events.v1.events.k8s.io", "-n", self.stage.namespace)["items"]
        return [(each["regarding"]["name"], f"{each['reason']} {each.get('note', '')}") for each in found]

    def pod_on(self, name: str, node: str) -> Json | None:
        """The live pod of a Job there."""
        return next((pod for pod in self.trainings.live_pods(name) if pod["spec"].get("nodeName") == node), None)

    def pods_of(self, selector: str) -> list[Json]:
        """The pods with this label."""
        return list(self.stage.kubectl.get("pods", "-n", self.stage.namespace, "-l", selector)["items"])


def owned(moves: MovingStage, job: Json) -> Json:
    """The same Job under a controller of its own, as a JobSet or a TrainJob is one: it may not be suspended."""
    return owned_by(moves.stage.kubectl, moves.stage.namespace)(job)


def owned_by(kubectl: Kubectl, namespace: str) -> Callable[[Json], Json]:
    """Puts Jobs of the namespace under one controller, which does nothing."""
    kubectl.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}, namespace=namespace)
    uid = kubectl.get("configmap", "owner", "-n", namespace)["metadata"]["uid"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "controller": True}

    def with_owner(job: Json) -> Json:
        job["metadata"]["ownerReferences"] = [reference]
        return job

    return with_owner


def suspends(request: Request) -> bool:
    """The write that begins a move the suspend way."""
    return request.kind == "patch jobs" and bool(_spec(request).get("suspend"))


def resumes(request: Request) -> bool:
    """The write that starts a Job again."""
    return request.kind == "patch jobs" and _spec(request).get("suspend") is False


def evicts(request: Request) -> bool:
    """A real eviction, and no question whether it would be granted."""
    return request.kind == "create pods/eviction" and "dryRun" not in f"{request.query} {request.body}"


def _spec(request: Request) -> Json:
    return dict((request.body or {}).get("spec") or {})


class Once:
    """A gateway's hook that does something at the first request of a kind."""

    def __init__(self, when: Callable[[Request], bool], then: Callable[[], object]) -> None:
        self._when, self._then = when, then
        self.done = False

    def __call__(self, request: Request, *_: object) -> None:
        if not self.done and self._when(request):
            self.done = True
            self._then()


@contextmanager
def tainted(stage: Stage, node: str) -> Iterator[None]:
    """Nothing new is scheduled there meanwhile."""
    taint = f"slopewise.dev/test-{stage.namespace[-8:]}=true:NoSchedule"
    stage.kubectl.run("taint", "node", node, taint)
    try:
        yield
    finally:
        stage.kubectl.run("taint", "node", node, f"{taint}-")
