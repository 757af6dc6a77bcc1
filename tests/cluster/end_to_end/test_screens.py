"""The command line beside an installed controller: a training that runs, and a pod that reports nothing.

`slopewise doctor` finds nothing wrong but the silent pod; `top`, `history` and `status` show the training as it is.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from support.scene import Scene
from support.waiting import wait_for

pytestmark = pytest.mark.faults

TRAINING, SILENT = "digits-deep-sigmoid", "silent"
FLOWCON: dict[str, Any] = {
    "policy": {"name": "flowcon"},
    "resources": {"control": "limits", "cpu": {"min": "100m"}},
    "behaviour": {"intervalSeconds": 20, "cooldownSeconds": 10},
}
SCRAPE_SECONDS = "5"


def test_the_commands_answer_beside_an_installed_controller(scene: Scene, two_nodes: tuple[str, str]) -> None:
    node, _ = two_nodes
    scene.obey("Auto", **FLOWCON)
    silent = replace(scene.shape, node=node, cpu_request="20m", cpu_limit="200m").job(SILENT)
    scene.start(scene.training(TRAINING, 40_000, node, "400m"), silent)
    scene.wait_ready("ModeAuto")

    found = wait_for("doctor finds the silent pod", lambda: _doctor(scene), _names_the_silent_one, 600)

    print(json.dumps(found, indent=1))
    verdicts = {check: {each["verdict"] for each in found if each["check"] == check} for check in CHECKS}
    assert verdicts == {check: {"ok", "failed"} if check == "series" else {"ok"} for check in CHECKS}, found
    _the_controllers_own_pod_answers_too(scene)
    _top_shows_both(scene)
    _history_is_for_a_notebook(scene)


CHECKS = (
    "API server", "resize", "clocks", "policies", "leader", "rights", "kubelets", "pods", "Prometheus", "targets",
    "series",
)  # fmt: skip


def _slopewise(scene: Scene, command: str, *options: str) -> subprocess.CompletedProcess[str]:
    reach = ("--kubeconfig", str(scene.kubectl.kubeconfig))
    words = [sys.executable, "-m", "slopewise", command, *reach, *options]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)


def _doctor(scene: Scene) -> list[dict[str, str]]:
    prometheus = ("--prometheus", scene.prometheus_url, "--scrape-interval", SCRAPE_SECONDS)
    done = _slopewise(scene, "doctor", *prometheus, "-o", "json")
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: list[dict[str, str]] = json.loads(done.stdout)
    return found


def _names_the_silent_one(found: list[dict[str, str]]) -> bool:
    """After a minute, which a pod may take to start; by then the training reports."""
    series = [each for each in found if each["check"] == "series"]
    named = any(each["verdict"] == "failed" and f"/{SILENT}:" in each["text"] for each in series)
    return named and any(each["verdict"] == "ok" and "report a loss" in each["text"] for each in series)


def _the_controllers_own_pod_answers_too(scene: Scene) -> None:
    """With the rights of its account, which are all that it needs."""
    where = ("-n", "slopewise-system", "deployment/slopewise-controller")
    done = scene.kubectl.attempt("exec", *where, "--", "slopewise", "doctor", "-o", "json")
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout)
    (rights,) = (each for each in found if each["check"] == "rights")
    assert rights["verdict"] == "ok"
    assert rights["text"].startswith("your own account has all ")


def _top_shows_both(scene: Scene) -> None:
    only = ("--namespace", scene.namespace, "--lease-namespace", "slopewise-system")
    table = _slopewise(scene, "top", *only)
    assert table.returncode == 0, table.stderr
    print(table.stdout)
    rows = {each["name"]: each for each in json.loads(_slopewise(scene, "top", *only, "-o", "json").stdout)["jobs"]}
    assert set(rows) == {f"{scene.namespace}/{TRAINING}", f"{scene.namespace}/{SILENT}"}
    assert rows[f"{scene.namespace}/{TRAINING}"]["loss"] is not None
    silent = rows[f"{scene.namespace}/{SILENT}"]
    # `doctor` names it after a minute, a pass after three: a pod may take that long to report.
    assert (silent["loss"], silent["state"] in ("starting", "no loss")) == (None, True), silent


def _history_is_for_a_notebook(scene: Scene) -> None:
    def rows() -> list[dict[str, str]]:
        done = _slopewise(scene, "history", "--namespace", scene.namespace, "-o", "csv")
        assert done.returncode == 0, done.stderr
        return list(csv.DictReader(io.StringIO(done.stdout)))

    found = wait_for(
        "the training was resized", rows, lambda rows: any(row["result"] == "applied" for row in rows), 120
    )
    assert {row["namespace"] for row in found} == {scene.namespace}
