"""Reads an object that may be missing; writes one, again after a conflict: client-go's RetryOnConflict."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TypeVar

from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.protocol import Api, Json

T = TypeVar("T")
K = TypeVar("K")
R = TypeVar("R")


def get_or_none(api: Api, path: str) -> Json | None:
    """The object; None: there is none, or no such kind. ApiError when it cannot be read."""
    try:
        return api.get(path)
    except ApiError as error:
        if error.is_not_found:
            return None
        raise


def update(
    write: Callable[[T | K], R],
    read: Callable[[], T],
    known: K | None = None,
    *,
    tries: int = 2,
    again: Callable[[ApiError], bool] = attrgetter("is_conflict"),
) -> R:
    """What `write` returns for the object `known`, or for the one read; after an error for `again` it is read again.

    `write` decides by the object that it gets, and may write nothing. ApiError of the last try, and of every other
    error.
    """
    for left in reversed(range(tries)):
        found, known = read() if known is None else known, None
        try:
            return write(found)
        except ApiError as error:
            if not left or not again(error):
                raise
    raise AssertionError("an update takes at least one try")
