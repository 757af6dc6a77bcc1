"""The Python that has the frameworks (`make test-frameworks`): together they are 7 GB, and nothing else needs them."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.killing import REPORTING

EXPORTERS = Path(__file__).parents[2] / "exporters"
TRAININGS = Path(__file__).parent / "trainings"
RANKS = 2


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


@pytest.fixture
def run_training(python: str, environment: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """One of the trainings to its end."""

    def run(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [python, str(TRAININGS / f"{name}.py"), *map(str, arguments)],
            env={**os.environ, **REPORTING, **environment},
            capture_output=True,
            text=True,
            timeout=600,
        )

    return run


@pytest.fixture
def start_ranks(python: str, environment: dict[str, str]) -> Iterator[Callable[..., list[subprocess.Popen[str]]]]:
    """The ranks of one of the trainings; they are killed at the end, since one that waits for another never ends."""
    started: list[subprocess.Popen[str]] = []

    def start(name: str, *arguments: object) -> list[subprocess.Popen[str]]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": str(RANKS)}
        ranks = [
            subprocess.Popen(
                [python, str(TRAININGS / f"{name}.py"), *map(str, arguments)],
                env={**os.environ, **REPORTING, **environment, **group, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(RANKS)
        ]
        started.extend(ranks)
        return ranks

    yield start
    for rank in started:
        rank.kill()
        rank.communicate()
