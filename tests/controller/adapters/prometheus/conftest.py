"""A server that answers as a test sets it, and a real Prometheus that scrapes pages that a test writes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.exporters import Scraped, scraped
from support.fake_prometheus import FakePrometheus

from slopewise.adapters.local.prometheus_server import PrometheusBinaries


@pytest.fixture
def fake() -> Iterator[FakePrometheus]:
    with FakePrometheus() as server:
        yield server


@pytest.fixture(scope="module")
def pages(prometheus_binaries: PrometheusBinaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    """The pages of one file's tests, of which none is scraped yet."""
    with scraped(prometheus_binaries, tmp_path_factory.mktemp("prometheus")) as made:
        yield made
