"""Builds the policy, the bounds and the settings of a pass from a TrainingPolicy document."""

from __future__ import annotations

from dataclasses import replace

from slopewise.composition import Composed, CpuRestored, composed_name
from slopewise.config.training_policy import (
    Behaviour,
    CpuBounds,
    EvaluationSettings,
    Migration,
    Mode,
    PlacementChoice,
    PolicyChoice,
    TrainingPolicy,
    TrainingPolicySpec,
    placement_parameters,
    policy_parameters,
)
from slopewise.errors import UsageError
from slopewise.estimators.growth import SCRAPES_PER_WINDOW, Measuring
from slopewise.feedback.pass_settings import PassSettings
from slopewise.feedback.rollback import RollbackSettings
from slopewise.model import Bounds, MoveBounds
from slopewise.own_policies.catalogue import build, find
from slopewise.policies import PolicyParameters, PolicyProtocol, Setting

MIN_INTERVAL_SECONDS = 20.0
"""The thesis's interval, for a document that names none; where Prometheus scrapes every 15 s it is 60 s."""

POINTS_INTERVALS = 2
"""A reading after passes without an answer is not dearer than that, and one such pass loses no point."""

MIN_READING_SECONDS, MAX_READING_SECONDS = 5.0, 15.0


def with_interval(document: TrainingPolicy, scrape_interval_seconds: float) -> TrainingPolicy:
    """The document with its interval: its own, or else four scrapes, at least 20 s."""
    spec = document.spec
    if spec.behaviour.interval_seconds is not None:
        return document
    seconds = max(MIN_INTERVAL_SECONDS, SCRAPES_PER_WINDOW * scrape_interval_seconds)
    behaviour = spec.behaviour.model_copy(update={"interval_seconds": seconds})
    return document.model_copy(update={"spec": spec.model_copy(update={"behaviour": behaviour})})


def policy_of(document: TrainingPolicy) -> PolicyProtocol:
    """The policy that a document with an interval names, with its parameters; UsageError says where a mistake is.

    Mode Observe only measures: the policy `fair` runs in place of the named one.
    """
    spec, where = document.spec, f"{document.metadata.name}: spec"
    wanted, resources = spec.behaviour, spec.resources
    setting = Setting(wanted.evaluation_seconds, resources.control, resources.accelerators, spec.studies)
    policy_parameters(spec.policy, where=f"{where}.policy")
    if spec.placement is not None:
        placement_parameters(spec.policy, spec.placement, where=where)
    if spec.mode == "Observe":
        return build("fair", PolicyParameters(), replace(setting, accelerators="Ignore"))
    for choice in (spec.policy, spec.placement):
        if choice is not None:
            runnable_name(choice.name)
    return build_policy(spec.policy, spec.placement, setting, where=where)


def build_policy(
    policy: PolicyChoice, placement: PlacementChoice | None, setting: Setting, *, where: str
) -> PolicyProtocol:
    """A policy with its parameters, composed with its placement where it has one; UsageError says where a mistake is.

    `where` is the place that both `policy` and `placement` are in. A policy that decides no CPU restores what the one
    before it changed.
    """
    cpu, chosen = build(policy.name, policy_parameters(policy, where=f"{where}.policy"), setting), find(policy.name)
    if setting.accelerators != "Ignore" and not chosen.accelerators:
        raise UsageError(
            f"{where}.policy.name: policy {policy.name} changes no job with a GPU; use marginal or fair, or write "
            "spec.resources.accelerators: Ignore."
        )
    if setting.studies == "Best" and not chosen.studies:
        raise UsageError(
            f"{where}.policy.name: policy {policy.name} favours no trial of a study; use marginal, or write "
            "spec.studies: Fair."
        )
    if "resize" not in chosen.actions and setting.accelerators == "Ignore":
        cpu = CpuRestored(cpu)
    if placement is None:
        return cpu
    parameters = placement_parameters(policy, placement, where=where)
    own = replace(setting, interval_seconds=placement.interval_seconds or setting.interval_seconds)
    name = composed_name(policy.name, placement.name)
    return Composed(name, placement.name, cpu, build(placement.name, parameters, own))


def runnable_name(policy: str) -> str:
    """A policy's name with dashes; UsageError when there is none, or none for real jobs."""
    name = policy.replace("_", "-")
    if reason := find(name).simulator_only:
        raise UsageError(f"policy {name}: {reason}.")
    return name


def interval_mistake(document: TrainingPolicy, scrape_interval_seconds: float) -> str | None:
    """Why the interval is too short, as a message without its full stop; None: it is not.

    With less than a window of scrapes between two evaluations, both levels would come from the same samples.
    """
    spec, least = document.spec, SCRAPES_PER_WINDOW * scrape_interval_seconds
    intervals = {
        "behaviour": spec.behaviour.interval_seconds,
        "placement": None if spec.placement is None else spec.placement.interval_seconds,
    }
    for part, interval in intervals.items():
        if interval is not None and interval < least:
            return (
                f"spec.{part}.intervalSeconds: {interval:g} s is less than {SCRAPES_PER_WINDOW} scrapes of "
                f"{scrape_interval_seconds:g} s; write {least:g} or more"
            )
    return None


def reads_points(spec: TrainingPolicySpec) -> bool:
    """Whether a policy of a document reads raw points; mode Observe runs none."""
    choices = (spec.policy, spec.placement)
    return spec.mode != "Observe" and any(each is not None and find(each.name).reads_points for each in choices)


def points_seconds(spec: TrainingPolicySpec) -> float | None:
    """How far back raw points are read at most; None: not at all."""
    return POINTS_INTERVALS * spec.behaviour.evaluation_seconds if reads_points(spec) else None


def local_memory_mistake(document: TrainingPolicy) -> str | None:
    """Why the document cannot be used on one machine, as a message without its full stop; None: it can."""
    control = document.spec.resources.memory
    if control == "Ignore":
        return None
    return f"spec.resources.memory: {control} changes pods of a cluster, and no memory of this machine; write Ignore"


def pass_settings(document: TrainingPolicy) -> PassSettings:
    """The settings of each pass of a document."""
    spec, behaviour = document.spec, document.spec.behaviour
    return PassSettings(
        spec.policy_name,
        replace(measuring_of(behaviour.evaluation_seconds, spec.evaluation), reads_points=reads_points(spec)),
        replace(
            bounds_of(spec.mode, spec.resources.cpu, behaviour, spec.migration),
            memory=spec.resources.memory,
            accelerators=spec.resources.accelerators,
        ),
        rollback_settings_of(spec.policy.name, behaviour.evaluation_seconds, behaviour),
    )


def measuring_of(interval_seconds: float, evaluation: EvaluationSettings) -> Measuring:
    """How growth is measured."""
    return Measuring(interval_seconds, evaluation.normaliser, evaluation.progress, target_hits=evaluation.target_hits)


def bounds_of(mode: Mode, cpu: CpuBounds, behaviour: Behaviour, migration: Migration | None = None) -> Bounds:
    """The bounds of the guards; without `migration` moves are not bounded."""
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


def rollback_settings_of(policy: str, interval_seconds: float, behaviour: Behaviour) -> RollbackSettings:
    """The settings of rollbacks under the policy that decides CPU."""
    return RollbackSettings(
        interval_seconds,
        behaviour.deferred_deadline_seconds,
        behaviour.backoff_seconds,
        judges_cuts=not find(policy).in_turns,
    )


def reading_seconds(interval_seconds: float) -> float:
    """How long Prometheus may take for the queries of one pass: a quarter of the interval, from 5 s up to 15 s.

    The answers about 5,000 jobs take 2 to 3 s, and on a busy node several times that; a pass that waits for longer
    decides on old facts.
    """
    return min(MAX_READING_SECONDS, max(MIN_READING_SECONDS, interval_seconds / 4))
