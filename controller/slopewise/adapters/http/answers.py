"""Reads the body of an HTTP answer within bounds, and names common connection failures.

Each client turns these exceptions into its own, because a failure means different things to a pass and to a write.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

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
