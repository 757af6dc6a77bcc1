"""Notifications of Alertmanager, as its webhook sends them (version 4)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

NEVER = "0001-01-01T00:00:00Z"
"""`endsAt` of an alert that fires."""


def at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def an_alert(
    number: int = 1,
    *,
    started: float,
    ended: float | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> dict[str, Any]:
    """It fires; with `ended` it is resolved."""
    labels = {"slopewise_freeze": "namespace", "namespace": "team-a"} if labels is None else labels
    return {
        "status": "firing" if ended is None else "resolved",
        "labels": {"alertname": "DiskTrouble", **labels},
        "annotations": {"summary": "a disk is slow"} if annotations is None else annotations,
        "startsAt": at(started),
        "endsAt": NEVER if ended is None else at(ended),
        "generatorURL": "http://prometheus/graph",
        "fingerprint": f"{number:016x}",
    }


def body(*alerts: dict[str, Any], **more: Any) -> bytes:
    """A notification with these alerts."""
    whole = {
        "version": "4",
        "groupKey": "{}:{}",
        "truncatedAlerts": 0,
        "status": "firing",
        "receiver": "slopewise",
        "groupLabels": {},
        "commonLabels": {},
        "commonAnnotations": {},
        "externalURL": "http://alertmanager",
        "alerts": alerts,
    }
    return json.dumps({**whole, **more}).encode()
