"""Reads what Alertmanager sends to a webhook (version 4), and which Freeze each of its alerts asks for. Pure.

An alert asks by its labels: `slopewise_freeze` is the scope (`all`, `namespace`, `node` or `policy`), and the label of
that name says which one. `slopewise_effect` is the effect, `Freeze` or `Recommend`; `slopewise_freeze_for`, a label or
an annotation, is how long the freeze lasts after the last notification. An alert of a namespace freezes no more than
that namespace: who may write rules there alone cannot freeze the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from slopewise.config.freeze import MAX_REASON, FreezeSpec, in_utc
from slopewise.config.quantities import duration_seconds
from slopewise.config.validation import validate
from slopewise.errors import UsageError
from slopewise.text import bounded, duration, printable

SCOPE_LABEL, EFFECT_LABEL, FOR_LABEL = "slopewise_freeze", "slopewise_effect", "slopewise_freeze_for"

DEFAULT_FOR_SECONDS = 6 * 3600.0
"""Longer than Alertmanager's `repeat_interval`, which is 4 h by default: an alert that goes on leaves no gap."""

MIN_FOR_SECONDS, MAX_FOR_SECONDS = 60.0, 7 * 86_400.0

KEPT_SECONDS = 7 * 86_400.0
"""An ended Freeze of an alert is kept for so long, and no alert that began before that makes one."""

CLOCKS_DIFFER_SECONDS = 300.0
"""An alert may begin so much later than now by our own clock."""

MAX_ALERTS = 1000
"""In one notification; each may be two requests to the API server."""

Fingerprint = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
Time = Annotated[datetime, msgspec.Meta(tz=True)]


class Alert(msgspec.Struct, frozen=True, rename="camel"):
    """One alert of a notification, as far as it is read."""

    status: Literal["firing", "resolved"]
    labels: dict[str, str]
    starts_at: Time
    ends_at: Time
    fingerprint: Fingerprint
    annotations: dict[str, str] = {}


class Notification(msgspec.Struct, frozen=True):
    """The body of one call."""

    version: Literal["4"]
    alerts: Annotated[list[Alert], msgspec.Meta(max_length=MAX_ALERTS)]


_DECODER = msgspec.json.Decoder(Notification)


@dataclass(frozen=True, slots=True)
class AlertFreeze:
    """The Freeze that one alert asks for, or that ends with it."""

    name: str
    """Of the object; the same for each notification of the alert."""
    spec: FreezeSpec
    started_at_seconds: float
    resolved_at_seconds: float | None = None
    """None: it fires."""


def read_notification(body: bytes) -> Notification:
    """The notification in a body; UsageError for anything else."""
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        message = bounded(printable(str(error)), 200)
        raise UsageError(f"the body is no notification of Alertmanager (version 4): {message}.") from error


def asks(alert: Alert) -> bool:
    """Whether an alert is for us at all."""
    return SCOPE_LABEL in alert.labels


def freeze_of(alert: Alert, now_seconds: float) -> AlertFreeze:
    """What an alert for us asks for; UsageError where its labels or its times cannot be used."""
    labels, name = alert.labels, f"alert-{alert.fingerprint}"
    where = f"alert {bounded(printable(labels.get('alertname', alert.fingerprint)), 100)}"
    started, ended = alert.starts_at.timestamp(), alert.ends_at.timestamp()
    firing = alert.status == "firing"
    if started > now_seconds + CLOCKS_DIFFER_SECONDS or (not firing and not started <= ended):
        raise UsageError(f"{where}: startsAt and endsAt do not fit together, or are later than now.")
    scope, namespace = labels[SCOPE_LABEL], labels.get("namespace")
    if scope != "namespace" and namespace is not None:
        raise UsageError(
            f"{where}: its label namespace {bounded(printable(namespace), 63)!r} bounds it to that namespace; write "
            f"{SCOPE_LABEL}: namespace, or aggregate that label away."
        )
    spec = {
        "scope": scope,
        "name": None if scope == "all" else labels.get(scope),
        "effect": labels.get(EFFECT_LABEL, "Recommend" if scope == "policy" else "Freeze"),
        "reason": _reason(alert),
        "source": f"alert {bounded(printable(labels.get('alertname', '')), 200)}".strip(),
        "until": in_utc(now_seconds + _lasts_seconds(alert, where) if firing else min(ended, now_seconds)),
    }
    return AlertFreeze(name, validate(FreezeSpec, spec, where=where), started, None if firing else ended)


def _reason(alert: Alert) -> str:
    text = alert.annotations.get("summary") or alert.annotations.get("description") or alert.labels.get("alertname", "")
    return bounded(printable(text), MAX_REASON)


def _lasts_seconds(alert: Alert, where: str) -> float:
    text = alert.labels.get(FOR_LABEL) or alert.annotations.get(FOR_LABEL)
    if text is None:
        return DEFAULT_FOR_SECONDS
    seconds = duration_seconds(text)
    if seconds is None or not MIN_FOR_SECONDS <= seconds <= MAX_FOR_SECONDS:
        least, most = duration(MIN_FOR_SECONDS), duration(MAX_FOR_SECONDS)
        given = f"{FOR_LABEL} {bounded(printable(text), 40)!r}"
        raise UsageError(f"{where}: {given} is not a time from {least} to {most}, such as 2h.")
    return seconds
