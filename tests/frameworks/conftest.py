"""The Python that has the frameworks (`make test-frameworks`): together they are 5 GB, and nothing else needs them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

EXPORTERS = Path(__file__).parents[2] / "exporters"


@pytest.fixture(scope="session")
def python() -> str:
    """Of the frameworks' own virtual environment."""
    path = os.environ.get("SLOPEWISE_FRAMEWORKS", "")
    if not path:
        pytest.skip("the frameworks are not installed: run `make test-frameworks`")
    return path


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """What makes a training the same every time: one thread, no accelerator, one order of hashes."""
    return {
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONHASHSEED": "0",
        "KERAS_BACKEND": "torch",
        "PYTHONPATH": str(EXPORTERS),
    }
