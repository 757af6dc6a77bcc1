"""Prometheus is gone, stale or lying: no change is made on its account, and it is said."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from support.fault_stage import EVEN_SHARES, SCRAPE_SECONDS, Stage
from support.gateway import drop
from support.trainers import CONVERGED, DIVERGED, Trainers
from support.waiting import wait_for

MEASURED = {"intervalSeconds": 20}
"""Four scrapes of Prometheus, the least that it takes to measure."""

PATIENT = {"intervalSeconds": 60}
"""Three of them are longer than an outage here."""

ESCAPE = "\x1b"


def look_again(stage: Stage, name: str = "newcomer") -> None:
    """One more pod, so that everybody's share is another one and the policy wants to change all."""
    stage.pods(name)


@pytest.mark.parametrize("how", ["refuses", pytest.param("hangs", marks=pytest.mark.faults)])
def test_without_prometheus_nothing_is_changed_and_everything_can_be_given_back(stage: Stage, how: str) -> None:
    prometheus = stage.prometheus_gateway()
    stage.pods("a")
    stage.policy(behaviour=PATIENT)
    controller = stage.controller(prometheus_url=prometheus.url)
    stage.wait_for_limits({"a": 2000})
    away = prometheus.interfering(drop) if how == "refuses" else prometheus.hanging()
    with away:
        look_again(stage)
        condition = stage.wait_for_condition("Ready", "CannotObserve")
        assert condition["status"] == "False"
        assert "Prometheus" in condition["message"]
        stage.wait_for_event(stage.name("policy"), "MetricsUnavailable", "Prometheus")
        assert controller.metric("slopewise_passes_total", result="held") >= 1
        assert stage.limits() == {"a": 2000, "newcomer": 300}
        stage.policy(mode="Recommend")
        stage.wait_for_limits({"a": 300, "newcomer": 300})
        stage.policy()
    stage.wait_for_limits({"a": 1000, "newcomer": 1000})
    stage.wait_for_condition("Ready", "ModeAuto")


def test_an_outage_of_three_intervals_restores_the_originals_until_a_pass_sees_again(stage: Stage) -> None:
    """Intervals are 4 s here, so that an outage of 20 s is what one of five minutes is by default."""
    prometheus = stage.prometheus_gateway()
    stage.pods("waits", "b")
    stage.policy(policy=EVEN_SHARES, resources={"cpu": {"min": "50m", "max": "100m"}})
    controller = stage.controller(prometheus_url=prometheus.url)
    stage.wait_for_limits({"waits": 100, "b": 100})
    with prometheus.interfering(drop):
        stage.wait_for_limits({"waits": 300, "b": 300})
        stage.wait_for_event(stage.name("policy"), "Outage", "3 intervals: original resources are restored")
        condition = stage.wait_for_condition("Ready", "CannotObserve")
        assert "Prometheus" in condition["message"]
        assert controller.metric("slopewise_outage", name=stage.name("policy")) == 1
        resized = stage.resized.copy()
        held = controller.metric("slopewise_passes_total", result="held")
        wait_for(
            "more held passes",
            lambda: controller.metric("slopewise_passes_total", result="held"),
            lambda now: now > held + 2,
        )
        assert stage.resized == resized, "once"
    stage.wait_for_limits({"waits": 100, "b": 100})
    stage.wait_for_condition("Ready", "ModeAuto")
    assert controller.metric("slopewise_outage", name=stage.name("policy")) == 0


def test_forged_and_hostile_series_win_nothing_and_break_nothing(stage: Stage, trainers: Trainers) -> None:
    stage.kubectl.apply(
        trainers.pod("victim", CONVERGED, node="node-a", cpu_request="100m"),
        trainers.liar("liar", _forged(stage.namespace), node="node-a", cpu_request="100m"),
        namespace=stage.namespace,
    )
    stage.kubectl.wait_running(stage.namespace, "victim", "liar")
    stage.policy(behaviour=MEASURED)
    controller = stage.controller(scrape_seconds=SCRAPE_SECONDS)
    victim = wait_for("its loss", lambda: stage.growth("victim"), lambda seen: "loss" in seen)
    assert victim["loss"] == pytest.approx(0.1)
    liar = wait_for("the liar's", lambda: stage.growth("liar"), lambda seen: "loss" in seen)
    assert liar["loss"] == 7
    growths = stage.kubectl.run("get", "jobgrowths", "-n", stage.namespace, "-o", "json")
    assert len(growths) < 40_000
    assert ESCAPE not in stage.kubectl.run("get", "growth", "-n", stage.namespace, "-o", "wide")
    assert ESCAPE not in controller.text
    controller.wait_for_passes(1)
    assert controller.lines("pass failed") == []
    assert controller.metric("slopewise_passes_total", result="held") == 0
    assert controller.metric("slopewise_job_evaluation", job_name="victim") == pytest.approx(0.1)
    used = controller.metric("slopewise_job_cpu_usage_cores", job_name="victim")
    assert used < 2, "a tenant's container_cpu_usage_seconds_total was believed"


def _forged(namespace: str) -> str:
    """A page of metrics that claims to be about the victim, with labels that are hostile to what shows them."""
    of_victim = f'namespace="{namespace}",pod="victim",container="trainer",node="node-a"'
    hostile = {
        "promql": r"\"} or up or {a=\"",
        "terminal": f"{ESCAPE}[31mred{ESCAPE}[0m",
        "markup": "<script>alert(1)</script>",
        "long": "x" * 10_000,
    }
    labels = ",".join(f'{name}="{value}"' for name, value in hostile.items())
    lines = [
        f'training_loss{{stage="eval",{of_victim}}} 7',
        f'training_loss{{stage="train",{labels}}} 8',
        f'training_loss{{stage="eval",slopewise_value="level",{of_victim}}} 9',
        f"training_steps_planned{{{of_victim}}} 1",
        f"container_cpu_usage_seconds_total{{{of_victim}}} 999999",
        f'training_info{{objective="{ESCAPE}max",{of_victim}}} 1',
    ]
    return "\n".join([*lines, ""])


def test_diverged_and_silent_trainings_keep_what_they_have(stage: Stage, trainers: Trainers) -> None:
    shape: dict[str, Any] = {"node": "node-a", "cpu_request": "100m", "cpu_limit": "300m"}
    names = ("diverged", "silent")
    stage.kubectl.apply(
        trainers.pod("diverged", DIVERGED, **shape),
        trainers.pod("silent", CONVERGED, falls_silent_after_seconds=40, **shape),
        namespace=stage.namespace,
    )
    stage.kubectl.wait_running(stage.namespace, *names)
    stage.policy(behaviour=MEASURED, mode="Recommend")
    controller = stage.controller(scrape_seconds=SCRAPE_SECONDS)
    diverged = stage.wait_for_growth("diverged", "MetricsAvailable", "NotFinite")
    assert any("diverged" in each["message"] for each in diverged["conditions"])
    wait_for("it is missed", lambda: _metrics_reason(stage, "silent"), lambda it: it in ("Stale", "Missing"))
    stage.policy(behaviour=MEASURED)
    for name, guard in (("diverged", "non_finite_metrics"), ("silent", "stale_metrics")):
        stage.wait_for_event(name, "ResizeWithheld", f"{guard}: ")
        # The status is written beside the event, and again after a second where the connection was closed meanwhile.
        wait_for(f"{name} says why", partial(_reason, stage, name), partial(_says, guard))
        assert controller.metric("slopewise_withheld_total", guard=guard) >= 1
    condition = stage.wait_for_condition("MetricsAvailable", "JobsWithoutMetrics")
    assert "2 of 2 jobs" in condition["message"]
    assert controller.metric("slopewise_job_metrics_available", job_namespace=stage.namespace) == 0
    assert controller.metric("slopewise_job_diverged", job_name="diverged") == 1
    assert stage.limits() == dict.fromkeys(names, 300)


def _reason(stage: Stage, name: str) -> str:
    return str(stage.growth(name).get("reason", ""))


def _says(guard: str, reason: str) -> bool:
    return reason.startswith(f"{guard}: ")


def _metrics_reason(stage: Stage, name: str) -> str:
    conditions = stage.growth(name).get("conditions", [])
    return next((str(each["reason"]) for each in conditions if each["type"] == "MetricsAvailable"), "")
