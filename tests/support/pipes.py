"""The pipes of a process that was started with them."""

from __future__ import annotations

from typing import IO, AnyStr


def piped(stream: IO[AnyStr] | None) -> IO[AnyStr]:
    """Its standard input, output or error, which `Popen` has where it was asked to make a pipe."""
    assert stream is not None
    return stream
