"""The record of one simulated run under FlowCon, which the tests of a record read and do not change."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.recorded_runs import Recorded, a_document, record_run, three_jobs


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    path = tmp_path_factory.mktemp("recorded") / "record.jsonl"
    with pytest.MonkeyPatch.context() as monkeypatch:
        reports = record_run(monkeypatch, three_jobs(), a_document("flowcon"), path)
    return Recorded(path, reports)


@pytest.fixture
def path(recorded: Recorded, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copy(recorded.path, tmp_path))
