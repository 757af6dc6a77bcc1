"""What the commands ask of the session on this machine, and what it answers; one JSON line each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from slopewise.adapters.local.service_socket import ask, service_folder
from slopewise.errors import DataSourceError, SlopewiseError, UsageError
from slopewise.reports.trials import Trial


class Submit(msgspec.Struct, tag=True, frozen=True):
    """Take these jobs."""

    document: Any
    """As a jobs file has them."""
    where: str
    """What messages call their source."""
    folder: str
    """What relative folders are below."""
    environment: dict[str, str]
    renames: bool = False
    """A name that is taken gets a number."""


class Attach(msgspec.Struct, tag=True, frozen=True):
    """Take a process that runs already."""

    pid: int
    entry: dict[str, Any]
    """As a jobs file has it, with the command of the process."""
    renames: bool = False
    """A name that is taken gets a number."""


class Jobs(msgspec.Struct, tag=True, frozen=True):
    """What there is."""


class Cancel(msgspec.Struct, tag=True, frozen=True):
    """End these jobs, those of a study, or all."""

    names: list[str] = []
    study: str = ""
    everything: bool = False


class SetMode(msgspec.Struct, tag=True, frozen=True):
    """Decide in another mode from now on."""

    mode: str


Request = Submit | Attach | Jobs | Cancel | SetMode


class JobAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """One job; times are Unix seconds, None: not reached, or not known."""

    name: str
    state: str
    study: str = ""
    submitted_at_seconds: float | None = None
    started_at_seconds: float | None = None
    finished_at_seconds: float | None = None
    exit_status: int | None = None
    attempt: int = 0
    steps: float | None = None
    steps_planned: float | None = None
    loss_first: float | None = None
    loss_last: float | None = None
    cpu_seconds: float | None = None
    reason: str = ""
    """Why it waits, what was decided last, or how it has ended."""
    log: str = ""
    pid: int | None = None
    fair_seconds: tuple[float, float, float] | None = None
    """When fair sharing would have ended it: expected, at the earliest, at the latest."""
    status: dict[str, Any] | None = None
    """As a JobGrowth has it, with its history; None: no pass has seen it."""
    trial: Trial | None = None
    """As one of its study; None: it has none."""


class SessionAnswer(msgspec.Struct, frozen=True):
    """The session."""

    holder: str
    pid: int
    policy: str
    mode: str
    way: str
    """How CPU is given."""
    prometheus: str
    port: int
    passes: int
    held: str
    """Why nothing is changed; empty: passes observe."""
    max_running: int | None
    brought: str = ""
    """What the jobs that have ended took, beside what fair sharing would have taken; empty: not known."""


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of a request."""

    error: str = ""
    """One sentence; empty: it was done."""
    exit_code: int = 0
    names: list[str] = []
    """The jobs that were taken or cancelled."""
    session: SessionAnswer | None = None
    jobs: list[JobAnswer] = []


_ERRORS: Mapping[int, type[SlopewiseError]] = {2: UsageError, 4: DataSourceError}


def asked(request: Request) -> Answer:
    """The answer of this user's session; an error is raised as the session has it."""
    try:
        line = msgspec.json.encode(request)
    except UnicodeEncodeError as error:
        raise UsageError("the command, or its folder, is not UTF-8 text; rename what it names.") from error
    answer = msgspec.json.decode(ask(service_folder(), line), type=Answer)
    if answer.error:
        raise _ERRORS.get(answer.exit_code, SlopewiseError)(answer.error)
    return answer


def session_and_jobs() -> tuple[SessionAnswer, list[JobAnswer]]:
    """The session, and its jobs in the order in which they came."""
    answer = asked(Jobs())
    assert answer.session is not None  # noqa: S101 - every answer to this request has one
    return answer.session, answer.jobs
