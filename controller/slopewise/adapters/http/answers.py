"""Bounds the time and size of an HTTP answer, and names common connection failures.

urllib3's timeout bounds each read, so a server or proxy that sends a byte at a time would hold a thread forever. With
`BOUNDED_POOLS`, connecting (with TLS and a proxy's answer) takes one timeout, and an answer's headers take another;
`whole_body` reads the body within a deadline.

Each client turns these exceptions into its own, because a failure means different things to a pass and to a write.
"""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Mapping
from contextlib import closing
from http.client import HTTPResponse
from typing import Any

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError

CHUNK_BYTES = 64 * 1024

KNOWN_FAILURES: Mapping[str, str] = {
    "Connection refused": "connection refused",
    "Failed to resolve": "its host name is unknown",
    "Remote end closed": "it closed the connection",
    "Connection reset": "it closed the connection",
}
"""Text within a wrapped exception, and the message that replaces it."""


def known_failure(text: str, known: Mapping[str, str] = KNOWN_FAILURES) -> str | None:
    """The message of the first entry that is in the text of an exception, e.g. `connection refused`."""
    return next((message for part, message in known.items() if part in text), None)


def whole_body(response: Any, deadline: float, max_bytes: int) -> bytes:
    """The body of a urllib3 response that was not preloaded, read to its end; then the connection is free again.

    `deadline` is in seconds of `time.monotonic`: a timeout bounds each read only, and a server that sends a byte a
    second would hold its reader forever. Raises TimeoutError past it, OSError past `max_bytes`, and urllib3's
    errors.
    """
    body = bytearray()
    with closing(response):  # a connection that was read to its end is already back in the pool
        while chunk := response.read1(CHUNK_BYTES, decode_content=True):
            body += chunk
            if time.monotonic() > deadline:
                raise TimeoutError
            if len(body) > max_bytes:
                raise OSError(f"more than {max_bytes // 2**20} MiB of answer")
    return bytes(body)


_MIN_SECONDS = 0.001
"""Zero would mean without blocking."""


class _InTime(io.RawIOBase):
    """What comes over a socket: until `end`, all reads together take no longer than its timeout."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket) -> None:
        self._raw = raw
        self._sock = sock
        self._seconds = sock.gettimeout()
        self._deadline = None if self._seconds is None else time.monotonic() + self._seconds

    def end(self) -> None:
        """From now on the timeout is that of each read."""
        self._deadline = None
        self._sock.settimeout(self._seconds)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._deadline is not None:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("timed out")
            self._sock.settimeout(max(_MIN_SECONDS, left))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(HTTPResponse):
    """One whose headers come as a whole within the timeout of its socket."""

    def __init__(self, sock: socket.socket, *args: Any, **more: Any) -> None:
        super().__init__(sock, *args, **more)
        self._headers = _InTime(self.fp.detach(), sock)
        self.fp = io.BufferedReader(self._headers)

    def begin(self) -> None:
        super().begin()
        self._headers.end()


class _Bounded:
    """What both kinds of connections do so."""

    host: str
    timeout: float | None
    response_class: type[HTTPResponse] = _Response  # also of the answer of a proxy that opens a tunnel

    def connect(self) -> None:
        try:
            super().connect()  # type: ignore[misc]
        except TimeoutError as error:  # distinct from a timeout of the answer: nothing was sent yet
            raise ConnectTimeoutError(self, f"Connection to {self.host} timed out.") from error

    def _new_conn(self) -> socket.socket:
        """TLS has what the way to the server has left: Python bounds a handshake as a whole, by this timeout."""
        began = time.monotonic()
        sock: socket.socket = super()._new_conn()  # type: ignore[misc]
        if self.timeout is not None:
            sock.settimeout(max(_MIN_SECONDS, self.timeout - (time.monotonic() - began)))
        return sock


class _Connection(_Bounded, HTTPConnection):
    pass


class _SecureConnection(_Bounded, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


BOUNDED_POOLS: Mapping[str, type[HTTPConnectionPool]] = {"http": _Pool, "https": _SecurePool}
"""For `pool_classes_by_scheme` of a urllib3 pool manager."""
