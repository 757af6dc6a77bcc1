"""An API server for the commands that read a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.api_server import ApiServer


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        yield running


@pytest.fixture
def reach(server: ApiServer, tmp_path: Path) -> tuple[str, str]:
    """The options by which a command reaches it."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(server.kubeconfig)
    return "--kubeconfig", str(kubeconfig)
