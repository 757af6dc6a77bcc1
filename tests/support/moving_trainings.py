"""Built-in trainings of a scene that may be moved between its nodes, and where they are afterwards."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from support.movable import on_volume
from support.scene import Json, Scene
from support.waiting import wait_for

from slopewise.adapters.kube.cache.records import MIGRATABLE


def start_movable(scene: Scene, steps_on: Mapping[str, Mapping[str, int]], **shape: Any) -> None:
    """Start trainings by the node that each likes, the steps of each by its name; returns when they run."""
    on_nodes = ((node, *each) for node, trainings in steps_on.items() for each in trainings.items())
    scene.start(*(_movable(scene, name, steps, node, shape) for node, name, steps in on_nodes))


def _movable(scene: Scene, name: str, steps: int, likes: str, shape: Mapping[str, Any]) -> Json:
    """A built-in training that saves on the shared volume and says that it may be moved."""
    job = scene.training(name, steps, None, "1", annotations={MIGRATABLE: "true"}, termination_seconds=30, **shape)
    return on_volume(job, likes, {"name": "SLOPEWISE_CHECKPOINT_FOLDER", "value": f"/shared/{name}"})


def pod_names(pods: Mapping[str, Json]) -> dict[str, str]:
    """The names of pods, by the name of the training."""
    return {name: pod["metadata"]["name"] for name, pod in pods.items()}


def nodes_of(pods: Mapping[str, Json]) -> dict[str, str]:
    """Where pods run, by the name of the training."""
    return {name: pod["spec"]["nodeName"] for name, pod in pods.items()}


def moved_to(scene: Scene, node: str, trainings: Collection[str]) -> dict[str, str]:
    """The names of the pods of those of the trainings that run on this node, by the name of the training."""
    running = scene.running()
    there = {name for name, on in nodes_of(running).items() if name in trainings and on == node}
    return {name: pod for name, pod in pod_names(running).items() if name in there}


def check_unbroken_steps(scene: Scene, old_pod: str, new_pod: str) -> None:
    """The new pod's counter begins where the old one's ended: nothing lost, nothing done twice."""

    def steps(which: str, pod: str) -> dict[str, float]:
        of = f'training_steps_total{{namespace="{scene.namespace}",pod="{pod}"}}'
        return scene.query(f"{which}_over_time(({of} > 0)[10m:1s])")

    first = wait_for("its steps are scraped again", lambda: steps("min", new_pod), bool)
    assert first[new_pod] >= steps("max", old_pod)[old_pod] > 0
