"""The schema of `Freeze`: what a user or an alert writes, and the state that the controller reports."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from slopewise.config.freeze import FreezeSpec
from slopewise.crds.conditions import StatusPart

FreezeState = Literal["InForce", "Ended"]


class FreezeStatus(StatusPart):
    """Written by the controller that leads."""

    state: FreezeState | None = Field(None, description="InForce, or Ended once its time is over or its alert resolved")
    since: datetime | None = Field(None, description="when the controller first saw it so")


class Freeze(StatusPart):
    """Stops changes of some or of all jobs, without a change of their policies."""

    spec: FreezeSpec
    status: FreezeStatus = FreezeStatus()
