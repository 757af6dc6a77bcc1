"""A newcomer's way: the README's commands, one after the other, on a training that knows nothing of Slopewise."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.cluster import Kubectl
from support.readme import kubectl_commands
from support.rendering import ROOT
from support.scene import Scene
from support.waiting import wait_for

INSTALL, POLICY, LABEL, CANARY, AUTO, *_ = kubectl_commands(ROOT / "README.md")


def _run(kubectl: Kubectl, command: list[str], namespace: str) -> str:
    """As it stands there, from the repository's folder, but for the name of the team."""
    words = [namespace if word == "my-team" else word for word in command[1:]]
    return kubectl.run(*(str(ROOT / word) if word.startswith("examples/") else word for word in words))


@pytest.fixture
def readme_policy(kubectl: Kubectl, scene: Scene) -> Iterator[None]:
    """The README's second command."""
    _run(kubectl, POLICY, scene.namespace)
    yield
    kubectl.run("delete", "-f", str(ROOT / POLICY[-1]), "--ignore-not-found", "--timeout=90s")


TRAININGS = {"digits-mlp": 30_000, "digits-lr-drop": 90_000, "digits-field": 40_000}
"""Steps: none ends before the test. They share one node, and do not learn alike."""

REQUEST = "100m"
"""Of each container: the weight that the README's policy changes."""


def test_the_readmes_commands_show_growth_then_move_cpu_and_give_it_back(
    scene: Scene, kubectl: Kubectl, readme_policy: None, two_nodes: tuple[str, str]
) -> None:
    unmanaged = (
        scene.training(name, steps, two_nodes[0], "1", cpu_request=REQUEST, labels={"app": "my-training"})
        for name, steps in TRAININGS.items()
    )
    scene.start(*unmanaged)
    assert INSTALL[1:3] == ["apply", "--server-side"]  # what the fixture `controller` has done
    assert scene.growths() == {}

    _run(kubectl, LABEL, scene.namespace)
    table = wait_for(
        "growth is shown",
        lambda: kubectl.run("get", "growth", "-n", scene.namespace),
        lambda shown: "Training" in shown and "→" in shown,
        180,
    )
    print(table)
    assert set(scene.requests().values()) == {REQUEST}

    _run(kubectl, CANARY, scene.namespace)
    _run(kubectl, AUTO, scene.namespace)
    wait_for("the shares have moved", scene.weights, lambda seen: len(set(seen.values())) > 1)
    assert set(scene.requests().values()) != {REQUEST}
    kubectl.run("delete", "-f", str(ROOT / POLICY[-1]), "--timeout=90s")
    assert set(scene.requests().values()) == {REQUEST}
