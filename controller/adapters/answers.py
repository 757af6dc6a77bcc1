"""What every client of an HTTP server does with an answer: its body within bounds, and words for one that never came.

Before it: `prometheus_http.py` and `kube/api.py`, which send. After it: each makes its own exception of what is raised
here, because only the clients know what a failure means to a pass or to a write.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

CHUNK_BYTES = 64 * 1024

KNOWN_WORDS: Mapping[str, str] = {
    "Connection refused": "connection refused",
    "Failed to resolve": "its host name is unknown",
    "Remote end closed": "it closed the connection",
    "Connection reset": "it closed the connection",
}
"""What is in the text of an exception that three layers have wrapped, and what a person is told instead."""


def words_for(text: str, known: Mapping[str, str] = KNOWN_WORDS) -> str | None:
    """The words of the first entry that is in the text of an exception, e.g. `connection refused`."""
    return next((words for part, words in known.items() if part in text), None)


def whole_body(response: Any, deadline: float, most_bytes: int) -> bytes:
    """The body of a urllib3 response that was not preloaded, read to its end; then the connection is free again.

    `deadline` is in seconds of `time.monotonic`: a timeout bounds each read only, and a server that drips a byte a
    second would hold its reader for ever. Raises TimeoutError past it, OSError past `most_bytes`, and urllib3's errors.
    """
    body = bytearray()
    with closing(response):  # a connection that was read to its end is already back in the pool
        while chunk := response.read1(CHUNK_BYTES, decode_content=True):
            body += chunk
            if time.monotonic() > deadline:
                raise TimeoutError
            if len(body) > most_bytes:
                raise OSError(f"more than {most_bytes // 2**20} MiB of answer")
    return bytes(body)
