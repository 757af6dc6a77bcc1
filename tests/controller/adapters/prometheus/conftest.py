"""A server that answers as a test sets it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.fake_prometheus import FakePrometheus


@pytest.fixture
def fake() -> Iterator[FakePrometheus]:
    server = FakePrometheus()
    yield server
    server.close()
