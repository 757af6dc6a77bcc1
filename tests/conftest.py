"""What several test folders share: a real Prometheus, found or brought once."""

from __future__ import annotations

import pytest

from controller.adapters.prometheus_server import PrometheusBinaries, find_prometheus
from controller.errors import MissingToolError


@pytest.fixture(scope="session")
def prometheus_binaries() -> PrometheusBinaries:
    """A Prometheus that runs; tests that need one are skipped, with the reason, where none can be had."""
    try:
        return find_prometheus()
    except MissingToolError as error:
        pytest.skip(str(error))
