"""A small API server, and the options by which a command reaches it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.api_server import ApiServer


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """Without objects."""
    with ApiServer() as running:
        yield running


@pytest.fixture
def reach(server: ApiServer, tmp_path: Path) -> tuple[str, str]:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(server.kubeconfig)
    return "--kubeconfig", str(kubeconfig)
