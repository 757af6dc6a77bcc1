"""Freeze objects as records, those in force for a policy, and the reason for which a write is withheld.

A pass reads freezes from the watch. Before each write the fenced client asks for the reason, and they are read from the
API server again: a call of the webhook is acknowledged once its Freeze is stored, so the next write has to see it, also
where the watch is behind.

Any replica may store the Freeze that an alert asks for, because the API server's resource versions decide between two.
A resolved alert's Freeze is ended and kept: a notification of the same alert that is sent again, or late, finds its end
and changes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Literal

from pydantic import ValidationError

from slopewise.adapters.kube.cache.records import API_VERSION, GROUP, ManagedPod
from slopewise.adapters.kube.cache.reflector import Reflector, objects
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.protocol import MERGE_PATCH, PARAMS, Api, Json, path_of
from slopewise.adapters.kube.client.retry import get_or_none, update
from slopewise.adapters.kube.state.status_writer import StatusDocument
from slopewise.config.alerts import KEPT_SECONDS, AlertFreeze
from slopewise.config.freeze import FreezeSpec
from slopewise.crds.conditions import timestamp
from slopewise.crds.freezes import FreezeState, FreezeStatus
from slopewise.model import NO_FREEZES, Freeze, FreezeEffect, Freezes, strictest
from slopewise.ports import Clock
from slopewise.text import bounded

MADE_BY_LABEL = f"{GROUP}/made-by"
ALERT = "alert"
"""The controller changes and deletes no Freeze without this value of the label."""

ENDED_LABEL = f"{GROUP}/ended"
"""A Freeze whose alert is resolved: kept for a while, so that the same alert cannot be sent again."""

STARTED = f"{GROUP}/alert-started"
RESOLVED = f"{GROUP}/alert-resolved"
"""Unix seconds of the alert that made it: its start, and the end of the last one that is resolved."""


def freeze_path(name: str | None = None) -> str:
    """The path of one Freeze, or of all."""
    return path_of(API_VERSION, "freezes", name=name)


@dataclass(frozen=True, slots=True)
class FreezeRecord:
    """One Freeze."""

    uid: str
    name: str
    resource_version: str
    spec: FreezeSpec
    created_at_seconds: float
    state: FreezeState | None = None
    made_by_alert: bool = False
    resolved_at_seconds: float | None = None
    deleting: bool = False

    def is_in_force(self, now_seconds: float) -> bool:
        """Whether it holds changes back at this moment."""
        until = self.spec.until_seconds
        return not self.deleting and (until is None or now_seconds < until)

    @property
    def freeze(self) -> Freeze:
        """As a pass has it."""
        return Freeze(self.name, self.spec.effect, self.spec.message(self.name), self.spec.until_seconds)


WRITE_TRIES = 4


def read_freeze(api: Api, name: str) -> Json | None:
    """The object; None: there is none. ApiError when it cannot be read."""
    return get_or_none(api, freeze_path(name))


_KEYS = frozenset(field.alias or name for name, field in FreezeSpec.model_fields.items())


def read_spec(raw: Json) -> FreezeSpec:
    """The spec, without keys of a later version. One that cannot be read freezes everything, until it is deleted."""
    try:
        return FreezeSpec.model_validate({key: value for key, value in raw.items() if key in _KEYS})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "spec"
        return FreezeSpec(scope="all", reason=bounded(f"this version cannot read its {place}: {first['msg']}", 200))


def parse_freeze(raw: Json) -> FreezeRecord:
    """KeyError without metadata; a spec that cannot be read is no error."""
    meta = raw["metadata"]
    annotations, labels = meta.get("annotations") or {}, meta.get("labels") or {}
    try:
        state = FreezeStatus.model_validate(raw.get("status") or {}).state
    except ValidationError:  # somebody else has written into it
        state = None
    return FreezeRecord(
        uid=meta["uid"],
        name=meta["name"],
        resource_version=meta.get("resourceVersion", ""),
        spec=read_spec(raw.get("spec") or {}),
        created_at_seconds=datetime.fromisoformat(meta["creationTimestamp"]).timestamp(),
        state=state,
        made_by_alert=labels.get(MADE_BY_LABEL) == ALERT,
        resolved_at_seconds=seconds_of(annotations.get(RESOLVED)),
        deleting="deletionTimestamp" in meta,
    )


def seconds_of(text: str | None) -> float | None:
    """The value of an annotation of ours; None: missing, or damaged."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def in_force(records: Iterable[FreezeRecord], policy: str, now_seconds: float) -> Freezes:
    """The freezes of the jobs of this policy at one moment."""
    everywhere: list[Freeze] = []
    places: dict[str, dict[str, list[Freeze]]] = {"namespace": defaultdict(list), "node": defaultdict(list)}
    for record in records:
        scope, name = record.spec.scope, record.spec.name or ""
        if not record.is_in_force(now_seconds) or (scope == "policy" and name != policy):
            continue
        (places[scope][name] if scope in places else everywhere).append(record.freeze)
    namespaces, nodes = (
        {name: found for name, freezes in each.items() if (found := strictest(freezes)) is not None}
        for each in places.values()
    )
    return Freezes(strictest(everywhere), namespaces, nodes)


class KubeFreezes:
    """The freezes of the cluster. Safe from any thread."""

    def __init__(self, api: Api, store: Reflector[FreezeRecord] | None, clock: Clock) -> None:
        """`store`: None where a controller of one namespace may not read them."""
        self._api = api
        self._store = store
        self._clock = clock

    def of(self, policy: str) -> Freezes:
        """Those of the jobs of a policy, as the watch has them."""
        return NO_FREEZES if self._store is None else in_force(self._store.items(), policy, self._clock.now())

    def before_write(self, policy: str) -> Freezes:
        """The same with those that were stored up to now; ApiError when they cannot be read."""
        if self._store is not None:
            for each in objects(self._api, freeze_path(), {"labelSelector": f"!{ENDED_LABEL}"}):
                self._store.observe(each)
        return self.of(policy)

    def to_recommend(
        self, policy: str, job_uids: Iterable[str], find: Callable[[str], ManagedPod | None]
    ) -> frozenset[str]:
        """Those of the jobs that a Freeze treats as if the mode were Recommend. `find`: a job's pod, by uid."""
        freezes = self.of(policy)
        if freezes == NO_FREEZES:
            return frozenset()
        pods = ((uid, managed.pod) for uid in job_uids if (managed := find(uid)) is not None)
        under = ((uid, freezes.of(pod.namespace, pod.node or "")) for uid, pod in pods)
        return frozenset(uid for uid, freeze in under if freeze is not None and freeze.effect == "Recommend")


def frozen_reason(
    freezes: Callable[[], Freezes], managed: ManagedPod | None, nodes: Iterable[str], effect: FreezeEffect | None = None
) -> str | None:
    """Why a write about this pod and these nodes is withheld; None: it is not.

    `freezes`: those now; where they cannot be read nothing is written. `effect`: only freezes of this one count.
    """
    try:
        now = freezes()
    except ApiError as error:
        return f"whether it is frozen cannot be read: {error}"
    freeze = now.of("" if managed is None else managed.pod.namespace, *nodes)
    return None if freeze is None or effect not in (None, freeze.effect) else f"frozen: {freeze.message}"


class FreezeDocument(StatusDocument):
    """The status of one Freeze."""

    def __init__(self, record: FreezeRecord, state: FreezeState, now_seconds: float) -> None:
        super().__init__(f"freeze {record.uid}", freeze_path(record.name), record.uid)
        self._status = FreezeStatus(state=state, since=timestamp(now_seconds))
        self.stored(record.uid, record.resource_version, {})

    def render(self) -> Json:
        """The state, and since when."""
        status: Json = self._status.model_dump(mode="json", by_alias=True, exclude_none=True)
        return status


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
    return update(write, read, tries=WRITE_TRIES, again=attrgetter("is_outdated"))


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
            "annotations": {STARTED: f"{started_at_seconds:.3f}", RESOLVED: None if ends is None else f"{ends:.3f}"},
        },
        "spec": wanted.spec.model_dump(mode="json", by_alias=True, exclude_none=True),
    }
