"""A file of a session is replaced whole or not at all, and where that fails one sentence says why."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from slopewise.adapters.local.queue_file import QueueFile
from slopewise.adapters.local.stored_files import made_folder, replace_file
from slopewise.errors import SlopewiseError


def test_a_full_disk_leaves_the_former_file(tmp_path: Path) -> None:
    path = tmp_path / "mode"
    replace_file(path, b"Auto", durable=True)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))  # bytes; then it is full
    try:
        with pytest.raises(SlopewiseError, match=r"mode: cannot be written \(File too large\); make room"):
            replace_file(path, b"x" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b"Auto"


def test_a_folder_that_cannot_be_made_or_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SlopewiseError, match=r"file/logs: cannot be made \(Not a directory\)"):
        made_folder(tmp_path / "file" / "logs")
    with pytest.raises(SlopewiseError, match=r"gone/mode: cannot be written \(No such file or directory\)"):
        QueueFile(tmp_path / "gone" / "queue.json").save_mode("Auto")
