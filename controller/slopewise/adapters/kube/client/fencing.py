"""A client of the API server that writes only while this replica holds the lease.

The leader's code has only this client, so no write can bypass the lease. The elector and the sweep, which need no
lease, have the raw one (`client.KubeApi`).
"""

from __future__ import annotations

from collections.abc import Mapping

from slopewise.adapters.kube.client.protocol import Api, Events, Json, MayWrite
from slopewise.errors import ActuationError


class NotLeadingError(ActuationError):
    """A write was refused because another replica may hold the lease."""


class FencedApi:
    """Reads like `api`; each write raises NotLeadingError, and sends nothing, unless `may_write`. Shape: `Api`."""

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
        if not self.may_write():
            raise NotLeadingError("this replica does not lead any more; nothing was sent")
        return self._api
