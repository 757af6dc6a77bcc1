"""What a TrainingPolicy document means to a run: the policy that it names, and what each pass is told.

Before it: `settings.py`, which validated the document. After it: `session.py`, which runs passes with both.
"""

from __future__ import annotations

from controller.bounds import Bounds, MoveBounds
from controller.corrections import Patience
from controller.errors import UsageError
from controller.growth import SCRAPES_PER_WINDOW, Measuring
from controller.own_policies.catalogue import build, find
from controller.policies import PolicyParameters, PolicyProtocol, Setting
from controller.reconcile import PassSettings
from controller.settings import Behaviour, CpuBounds, Migration, Mode, TrainingPolicy, policy_parameters


def policy_of(document: TrainingPolicy) -> PolicyProtocol:
    """The policy that a document names, with its parameters; UsageError says where a mistake is.

    Mode Observe only measures: whatever policy is named, it is not asked.
    """
    spec = document.spec
    parameters = policy_parameters(spec.policy, where=f"{document.metadata.name}: spec.policy")
    setting = Setting(spec.behaviour.interval_seconds, spec.resources.control)
    if spec.mode == "Observe":
        return build("fair", PolicyParameters(), setting)
    runnable_name(spec.policy.name)
    return build(spec.policy.name, parameters, setting)


def runnable_name(policy: str) -> str:
    """A policy's name as it is told everywhere, with dashes; UsageError when there is none, or none for real jobs."""
    name = policy.replace("_", "-")
    if find(name).simulator_only:
        raise UsageError(
            f"policy {name}: it must know how much work each job has left, which only the simulator does; "
            f"use `slopewise simulate`, or another policy."
        )
    return name


def interval_mistake(document: TrainingPolicy, scrape_interval_seconds: float) -> str | None:
    """What is wrong with looking so often, in a sentence that its caller ends; None: nothing.

    With less than a window of scrapes between two looks, both levels would be means over the same samples.
    """
    interval, least = document.spec.behaviour.interval_seconds, SCRAPES_PER_WINDOW * scrape_interval_seconds
    if interval >= least:
        return None
    return (
        f"spec.behaviour.intervalSeconds: {interval:g} s is less than {SCRAPES_PER_WINDOW} scrapes of "
        f"{scrape_interval_seconds:g} s; write {least:g} or more"
    )


def pass_settings(document: TrainingPolicy) -> PassSettings:
    """What each pass is told of a document."""
    spec, behaviour = document.spec, document.spec.behaviour
    return PassSettings(
        spec.policy.name,
        Measuring(behaviour.interval_seconds, spec.evaluation.normaliser, spec.evaluation.progress),
        bounds_of(spec.mode, spec.resources.cpu, behaviour, spec.migration),
        patience_of(behaviour.interval_seconds, behaviour),
    )


def bounds_of(mode: Mode, cpu: CpuBounds, behaviour: Behaviour, migration: Migration | None = None) -> Bounds:
    """What the guards are told of a user's settings; without `migration` moves are not bounded."""
    return Bounds(
        mode,
        cpu.min,
        cpu.max,
        behaviour.cooldown_seconds,
        behaviour.max_step_ratio,
        behaviour.min_change_ratio,
        behaviour.canary_ratio,
        None if migration is None else MoveBounds(**migration.model_dump()),
    )


def patience_of(interval_seconds: float, behaviour: Behaviour) -> Patience:
    """What corrections are told of a user's settings."""
    return Patience(interval_seconds, behaviour.deferred_deadline_seconds, behaviour.leave_alone_seconds)
