"""What all sources have in common: a log, a CSV file, event files, the run folders of MLflow and Weights & Biases."""

from __future__ import annotations

from typing import Any, Callable, Protocol

from slopewise_exporter.logs import Found

Take = Callable[[Found, "float | None"], None]
"""Gets what is found, and when it was written where that is in the past."""


class SourceError(Exception):
    """A source that cannot be read at all; the message is one sentence for its user."""


class Source(Protocol):
    """Something that a training writes, and that is followed while it does."""

    where: str
    """For messages."""

    @property
    def ended(self) -> bool:
        """Whether it says itself that the training has ended."""

    @property
    def failed(self) -> bool:
        """Whether the last that it says is that the training has failed."""

    @property
    def position(self) -> dict[str, Any]:
        """What `resume` takes; JSON."""

    def resume(self, position: dict[str, Any]) -> None:
        """Go on where another one was. KeyError, TypeError or ValueError where it is no position."""

    def poll(self) -> bool:
        """Hand over what is there, a limited amount at a time; False: there is nothing now. Never raises."""

    def wait(self, seconds: float) -> None:
        """Until there may be more."""

    def close(self) -> None:
        """Hand over what is left, and let go of files."""
