"""An answer is read to its end within its bounds, or not at all; what broke is reported in known words."""

from __future__ import annotations

import io
import math
import time

import pytest
from urllib3 import HTTPResponse

from slopewise.adapters.http.answers import CHUNK_BYTES, known_failure, whole_body

MEBIBYTE = 2**20


def answer(size_bytes: int) -> HTTPResponse:
    return HTTPResponse(io.BytesIO(b"x" * size_bytes), preload_content=False)


def test_a_body_of_many_chunks_is_read_to_its_end_and_closed() -> None:
    response = answer(3 * CHUNK_BYTES + 1)
    assert len(whole_body(response, math.inf, MEBIBYTE)) == 3 * CHUNK_BYTES + 1
    assert response.closed


def test_a_body_that_is_too_large_or_late_is_given_up_and_closed() -> None:
    assert len(whole_body(answer(MEBIBYTE), math.inf, MEBIBYTE)) == MEBIBYTE
    response = answer(MEBIBYTE + 1)
    with pytest.raises(OSError, match="more than 1 MiB of answer"):
        whole_body(response, math.inf, MEBIBYTE)
    assert response.closed
    with pytest.raises(TimeoutError):
        whole_body(answer(1), time.monotonic() - 1, MEBIBYTE)


def test_words_are_those_of_what_is_known_and_none_for_the_rest() -> None:
    assert known_failure("MaxRetryError(… [Errno 111] Connection refused)") == "connection refused"
    assert known_failure("Connection refused", {"refused": "said no"}) == "said no"
    assert known_failure("something else") is None
