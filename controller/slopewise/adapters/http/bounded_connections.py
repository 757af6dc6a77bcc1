"""urllib3 connections that bound connecting, the TLS handshake and an answer's headers by one deadline.

urllib3's timeout bounds each read, so a server or proxy that sends a byte at a time would hold a thread forever.
After the headers, `answers.whole_body` bounds the body.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError

from slopewise.adapters.http.timeouts import Deadlines

_DEADLINES = Deadlines()
_T = TypeVar("_T")
_MIN_SECONDS = 0.001
"""Zero would mean without blocking."""


class _InTime:
    """Hangs up when connecting, with TLS and a proxy's answer, or the headers take longer than the timeout."""

    host: str
    timeout: float | None
    sock: socket.socket | None

    def connect(self) -> None:
        try:
            self._in_time(super().connect)  # type: ignore[misc]
        except TimeoutError as error:  # distinct from a timeout of the answer: nothing was sent yet
            raise ConnectTimeoutError(self, f"Connection to {self.host} timed out.") from error

    def getresponse(self) -> Any:
        return self._in_time(super().getresponse)  # type: ignore[misc]

    def _new_conn(self) -> socket.socket:
        """TLS has what the way to the server has left: Python bounds a handshake as a whole, by this timeout."""
        began = time.monotonic()
        sock: socket.socket = super()._new_conn()  # type: ignore[misc]
        if self.timeout is not None:
            sock.settimeout(max(_MIN_SECONDS, self.timeout - (time.monotonic() - began)))
        return sock

    def _in_time(self, step: Callable[[], _T]) -> _T:
        with _DEADLINES.acting(self.timeout or 0.0, self._hang_up) as deadline:
            try:
                result = step()
            except Exception as error:
                if deadline.missed:
                    raise TimeoutError from error
                raise
        if deadline.missed:  # to http.client the headers simply ended there
            raise TimeoutError
        return result

    def _hang_up(self) -> None:
        sock = self.sock
        with suppress(OSError):
            if sock is not None:
                sock.shutdown(socket.SHUT_RDWR)


class _Connection(_InTime, HTTPConnection):
    pass


class _SecureConnection(_InTime, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


BOUNDED_POOLS: Mapping[str, type[HTTPConnectionPool]] = {"http": _Pool, "https": _SecurePool}
"""For `pool_classes_by_scheme` of a urllib3 pool manager."""
