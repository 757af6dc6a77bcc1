"""What the tests of one machine share: a journal, and a process that this one has not to end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slopewise.adapters.local.crash_journal import Journal


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal.open(tmp_path / "state", f"test-{os.getpid()}-{tmp_path.name}")
    yield journal
    journal.close()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process of somebody else, in a group of its own."""
    code = "import time; time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=True)
    yield process
    process.kill()
    process.wait()
