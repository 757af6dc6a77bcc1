"""The alerts of manifests/rules as the dashboards use them: their bounds as thresholds, links to their runbooks.

The rule file is read when dashboards are generated, so that a threshold and its alert cannot differ.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

RULES = Path(__file__).resolve().parent.parent / "manifests" / "rules" / "slopewise.rules.yaml"
RUNBOOKS = "https://slopewise.dev/docs/runbooks"
_BOUND = re.compile(r"[<>]=?\s*(\d+(?:\.\d+)?)")


@cache
def alerts() -> Mapping[str, Mapping[str, Any]]:
    """The alerts of the rule file, by name, in its order."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}


def bound_of(alert: str, number: int = 0) -> float:
    """The figure that an alert compares with: 180 of `x > 180`; `number` chooses where it compares with several."""
    return float(_BOUND.findall(alerts()[alert]["expr"])[number])


def runbook_of(alert: str) -> str:
    """The address of the section of an alert; KeyError for an alert that the rule file does not have."""
    return f"{RUNBOOKS}#{alerts()[alert]['alert'].lower()}"
