"""Reads CPU quantities, metric names and label names that a user writes, and refuses what is none."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema

_CPU_QUANTITY = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<milli>m?)")
_MEMORY_QUANTITY = re.compile(r"(?P<number>\d{1,19})(?P<mebi>(Mi)?)")
_DURATION = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9})s)?", re.ASCII)
_UNITS_SECONDS = (86_400, 3600, 60, 1)
METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def parse_cpu_millicores(value: object) -> int:
    """Read a Kubernetes CPU quantity (`250m`, `"2"`, `0.5`) as millicores; ValueError with what to write."""
    match = _CPU_QUANTITY.fullmatch(str(value)) if isinstance(value, str | int | float) else None
    if match is None or isinstance(value, bool):
        raise ValueError(f"{value!r} is not a CPU quantity; write millicores as 250m or cores as 0.25")
    number = float(match["number"])
    millicores = round(number if match["milli"] else number * 1000)
    if millicores < 1:
        raise ValueError(f"{value!r} is less than the smallest CPU quantity; write at least 1m")
    return millicores


def cpu_quantity(millicores: int) -> str:
    """Millicores as Kubernetes itself prints them: 250 is `250m`, 2000 is `2`."""
    return f"{millicores}m" if millicores % 1000 else str(millicores // 1000)


def parse_memory_bytes(value: str) -> int:
    """Read what `memory_quantity` has written; ValueError for anything else."""
    match = _MEMORY_QUANTITY.fullmatch(value)
    if match is None:
        raise ValueError(f"{value!r} is not a memory quantity; write bytes, or mebibytes as 512Mi")
    return int(match["number"]) * (2**20 if match["mebi"] else 1)


def memory_quantity(size_bytes: int) -> str:
    """Bytes as people write them: 536870912 is `512Mi`, 1000 is `1000`."""
    return f"{size_bytes // 2**20}Mi" if size_bytes and size_bytes % 2**20 == 0 else str(size_bytes)


def duration_seconds(text: str) -> float | None:
    """The seconds of `7d`, `2h30m` or `90s`; None for what is no such text."""
    match = _DURATION.fullmatch(text)
    if match is None or not text:
        return None
    return float(sum(int(count or 0) * unit for count, unit in zip(match.groups(), _UNITS_SECONDS, strict=True)))


def _metric_name(value: object) -> object:
    if isinstance(value, str) and not METRIC_NAME.fullmatch(value):
        raise ValueError(f"{value!r} is not a metric name; use letters, digits, _ and : (PromQL is not accepted)")
    return value


def _label_names(value: object) -> object:
    for name in value if isinstance(value, dict) else ():
        if not isinstance(name, str) or not LABEL_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a label name; use letters, digits and _ (PromQL is not accepted)")
    return value


def _label_name(value: str) -> str:
    _label_names({value: ""})
    return value


def _failed_values(value: object) -> object:
    """Lists of texts by label name."""
    if not isinstance(value, dict):
        return value
    for values in value.values():
        if isinstance(values, str) or not values:
            raise ValueError(f"{values!r} is no list of values; write one, such as [error, 5??]")
    return _label_names(value)


CpuMillicores = Annotated[
    int,
    BeforeValidator(parse_cpu_millicores),
    # 100 as JSON would be read as 100 cores.
    PlainSerializer(cpu_quantity, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "cpu-quantity"}),
]
"""The formats of these five are names for rules: `crds/rules.py` has each of them as CEL."""
MetricName = Annotated[
    str,
    BeforeValidator(_metric_name),
    WithJsonSchema({"type": "string", "format": "metric-name", "maxLength": 200}),
    Field(max_length=200),
]
LabelMatchers = Annotated[
    dict[str, str],
    BeforeValidator(_label_names),
    WithJsonSchema(
        {
            "type": "object",
            "format": "label-names",
            "maxProperties": 16,
            "additionalProperties": {"type": "string", "maxLength": 500},
        }
    ),
    Field(max_length=16),
]
LabelName = Annotated[
    str,
    AfterValidator(_label_name),
    WithJsonSchema({"type": "string", "format": "label-name", "maxLength": 200}),
    Field(max_length=200),
]
FailedValues = Annotated[
    dict[str, tuple[str, ...]],
    BeforeValidator(_failed_values),
    WithJsonSchema(
        {
            "type": "object",
            "format": "failed-values",
            "maxProperties": 4,
            "additionalProperties": {
                "type": "array",
                "minItems": 1,
                "maxItems": 16,
                "items": {"type": "string", "maxLength": 100},
            },
        }
    ),
    Field(max_length=4),
]
