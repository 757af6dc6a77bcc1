"""Scenarios of the simulator in one line each, validated as a file is."""

from __future__ import annotations

from typing import Any

from slopewise.config.validation import validate
from slopewise.simulator.scenario.scenario import Scenario


def a_scenario(name: str = "test", **spec: Any) -> Scenario:
    """One node of one core, where the keys of the spec do not say another."""
    document = {
        "apiVersion": "slopewise.dev/v1alpha1",
        "kind": "Scenario",
        "metadata": {"name": name},
        "spec": {"nodes": [{"name": "n1", "cpu": 1}], **spec},
    }
    return validate(Scenario, document, where="scenario.yaml")
