"""Three ways in beside one another: two lines in the script, a variable, a sidecar; each is managed to its end."""

from __future__ import annotations

from typing import Any

from support.scene import METRICS_PORT, Scene
from support.waiting import wait_for

EPOCHS = 700
"""Some 45 CPU-seconds: each goes 20 times over 1,200 pictures."""

TRAINS = """
import sys
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss

pictures, digits = load_digits(return_X_y=True)
model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=2e-6, random_state=1)
epochs = int(sys.argv[1])
for epoch in range(1, epochs + 1):
    for _ in range(20):
        model.partial_fit(pictures[:1200], digits[:1200], classes=range(10))
    loss = log_loss(digits[1200:], model.predict_proba(pictures[1200:]))
"""
SILENT = (
    TRAINS.replace("import sys\n", "import sys\nfrom slopewise_exporter import Reporter\n").replace(
        "for epoch in", "reporter = Reporter(planned_steps=epochs)\nfor epoch in"
    )
    + "    reporter.step(loss=loss)\nreporter.close()\n"
)
PRINTING = TRAINS + '    print(f"epoch {epoch}/{epochs} loss={loss:.5f}", flush=True)\n'
SCRIPTS = {"reporter": SILENT, "no-code": PRINTING, "sidecar": PRINTING}

FLOWCON: dict[str, Any] = {
    "policy": {"name": "flowcon"},
    "resources": {"control": "limits", "cpu": {"min": "100m"}},
    "behaviour": {"intervalSeconds": 20, "cooldownSeconds": 0},
}


def job(scene: Scene, name: str, node: str) -> dict[str, Any]:
    """A Job whose script is in a ConfigMap; each has the least that its way in asks for."""
    made = scene.training("digits-mlp", 1, node, "500m")
    made["metadata"]["name"] = name
    pod = made["spec"]["template"]["spec"]
    (trainer,) = pod["containers"]
    trainer["command"] = ["python3", f"/scripts/{name}.py", str(EPOCHS)]
    trainer["volumeMounts"] = [{"name": "scripts", "mountPath": "/scripts"}]
    pod["volumes"] = [{"name": "scripts", "configMap": {"name": "scripts"}}]
    pod["terminationGracePeriodSeconds"] = 10
    if name == "no-code":
        trainer["env"] = [{"name": "SLOPEWISE_EXPORTER", "value": "1"}]
    if name == "sidecar":
        trainer["command"] = ["sh", "-c", f"exec {' '.join(trainer['command'])} >>/logs/train.log 2>&1"]
        trainer["volumeMounts"].append({"name": "logs", "mountPath": "/logs"})
        reporter = {
            "name": "reporter",
            "image": trainer["image"],
            "imagePullPolicy": "IfNotPresent",
            "restartPolicy": "Always",
            "command": ["slopewise-exporter", "tail", "/logs/train.log", "--state", "/logs/.reporter", "--echo"],
            "ports": [{"name": "metrics", "containerPort": METRICS_PORT}],
            "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "64Mi"}},
            "volumeMounts": [{"name": "logs", "mountPath": "/logs"}],
        }
        del trainer["ports"]
        pod["initContainers"] = [reporter]
        pod["volumes"].append({"name": "logs", "emptyDir": {}})
    return made


def test_each_way_in_is_scraped_seen_in_growth_and_managed_to_the_end(scene: Scene, two_nodes: tuple[str, str]) -> None:
    large, small = two_nodes
    files = {f"{name}.py": script for name, script in SCRIPTS.items()}
    scripts = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "scripts"}, "data": files}
    scene.kubectl.apply(scripts, namespace=scene.namespace)
    scene.obey("Auto", **FLOWCON)
    scene.start(*(job(scene, name, small if name == "reporter" else large) for name in SCRIPTS))
    scene.wait_ready("ModeAuto")

    def reported() -> dict[str, tuple[object, ...]]:
        statuses = {name: growth.get("status", {}) for name, growth in scene.growths().items()}
        return {name: (one.get("loss"), one.get("progressRatio"), one.get("state")) for name, one in statuses.items()}

    def all_are(seen: dict[str, tuple[object, ...]]) -> bool:
        return set(seen) == set(SCRIPTS) and all(
            loss and progress and state == "Training" for loss, progress, state in seen.values()
        )

    wait_for("each way in shows its loss and its progress", reported, all_are)
    pods = {pod["metadata"]["name"]: name for name, pod in scene.pods().items()}
    planned = {
        pods[pod]: plan for pod, plan in scene.query(f'training_steps_planned{{pod=~"{"|".join(pods)}"}}').items()
    }
    assert planned == dict.fromkeys(SCRIPTS, EPOCHS), "also where only the output says so"

    ended = scene.wait_complete(600)
    resized = {name for name, growth in scene.growths().items() if growth["status"].get("lastAction")}
    assert resized == set(SCRIPTS), "FlowCon gives each another limit"
    restarts = {
        name: sum(one["restartCount"] for one in pod["status"]["containerStatuses"]) for name, pod in ended.items()
    }
    assert restarts == dict.fromkeys(SCRIPTS, 0)
    wait_for(
        "each is shown as finished", reported, lambda seen: {state for *_, state in seen.values()} == {"Finished"}, 60
    )
