"""A test-bed's folder without a cluster in it, and components that only sleep."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.processes import Processes, State, boot_id
from testbed.settings import DEFAULT_KUBERNETES_VERSION, Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(run_folder=tmp_path / "run", cache_folder=tmp_path / "cache")


@pytest.fixture
def processes(settings: Settings) -> Iterator[Processes]:
    settings.run_folder.mkdir()
    state = State(kubernetes_version=DEFAULT_KUBERNETES_VERSION, boot_id=boot_id(), ctr="", complete=True)
    found = Processes(settings.run_folder, state)
    found.save()
    yield found
    left = Processes.load(settings.run_folder)
    assert left is not None
    left.end(left.state.components, at_once=True)
