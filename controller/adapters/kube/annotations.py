"""What a job's owner asks for, from the annotations of its pod: typed, bounded, and never PromQL.

`observer.py` puts the result into the snapshot. Annotations are tenants' text: what cannot be used is left out and
told in one sentence, and nothing in them can stop a pass. The bounds are those of a jobs file on one machine
(`controller.jobs`), but for the weight, whose bound is the policy's `spec.tenancy.maxWeight`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from controller.adapters.kube.records import GROUP, MIGRATABLE, PLACED
from controller.adapters.kube.scheduling import CHECKPOINTS, EXTERNAL
from controller.jobs import LONGEST_PROMISE_SECONDS
from controller.model import NO_PROMISES, Promises
from controller.settings import parse_cpu_millicores

DEADLINE = f"{GROUP}/deadline"
QOE_SECONDS = f"{GROUP}/qoe-seconds"
TARGET_LOSS = f"{GROUP}/target-loss"
DELIVERABLE_LOSS = f"{GROUP}/deliverable-loss"
WEIGHT = f"{GROUP}/weight"
MAX_USEFUL_CPU = f"{GROUP}/max-useful-cpu"
CONTAINER = f"{GROUP}/container"

KNOWN = (
    DEADLINE, QOE_SECONDS, TARGET_LOSS, DELIVERABLE_LOSS, WEIGHT, MAX_USEFUL_CPU, MIGRATABLE, CHECKPOINTS, CONTAINER,
)  # fmt: skip

_DURATION = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9})s)?", re.ASCII)
_UNITS_SECONDS = (86_400, 3600, 60, 1)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_LONGEST_VALUE = 63
"""As long as a label's value may be; no number, time or name is longer."""

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Asked:
    """What the annotations of one pod ask for, and which of them cannot be used."""

    promises: Promises = NO_PROMISES
    useful_parallelism_cores: float | None = None
    migratable: bool = False
    container: str | None = None
    warnings: tuple[str, ...] = ()


NOTHING = Asked()


def read_annotations(annotations: Mapping[str, str], started_at_seconds: float, max_weight: float) -> Asked:
    """Read all annotations of ours; a deadline that is a duration counts from `started_at_seconds` (Unix)."""
    if not any(key.startswith(f"{GROUP}/") for key in annotations):
        return NOTHING
    reading = _Reading(annotations)
    promises = Promises(
        qoe_seconds=reading.value(QOE_SECONDS, _seconds),
        deadline_at_seconds=reading.value(DEADLINE, lambda text: _deadline(text, started_at_seconds)),
        target_level=reading.value(TARGET_LOSS, _number),
        deliverable_level=reading.value(DELIVERABLE_LOSS, _number),
        weight=reading.weight(max_weight),
    )
    millicores = reading.value(MAX_USEFUL_CPU, parse_cpu_millicores)
    asked = Asked(
        promises=promises,
        useful_parallelism_cores=None if millicores is None else millicores / 1000,
        migratable=reading.value(MIGRATABLE, _yes_or_no) or False,
        container=reading.value(CONTAINER, str),
    )
    reading.value(CHECKPOINTS, _external)  # used by `mobility.py`; here only a mistake in it is told
    reading.name_unknown()
    return replace(asked, warnings=tuple(reading.warnings))


class _Reading:
    """The annotations of one pod, and what was found wrong with them so far."""

    def __init__(self, annotations: Mapping[str, str]) -> None:
        self._annotations = annotations
        self.warnings: list[str] = []

    def value(self, key: str, parse: Callable[[str], Value]) -> Value | None:
        """The value of one annotation; None when it is not there, and with a warning when it cannot be used."""
        text = self._annotations.get(key)
        if text is None:
            return None
        try:
            return parse(_bounded(text))
        except ValueError as error:
            self.warnings.append(f"annotation {key} is not used: {error}")
            return None

    def weight(self, max_weight: float) -> float:
        """The weight, 1 where none can be used; what is above the policy's bound is the bound."""
        weight = self.value(WEIGHT, _positive)
        if weight is None:
            return Promises().weight
        if weight > max_weight:
            self.warnings.append(
                f"annotation {WEIGHT} asks for {weight:g}, and the policy allows {max_weight:g} "
                "(spec.tenancy.maxWeight); that is used"
            )
        return min(weight, max_weight)

    def name_unknown(self) -> None:
        """A mistyped name would otherwise be a promise that nobody keeps."""
        for key in sorted(self._annotations):
            if key.startswith(f"{GROUP}/") and key not in (*KNOWN, PLACED):
                names = ", ".join(each.rpartition("/")[2] for each in KNOWN)
                self.warnings.append(f"annotation {key} is not known; use one of {names}")


def _bounded(text: str) -> str:
    if len(text) > _LONGEST_VALUE:
        raise ValueError(f"{text[:_LONGEST_VALUE]!r}… is {len(text)} characters long")
    return text


def _deadline(text: str, started_at_seconds: float) -> float:
    """Unix seconds of `2026-08-01T12:00:00Z`, or of `2h30m` after the start."""
    duration = _duration_seconds(text)
    at_seconds = _moment(text) if duration is None else started_at_seconds + duration
    if at_seconds - started_at_seconds > LONGEST_PROMISE_SECONDS:
        raise ValueError(f"{text!r} is more than a year after the start; is its unit right?")
    return at_seconds


def _duration_seconds(text: str) -> float | None:
    match = _DURATION.fullmatch(text)
    if match is None or not text:
        return None
    return float(sum(int(count or 0) * unit for count, unit in zip(match.groups(), _UNITS_SECONDS, strict=True)))


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
        raise ValueError(f"{text!r} is not a number; write it like 0.25")
    return number


def _positive(text: str) -> float:
    number = _number(text)
    if number <= 0:
        raise ValueError(f"{text!r} is not above 0")
    return number


def _seconds(text: str) -> float:
    number = _positive(text)
    if number > LONGEST_PROMISE_SECONDS:
        raise ValueError(f"{text!r} seconds are more than a year; is its unit right?")
    return number


def _external(text: str) -> str:
    if text != EXTERNAL:
        raise ValueError(f'{text!r} is not "{EXTERNAL}"; leave it out where checkpoints are kept on a volume')
    return text


def _yes_or_no(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f'{text!r} is neither "true" nor "false"')
    return text == "true"
