"""Stores the Freeze that an alert asks for, and ends it when the alert is resolved; idempotent, without the lease.

Any replica may store one, because the API server's resource versions decide between two. A resolved alert's Freeze is
ended and kept: a notification of the same alert that is sent again, or late, finds its end and changes nothing.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

from slopewise.adapters.kube.cache.records import API_VERSION
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.protocol import MERGE_PATCH, PARAMS, Api, Json
from slopewise.adapters.kube.client.retry import update
from slopewise.adapters.kube.state.freezes import (
    ALERT,
    ENDED_LABEL,
    MADE_BY_LABEL,
    RESOLVED,
    STARTED,
    WRITE_TRIES,
    FreezeRecord,
    freeze_path,
    read_freeze,
    seconds_of,
    someone_else_wrote,
)
from slopewise.config.alerts import KEPT_SECONDS, AlertFreeze

Stored = Literal["stored", "ended", "unchanged", "outdated"]
"""`outdated`: a notification that was sent again after the alert was resolved, or long after it began."""


def is_stored(record: FreezeRecord | None, wanted: AlertFreeze, now_seconds: float) -> bool:
    """Whether a repeated notification has nothing to add: its Freeze lasts for nearly as long as it asks for."""
    if record is None or wanted.resolved_at_seconds is not None or record.resolved_at_seconds is not None:
        return False
    asked, has = wanted.spec.until_seconds, record.spec.until_seconds
    same = record.spec.model_copy(update={"until": None}) == wanted.spec.model_copy(update={"until": None})
    return same and asked is not None and has is not None and asked - has < (asked - now_seconds) / 4


def store(api: Api, wanted: AlertFreeze, now_seconds: float, *, is_new: bool = False) -> tuple[Stored, Json | None]:
    """Bring the Freeze of an alert to what the notification says; also the object, where it was written.

    `is_new`: none is known, and it is created without being read. ApiError when it cannot be stored.
    """
    if is_new:
        try:
            return _create(api, wanted, now_seconds)
        except ApiError as error:
            if not error.already_exists:
                raise
    write, read = partial(_write, api, wanted, now_seconds), partial(read_freeze, api, wanted.name)
    return update(write, read, tries=WRITE_TRIES, again=someone_else_wrote)


def _write(api: Api, wanted: AlertFreeze, now_seconds: float, found: Json | None) -> tuple[Stored, Json | None]:
    if found is None:
        return _create(api, wanted, now_seconds)
    meta = found["metadata"]
    annotations, labels = meta.get("annotations") or {}, meta.get("labels") or {}
    started, resolved = seconds_of(annotations.get(STARTED)), seconds_of(annotations.get(RESOLVED))
    ends = wanted.resolved_at_seconds
    if labels.get(MADE_BY_LABEL) != ALERT or started is None:
        return "unchanged", None  # a person has made it, or taken it over
    if resolved is not None and (wanted.started_at_seconds <= resolved if ends is None else ends <= resolved):
        return "outdated", None
    if ends is not None and ends < started:
        return "outdated", None  # the end of an earlier one
    # An earlier start would let the end of an earlier alert count: that of a replica of Prometheus, or one sent again.
    body = _body(wanted, max(started, wanted.started_at_seconds))
    if ends is None:  # what is there and is not in the patch would stay: the name, for example, of a scope without one
        body["spec"] = {**dict.fromkeys(found.get("spec") or {}), **body["spec"]}
    else:  # its scope and reason stay for those who look for what was frozen
        body["spec"] = {"until": body["spec"]["until"]}
    body["metadata"]["resourceVersion"] = meta["resourceVersion"]
    written = api.patch(freeze_path(wanted.name), body, MERGE_PATCH, PARAMS)
    return ("stored" if ends is None else "ended"), written


def _create(api: Api, wanted: AlertFreeze, now_seconds: float) -> tuple[Stored, Json | None]:
    known_from = now_seconds - KEPT_SECONDS
    ends = wanted.resolved_at_seconds
    if (wanted.started_at_seconds if ends is None else ends) < known_from:
        return "outdated", None
    body = {"apiVersion": API_VERSION, "kind": "Freeze", **_body(wanted, wanted.started_at_seconds)}
    for part in ("labels", "annotations"):
        body["metadata"][part] = {key: value for key, value in body["metadata"][part].items() if value is not None}
    return ("stored" if ends is None else "ended"), api.create(freeze_path(), body, PARAMS)


def _body(wanted: AlertFreeze, started_at_seconds: float) -> Json:
    """As a merge patch: what is None is removed."""
    ends = wanted.resolved_at_seconds
    return {
        "metadata": {
            "name": wanted.name,
            "labels": {MADE_BY_LABEL: ALERT, ENDED_LABEL: None if ends is None else "true"},
            "annotations": {
                STARTED: f"{started_at_seconds:.3f}",
                RESOLVED: None if ends is None else f"{ends:.3f}",
            },
        },
        "spec": wanted.spec.model_dump(mode="json", by_alias=True, exclude_none=True),
    }
