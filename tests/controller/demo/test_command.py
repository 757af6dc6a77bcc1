"""Which documents a demo runs: the demo's own, or the user's beside a baseline that is read and looked at alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.demo.command import DemoOptions, document
from controller.settings import TrainingPolicy, validate

OPTIONS = DemoOptions([], None, None, None, None, 1.0, "auto", None)


def test_the_demos_own_documents_act_and_look_often() -> None:
    spec = document("flowcon", "requests", OPTIONS, None).spec
    assert (spec.mode, spec.policy.name, spec.resources.control) == ("Auto", "flowcon", "requests")
    assert (spec.behaviour.interval_seconds, spec.behaviour.cooldown_seconds) == (5.0, 0.0)


def test_a_users_document_is_taken_as_it_is_and_its_baseline_differs_in_the_policy_alone() -> None:
    written = {
        "mode": "Auto",
        "policy": {"name": "flowcon", "parameters": {"alpha": 0.1}},
        "evaluation": {"metric": "val_accuracy", "objective": "max"},
        "behaviour": {"intervalSeconds": 30},
    }
    base = validate(TrainingPolicy, {"spec": written}, where="p.yaml")
    assert document("flowcon", "limits", OPTIONS, base) is base
    fair = document("fair", "limits", OPTIONS, base).spec
    assert fair.policy.name == "fair"
    assert fair.policy.parameters == {}
    assert fair.model_copy(update={"policy": base.spec.policy}) == base.spec


@pytest.mark.parametrize("interval", [None, 8.0])
def test_the_interval_can_be_chosen(interval: float | None) -> None:
    options = DemoOptions([], Path("jobs.yaml"), None, None, interval, 1.0, "auto", None)
    assert document("fair", "limits", options, None).spec.behaviour.interval_seconds == (interval or 5.0)
