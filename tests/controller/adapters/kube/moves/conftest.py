"""A Job on a small API server, with what Kubernetes does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.api_server import ApiServer
from support.suspended_jobs import Yard


@pytest.fixture
def yard(server: ApiServer) -> Iterator[Yard]:
    """At the end nothing has happened that Kubernetes refuses, and no two pods of one slot have lived at once."""
    yard = Yard(server)
    yield yard
    assert yard.violations == []
