"""The served models: what they answer, what they export, under which load, and with which objectives."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.waiting import eventually

from slopewise.demo.serving.catalogue import SERVED_MODELS, ServedModel, serving_jobs
from slopewise.demo.serving.server import ModelServer, keep_busy
from slopewise.errors import SlopewiseError

NAMES = list(SERVED_MODELS)


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def responses(url: str) -> tuple[float, float]:
    """Count and sum of the histogram."""
    page = fetch(f"{url}/metrics")
    found = [
        re.search(rf'^inference_response_duration_seconds_{end}{{outcome="ok"}} (\S+)$', page, re.MULTILINE)
        for end in ("count", "sum")
    ]
    return tuple(float(match[1]) for match in found if match)  # type: ignore[return-value]


@contextmanager
def served(*arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A served model as a process, once it answers."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "slopewise.demo.serving", *arguments],
        env={**os.environ, "SLOPEWISE_EXPORTER_PORT": "0", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().rpartition(" ")[2].strip()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


# --- the models -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_served_model_reads_real_digits(name: str) -> None:
    predictor = ServedModel(name, 449, 0.5).load()
    answer = predictor.answer(0)
    right = sum(output == label for output, label in zip(answer, predictor.labels, strict=True))
    assert right / len(answer) > 0.95
    assert predictor.answer(0) == answer


# --- the server -------------------------------------------------------------------------------------------


def test_an_answer_is_counted_with_the_time_it_took() -> None:
    with ModelServer("127.0.0.1", 0, lambda request: [request, request + 1]) as server:
        assert responses(server.url) == (0, 0)
        assert json.loads(fetch(f"{server.url}/predict/7")) == {"predictions": [7, 8]}
        assert eventually(lambda: responses(server.url)[0] == 1)
        assert responses(server.url)[1] > 0
        assert "process_start_time_seconds" in fetch(f"{server.url}/metrics")


def test_a_port_that_is_taken_is_reported_in_one_sentence() -> None:
    with ModelServer("127.0.0.1", 0, lambda request: [request]) as server:
        port = server.server_address[1]
        with pytest.raises(SlopewiseError, match=rf"127.0.0.1:{port} cannot be served \(.*\); choose another port\."):
            ModelServer("127.0.0.1", port, lambda request: [request])


def test_the_load_sends_one_request_after_another_and_fails_with_one_since_the_server_would_only_idle(
    capfd: pytest.CaptureFixture[str],
) -> None:
    asked: list[int] = []

    def answer(request: int) -> list[int]:
        asked.append(request)
        if request == 5:
            raise ValueError("no such digit")
        return [request]

    with ModelServer("127.0.0.1", 0, answer) as server, pytest.raises(SlopewiseError, match=r"request 5 failed \("):
        keep_busy(server.url, time.monotonic() + 300)
    assert asked == [0, 1, 2, 3, 4, 5]
    assert "no such digit" in capfd.readouterr().err


def test_the_load_ends_in_the_midst_of_a_request_when_its_time_is_over() -> None:
    may_answer = threading.Event()

    def answer(request: int) -> list[int]:
        may_answer.wait(180)
        return [request]

    with ModelServer("127.0.0.1", 0, answer) as server:
        keep_busy(server.url, time.monotonic() + 0.1)
        may_answer.set()


# --- the process ------------------------------------------------------------------------------------------


@pytest.mark.processes
def test_a_served_model_is_busy_from_its_start_and_ends_politely() -> None:
    with served("digits-kernel", "--seconds", "600") as (process, url):
        assert eventually(lambda: responses(url)[0] >= 3)
        count, seconds = responses(url)
        assert seconds / count > 0.01
        os.killpg(process.pid, signal.SIGTERM)  # to the whole group
        _, complaints = process.communicate(timeout=180)
        assert (process.returncode, complaints) == (143, "")


@pytest.mark.processes
def test_a_served_model_ends_when_its_time_is_over() -> None:
    with served("digits-kernel", "--seconds", "0.5") as (process, _):
        _, complaints = process.communicate(timeout=180)
    assert (process.returncode, complaints) == (0, "")


# --- the job list -----------------------------------------------------------------------------------------


REQUEST_CPU_SECONDS = {
    "digits-forest": 0.20, "digits-kernel": 0.12, "digits-neighbours": 0.18, "digits-perceptron": 0.07
}  # fmt: skip
"""Measured on a 2.6 GHz server."""


@pytest.mark.parametrize("cores", [1, 2, 3, 4, 5, 7, 64])
def test_on_any_machine_all_objectives_can_be_kept_and_an_even_split_keeps_half_of_them(cores: float) -> None:
    jobs = serving_jobs(cores)
    needed = [REQUEST_CPU_SECONDS[job.command[4]] / (job.objectives.qoe_seconds or 0.0) for job in jobs]
    even = cores / len(jobs)
    assert sum(needed) == pytest.approx(0.8 * cores, rel=0.02)
    assert max(needed) <= 1
    assert sum(one > 1.1 * even for one in needed) == len(jobs) / 2
    assert len({job.name for job in jobs}) == len(jobs)
