"""A newcomer's way: the README's commands, one after the other, on a training that knows nothing of Slopewise."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.cluster import Kubectl
from support.readme import cluster_commands
from support.rendering import ROOT
from support.scene import Scene, limit_millicores, quota_microseconds
from support.waiting import wait_for

pytestmark = pytest.mark.timeout(600)

INSTALL, POLICY, LABEL, CANARY, AUTO, *_ = cluster_commands()


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


def test_the_readmes_commands_show_growth_then_move_cpu_and_give_it_back(
    scene: Scene, kubectl: Kubectl, readme_policy: None, two_nodes: tuple[str, str]
) -> None:
    unmanaged = scene.training("digits-field", 20_000, two_nodes[0], "400m", labels={"app": "my-training"})
    scene.start(unmanaged)
    assert INSTALL[1:3] == ["apply", "--server-side"]  # what the fixture `controller` has done
    assert scene.growths() == {}

    _run(kubectl, LABEL, scene.namespace)
    table = wait_for(
        "growth is shown",
        lambda: kubectl.run("get", "growth", "-n", scene.namespace),
        lambda shown: "Training" in shown and "→" in shown,
        60,
    )
    print(table)
    assert limit_millicores(scene.pods()["digits-field"]) == 400

    _run(kubectl, CANARY, scene.namespace)
    _run(kubectl, AUTO, scene.namespace)
    wait_for(
        "the cgroup has more",
        lambda: scene.quotas_microseconds(scene.pods()),
        lambda seen: (seen["digits-field"] or 0) > quota_microseconds(400),
        90,
    )
    kubectl.run("delete", "-f", str(ROOT / POLICY[-1]), "--timeout=90s")
    assert limit_millicores(scene.pods()["digits-field"]) == 400
