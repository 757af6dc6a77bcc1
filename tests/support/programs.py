"""Programs of others that tests run on this machine: built where that is needed, and asked by HTTP."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
import yaml
from support.waiting import eventually

from slopewise.adapters.local.prometheus_server import PrometheusBinaries, free_loopback_port
from slopewise.errors import MissingToolError
from testbed.builds import Build, bring
from testbed.progress import Progress
from testbed.settings import read_settings


def built(build: Build) -> Path:
    """The folder of its programs, built now when the cache has none; the test is skipped where it cannot be."""
    try:
        return bring(build, read_settings().cache_folder, Progress(sys.stderr))
    except MissingToolError as error:
        pytest.skip(str(error))


def ask(url: str, timeout_seconds: float = 10.0, **parameters: str) -> requests.Response:
    """Past any proxy."""
    with requests.Session() as session:
        session.trust_env = False
        return session.get(url, params=parameters, timeout=timeout_seconds)


def is_ok(url: str) -> bool:
    """Whether it answers, and says yes."""
    try:
        return ask(url, 1.0).ok
    except requests.RequestException:
        return False


@contextmanager
def running(
    command: Sequence[object], log: Path, ready: Callable[[], object], **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A program from when it is ready until the block ends; what it writes is in `log`."""
    words, variables = [str(each) for each in command], {**os.environ, **environment}
    with log.open("wb") as output:
        process = subprocess.Popen(
            words, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        assert eventually(lambda: process.poll() is not None or ready(), 60), log.read_text()[-3000:]
        assert process.poll() is None, log.read_text()[-3000:]
        yield process
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def prometheus_with(
    configuration: Mapping[str, object], binaries: PrometheusBinaries, folder: Path, *flags: str
) -> Iterator[str]:
    """The URL of a Prometheus with all of its configuration a test's own; its data is in `folder/data`."""
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    url = f"http://127.0.0.1:{free_loopback_port()}"
    command = [
        binaries.prometheus,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--web.listen-address={url.removeprefix('http://')}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--log.level=warn",
        *flags,
    ]
    with running(command, folder / "log", lambda: is_ok(f"{url}/-/ready")):
        yield url
