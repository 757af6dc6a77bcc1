"""A client of the API server that writes only while this replica holds the lease, and nothing under a Freeze.

The leader's code has only this client, so no write can bypass the lease. The elector and the sweep, which need no
lease, have the raw one (`client.KubeApi`).

Which Freeze counts depends on whom a write serves, so the actuator names the question (`unless`), and the client asks
it. The steps of a move that has begun are written without a question: a suspended Job has to be resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from slopewise.adapters.kube.client.protocol import Api, Events, Json, MayWrite
from slopewise.errors import ActuationError


class NotLeadingError(ActuationError):
    """A write was refused because another replica may hold the lease."""


class FrozenError(ActuationError):
    """A write was refused by a Freeze; the message is the reason."""


_frozen: ContextVar[Callable[[], str | None] | None] = ContextVar("frozen", default=None)


@contextmanager
def unless(frozen: Callable[[], str | None]) -> Iterator[None]:
    """Within it this thread's first write raises FrozenError, and sends nothing, where `frozen` returns a reason.

    It is asked once: what is written next belongs to the same decision, and half a move would be worse than one.
    """
    token = _frozen.set(frozen)
    try:
        yield
    finally:
        _frozen.reset(token)


def raise_if_frozen() -> None:
    """Ask now what this thread's first write would ask; FrozenError where the answer is a reason."""
    if (frozen := _frozen.get()) is not None:
        if (reason := frozen()) is not None:
            raise FrozenError(reason)
        _frozen.set(None)


class FencedApi:
    """Reads like `api`; a refused write raises NotLeadingError or FrozenError, and sends nothing. Shape: `Api`."""

    def __init__(self, api: Api, may_write: MayWrite) -> None:
        self._api = api
        self.may_write = may_write

    def server_version(self) -> tuple[int, int]:
        """As `api` says."""
        return self._api.server_version()

    def get(self, path: str, params: Mapping[str, str] | None = None, *, metadata_only: bool = False) -> Json:
        """GET."""
        return self._api.get(path, params, metadata_only=metadata_only)

    def watch(
        self, path: str, params: Mapping[str, str], *, read_timeout_seconds: float, metadata_only: bool = False
    ) -> Events:
        """An open watch."""
        return self._api.watch(path, params, read_timeout_seconds=read_timeout_seconds, metadata_only=metadata_only)

    def create(self, path: str, body: Json, params: Mapping[str, str] | None = None) -> Json:
        """POST."""
        return self._writable().create(path, body, params)

    def patch(
        self, path: str, body: Json | list[Json], content_type: str, params: Mapping[str, str] | None = None
    ) -> Json:
        """PATCH."""
        return self._writable().patch(path, body, content_type, params)

    def replace(self, path: str, body: Json, params: Mapping[str, str] | None = None) -> Json:
        """PUT."""
        return self._writable().replace(path, body, params)

    def delete(self, path: str, body: Json | None = None, params: Mapping[str, str] | None = None) -> Json:
        """DELETE."""
        return self._writable().delete(path, body, params)

    def _writable(self) -> Api:
        """The lease is checked last, because a question may take seconds."""
        raise_if_frozen()
        if not self.may_write():
            raise NotLeadingError("this replica does not lead any more; nothing was sent")
        return self._api
