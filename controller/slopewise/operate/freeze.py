"""Makes and deletes Freezes by the rights of a user, and reads those in force for `slopewise status`."""

from __future__ import annotations

import getpass
import hashlib
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

from slopewise.adapters.kube.cache.records import API_VERSION
from slopewise.adapters.kube.cache.reflector import objects
from slopewise.adapters.kube.cache.store import UNREADABLE
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.protocol import MERGE_PATCH, PARAMS, Api, Json
from slopewise.adapters.kube.client.retry import update
from slopewise.adapters.kube.state.freezes import (
    ENDED_LABEL,
    WRITE_TRIES,
    FreezeRecord,
    freeze_path,
    parse_freeze,
    read_freeze,
)
from slopewise.config.freeze import FreezeSpec, in_utc
from slopewise.config.validation import validate
from slopewise.errors import DataSourceError
from slopewise.model import FreezeEffect, FreezeScope
from slopewise.operate.status import FreezesInForce
from slopewise.reports.wording import plain

MAX_FOR_SECONDS = 366 * 86_400.0
_MAX_NAME = 200

Subject = tuple[FreezeScope, str | None]
"""Scope and name."""


@dataclass(frozen=True, slots=True)
class Made:
    """A Freeze that was stored."""

    name: str
    spec: FreezeSpec

    @property
    def sentence(self) -> str:
        """For people."""
        return plain(f"frozen: {self.spec.message(self.name)}; `slopewise unfreeze {self.spec.subject}` ends it")

    def as_json(self) -> dict[str, Any]:
        """For `--output json`."""
        return {"name": self.name, "spec": self.spec.model_dump(mode="json", by_alias=True, exclude_none=True)}


def freeze_by_hand(api: Api, subject: Subject, seconds: float, reason: str, effect: FreezeEffect) -> Made:
    """Store the Freeze of a person, or change the one that was stored under the same name.

    UsageError for a reason that is too long, ApiError when it cannot be stored.
    """
    scope, named = subject
    raw = {
        "scope": scope, "name": named, "effect": effect, "reason": plain(reason), "source": f"by hand, {_user()}",
        "until": in_utc(time.time() + seconds),
    }  # fmt: skip
    made = Made(name_by_hand(subject), validate(FreezeSpec, raw, where="freeze"))
    write, read = partial(_write, api, made), partial(read_freeze, api, made.name)
    update(write, read, tries=WRITE_TRIES, again=attrgetter("is_outdated"))
    return made


def name_by_hand(subject: Subject) -> str:
    """The object's name: the same for the same scope, so that a second freeze changes the first."""
    name = "by-hand-" + "-".join(filter(None, subject))
    if len(name) <= _MAX_NAME:
        return name
    return f"{name[:_MAX_NAME].rstrip('-.')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def unfreeze(api: Api, subject: Subject) -> list[str]:
    """Delete every Freeze of a scope that has not ended, and return their names; ApiError when one cannot be."""
    found = [each for each in _listed(api) if (each.spec.scope, each.spec.name) == subject]
    for each in found:
        try:
            api.delete(freeze_path(each.name), {"preconditions": {"uid": each.uid}})
        except ApiError as error:
            if not error.is_not_found:
                raise
    return [each.name for each in found]


def read_freezes(api: Api) -> FreezesInForce:
    """Those in force now, for `slopewise status`; DataSourceError where the API server does not answer."""
    try:
        found = [each for each in _listed(api) if each.is_in_force(time.time())]
    except ApiError as error:
        if error.is_not_found:
            return FreezesInForce(trouble="there is no such kind here; apply manifests/crds")
        if error.is_forbidden:
            return FreezesInForce(trouble="no right to list freezes in the cluster")
        raise DataSourceError(f"status: the Freezes cannot be read: {error}") from error
    return FreezesInForce(found)


def _listed(api: Api) -> list[FreezeRecord]:
    found = []
    for each in objects(api, freeze_path(), {"labelSelector": f"!{ENDED_LABEL}"}):
        with suppress(*UNREADABLE):
            found.append(parse_freeze(each))
    return found


def _write(api: Api, made: Made, found: Json | None) -> None:
    spec = made.as_json()["spec"]
    if found is None:
        body = {"apiVersion": API_VERSION, "kind": "Freeze", "metadata": {"name": made.name}, "spec": spec}
        api.create(freeze_path(), body, PARAMS)
        return
    spec = {**dict.fromkeys(found.get("spec") or {}), **spec}
    guarded = {"resourceVersion": found["metadata"]["resourceVersion"]}
    api.patch(freeze_path(made.name), {"metadata": guarded, "spec": spec}, MERGE_PATCH, PARAMS)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
