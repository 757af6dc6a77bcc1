"""The `Freeze` document: what may not be changed, until when, and why; by hand, from Git, or made of an alert."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AwareDatetime, Field, WithJsonSchema, model_validator

from slopewise.config.validation import Document
from slopewise.errors import UsageError
from slopewise.model import FreezeEffect, FreezeScope

MAX_REASON = 1024
NAME = "^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"
"""Of a namespace, a node or a policy, as far as it can be checked here."""

_NAME = re.compile(NAME)
_NAMED_SCOPES: Mapping[str, FreezeScope] = {"namespace": "namespace", "node": "node", "policy": "policy"}

When = Annotated[AwareDatetime, WithJsonSchema({"type": "string", "format": "date-time"})]


class FreezeSpec(Document):
    """What a Freeze is about, and for how long."""

    scope: FreezeScope = Field(description="what is frozen: all jobs, those of a namespace, of a node, or of a policy")
    name: str | None = Field(
        None, max_length=253, pattern=NAME, description="of the namespace, node or TrainingPolicy; none where all are"
    )
    effect: FreezeEffect = Field(
        "Freeze",
        description="Freeze changes nothing at all; Recommend is as the mode of that name, and restores originals",
    )
    reason: str = Field("", max_length=MAX_REASON, description="why, for those who find it")
    source: str = Field("", max_length=253, description="who or what made it")
    until: When | None = Field(None, description="when it ends; empty: when it is deleted")

    @model_validator(mode="after")
    def _names_its_scope(self) -> FreezeSpec:
        if (self.scope == "all") != (self.name is None):
            remedy = "takes no name" if self.scope == "all" else "needs the name of what is frozen"
            raise ValueError(f"scope {self.scope} {remedy}")
        return self

    @property
    def subject(self) -> str:
        """As the command line names it, e.g. `namespace/team-a`."""
        return self.scope if self.name is None else f"{self.scope}/{self.name}"

    @property
    def until_seconds(self) -> float | None:
        """Unix seconds; None: until it is deleted."""
        return None if self.until is None else self.until.timestamp()

    def message(self, name: str) -> str:
        """What a job under it says of it; `name` is the object's."""
        effect = "" if self.effect == "Freeze" else f", as in mode {self.effect}"
        until = "" if self.until is None else f", until {self.until.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
        return f"Freeze {name} ({self.subject}{effect}{until})" + (f": {self.reason}" if self.reason else "")


def parse_scope(text: str) -> tuple[FreezeScope, str | None]:
    """`all`, `namespace/NAME`, `node/NAME` or `policy/NAME`; UsageError for anything else."""
    if text == "all":
        return "all", None
    kind, _, name = text.partition("/")
    scope = _NAMED_SCOPES.get(kind)
    if scope is not None and _NAME.fullmatch(name):
        return scope, name
    raise UsageError(f"{text!r} is no scope; write all, namespace/NAME, node/NAME or policy/NAME.")


def in_utc(seconds: float) -> datetime:
    """Unix seconds as a Freeze has them: UTC, whole seconds."""
    return datetime.fromtimestamp(int(seconds), UTC)
