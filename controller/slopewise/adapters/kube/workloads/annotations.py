"""Reads the objectives of a job from its pod's annotations: typed, bounded, and never PromQL.

Annotations are tenants' text: an unusable one is left out with one warning, and none can stop a pass. The bounds are
those of a jobs file on one machine (`slopewise.config.jobs_file`), except that the policy's `spec.tenancy.maxWeight`
bounds the weight.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar, get_args

from slopewise.adapters.kube.cache.records import AT_TARGET, GROUP, MIGRATABLE, PLACED, STOP
from slopewise.adapters.kube.cache.scheduling_facts import CHECKPOINTS, EXTERNAL, NO_CHECKPOINTS
from slopewise.config.job_entry import MAX_OBJECTIVE_SECONDS, AtTarget
from slopewise.config.quantities import duration_seconds, parse_cpu_millicores
from slopewise.model import NO_OBJECTIVES, Objectives

DEADLINE = f"{GROUP}/deadline"
QOE_SECONDS = f"{GROUP}/qoe-seconds"
TARGET_LOSS = f"{GROUP}/target-loss"
DELIVERABLE_LOSS = f"{GROUP}/deliverable-loss"
WEIGHT = f"{GROUP}/weight"
MAX_USEFUL_CPU = f"{GROUP}/max-useful-cpu"
CONTAINER = f"{GROUP}/container"

CLASS = f"{GROUP}/class"
FAVOUR = f"{GROUP}/favour"

STUDY_LABEL = f"{GROUP}/study"
"""Label of a pod, and of its JobGrowth: the study (sweep) of its namespace of which it is a trial."""

KNOWN = (
    DEADLINE, QOE_SECONDS, TARGET_LOSS, DELIVERABLE_LOSS, AT_TARGET, WEIGHT, MAX_USEFUL_CPU, MIGRATABLE, CHECKPOINTS,
    CONTAINER, CLASS, FAVOUR,
)  # fmt: skip

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_CLASS_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)
_MAX_VALUE = 63
"""The length limit of a label's value; no number, time or name is longer."""

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Requested:
    """What the annotations of one pod request, and warnings about those that cannot be used."""

    objectives: Objectives = NO_OBJECTIVES
    useful_parallelism_cores: float | None = None
    migratable: bool = False
    container: str | None = None
    workload_class: str | None = None
    warnings: tuple[str, ...] = ()


NOTHING = Requested()


def read_annotations(annotations: Mapping[str, str], started_at_seconds: float, max_weight: float) -> Requested:
    """Read all annotations of ours; a duration as deadline counts from `started_at_seconds` (Unix)."""
    if not any(key.startswith(f"{GROUP}/") for key in annotations):
        return NOTHING
    reading = _Reading(annotations)
    objectives = Objectives(
        qoe_seconds=reading.value(QOE_SECONDS, _seconds),
        deadline_at_seconds=reading.value(DEADLINE, lambda text: _deadline(text, started_at_seconds)),
        target_level=reading.value(TARGET_LOSS, _number),
        deliverable_level=reading.value(DELIVERABLE_LOSS, _number),
        weight=reading.weight(max_weight),
        favours_best=reading.value(FAVOUR, _one_of("best", then="leave it out where trials are jobs like others"))
        == "best",
    )
    objectives = replace(objectives, stops_at_target=reading.stops_at_target(objectives))
    reading.check_deadline(objectives.deadline_at_seconds, started_at_seconds)
    millicores = reading.value(MAX_USEFUL_CPU, parse_cpu_millicores)
    requested = Requested(
        objectives=objectives,
        useful_parallelism_cores=None if millicores is None else millicores / 1000,
        migratable=reading.value(MIGRATABLE, _one_of("true", "false")) == "true",
        container=reading.value(CONTAINER, str),
        workload_class=reading.value(CLASS, _class_name),
    )
    # Used by `moves/movability.py`; here only validated.
    reading.value(CHECKPOINTS, _one_of(EXTERNAL, NO_CHECKPOINTS, then="leave it out where checkpoints are on a volume"))
    reading.name_unknown()
    return replace(requested, warnings=tuple(reading.warnings))


class _Reading:
    """The annotations of one pod, and the warnings so far."""

    def __init__(self, annotations: Mapping[str, str]) -> None:
        self._annotations = annotations
        self.warnings: list[str] = []

    def value(self, key: str, parse: Callable[[str], Value]) -> Value | None:
        """The value of one annotation; None when absent, and None with a warning when unusable."""
        text = self._annotations.get(key)
        if text is None:
            return None
        try:
            return parse(_bounded(text))
        except ValueError as error:
            self.warnings.append(f"annotation {key} is not used: {error}")
            return None

    def weight(self, max_weight: float) -> float:
        """The weight, 1 where none is usable; the policy's bound where it is above that."""
        weight = self.value(WEIGHT, _positive)
        if weight is None:
            return Objectives().weight
        if weight > max_weight:
            self.warnings.append(
                f"annotation {WEIGHT} asks for {weight:g}, and the policy allows {max_weight:g} "
                "(spec.tenancy.maxWeight); that is used"
            )
        return min(weight, max_weight)

    def stops_at_target(self, objectives: Objectives) -> bool:
        """Whether its owner asks for a stop, and states the target that it needs."""
        if self.value(AT_TARGET, _one_of(*get_args(AtTarget))) != STOP:
            return False
        if objectives.target_level is None:
            self.warnings.append(f"annotation {AT_TARGET} is not used: a stop needs a target; state {TARGET_LOSS}")
        return objectives.target_level is not None

    def check_deadline(self, at_seconds: float | None, started_at_seconds: float) -> None:
        """Warn about a deadline before the start: the job has missed it, whatever it is given."""
        if at_seconds is not None and at_seconds < started_at_seconds:
            late = started_at_seconds - at_seconds
            self.warnings.append(
                f"annotation {DEADLINE}: {self._annotations[DEADLINE]} is {late:.0f} s before its start, so it is "
                "missed already; state a later one"
            )

    def name_unknown(self) -> None:
        """Warn once about unknown names: a mistyped objective would otherwise be ignored silently.

        Each warning is an event, and a pod may carry thousands of such names.
        """
        unknown = sorted(
            key for key in self._annotations if key.startswith(f"{GROUP}/") and key not in (*KNOWN, PLACED)
        )
        if unknown:
            more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
            names = ", ".join(each.rpartition("/")[2] for each in KNOWN)
            self.warnings.append(f"annotation {unknown[0]}{more} is not known; use one of {names}")


def _bounded(text: str) -> str:
    if len(text) > _MAX_VALUE:
        raise ValueError(f"{text[:_MAX_VALUE]!r}… is {len(text)} characters long")
    return text


def _deadline(text: str, started_at_seconds: float) -> float:
    """Unix seconds of `2026-08-01T12:00:00Z`, or of `2h30m` after the start."""
    duration = duration_seconds(text)
    if _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} has no unit; write {text}s, {text}m or {text}h after the start, or a time")
    if duration == 0:
        raise ValueError(f"{text!r} is no time at all; write how long it may take, such as 2h30m")
    at_seconds = _moment(text) if duration is None else started_at_seconds + duration
    if at_seconds - started_at_seconds > MAX_OBJECTIVE_SECONDS:
        raise ValueError(f"{text!r} is more than a year after the start; is its unit right?")
    return at_seconds


def _moment(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(
            f"{text!r} is neither a time nor a duration; write 2026-08-01T12:00:00Z, or 2h30m after the start"
        ) from error
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; end it with Z or +02:00")
    return moment.timestamp()


def _number(text: str) -> float:
    if not _NUMBER.fullmatch(text) or not math.isfinite(number := float(text)):
        raise ValueError(f"{text!r} is not a number without a unit; write it like 0.25")
    return number


def _positive(text: str) -> float:
    number = _number(text)
    if number <= 0:
        raise ValueError(f"{text!r} is not above 0")
    return number


def _seconds(text: str) -> float:
    number = _positive(text)
    if number > MAX_OBJECTIVE_SECONDS:
        raise ValueError(f"{text!r} seconds are more than a year; is its unit right?")
    return number


def _class_name(text: str) -> str:
    if not _CLASS_NAME.fullmatch(text):
        raise ValueError(f"{text!r} is not a name; write letters, digits, '-', '_' and '.', like resnet-50")
    return text


def _one_of(*words: str, then: str = "") -> Callable[[str], str]:
    """Takes these words alone; `then`: what to do instead of writing another one."""

    def parse(text: str) -> str:
        if text not in words:
            known = " nor ".join(f'"{word}"' for word in words)
            instead = f"; {then}" if then else ""
            raise ValueError(f"{text!r} is {'neither' if len(words) > 1 else 'not'} {known}{instead}")
        return text

    return parse


def as_label(name: str) -> str:
    """The name, if it can be the value of a label; empty: a tenant has written something else."""
    return name if len(name) <= _MAX_VALUE and _CLASS_NAME.fullmatch(name) else ""
