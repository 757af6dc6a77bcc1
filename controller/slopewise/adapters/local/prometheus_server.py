"""Runs one Prometheus on a free loopback port, with its data in a folder that is removed when it stops.

The flags used here are those that Prometheus 2.42 and 3.x share.
"""

from __future__ import annotations

import json
import shutil
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Self, TypedDict

import requests
import yaml

from slopewise.adapters.local.launcher import Command, ManagedProcess, start_unrecorded
from slopewise.adapters.local.prometheus_install import PrometheusBinaries, find_prometheus
from slopewise.adapters.local.stored_files import replace_file
from slopewise.errors import DataSourceError, UsageError

__all__ = ["PrometheusBinaries", "PrometheusServer", "TargetGroup", "find_prometheus", "free_loopback_port"]

PROCESS_NAME = "prometheus"
"""In the journal."""

_PORT_ATTEMPTS = 5
_STOP_SECONDS = 5.0
_POLL_SECONDS = 0.05
_PORT_TAKEN = "address already in use"


class TargetGroup(TypedDict):
    """Addresses that share labels, as in a file_sd file: `{"targets": ["127.0.0.1:9464"], "labels": {"pod": "a"}}`."""

    targets: list[str]
    labels: dict[str, str]


def free_loopback_port() -> int:
    """A port that was free a moment ago; another process may still take it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(slots=True)
class PrometheusServer:
    """One Prometheus process. A context manager: started on entry; process and data gone on exit."""

    binaries: PrometheusBinaries
    data_dir: Path
    """Must be missing or empty, and is removed by `stop`."""
    _: KW_ONLY
    scrape_interval_seconds: float = 1.0
    targets: Sequence[TargetGroup] = ()
    """Scraped from the start on; `set_targets` replaces them later, with a delay."""
    start_process: Callable[[Command], ManagedProcess] = start_unrecorded
    """With `Launcher.start` the process, which leads a group of its own, is in the journal before it runs, and so is
    cleaned up after a killed caller."""
    ready_timeout_seconds: float = 30.0
    free_port: Callable[[], int] = free_loopback_port
    honor_labels: bool = False
    """Lets a target choose its own labels, namespace and pod included: only for a target that represents many."""
    _process: ManagedProcess | None = field(init=False, default=None)
    _port: int = field(init=False, default=0)

    @property
    def url(self) -> str:
        """Its address; the same after `restart`."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int | None:
        """Its process id; None when it does not run."""
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def needs_restart(self) -> bool:
        """True once it has died."""
        return self.pid is None

    @property
    def log_path(self) -> Path:
        """Its log; removed with the data."""
        return self.data_dir / "prometheus.log"

    def start(self) -> None:
        """Start and wait until it answers queries; DataSourceError with the last line of its log when it does not."""
        if self.data_dir.exists() and any(self.data_dir.iterdir()):
            raise UsageError(f"{self.data_dir}: is not empty, and would be removed; give Prometheus an empty folder.")
        try:
            self._write_configuration()
            self._launch_on_a_free_port()
        except OSError as error:
            self.stop()
            raise DataSourceError(
                f"{self.data_dir}: Prometheus cannot be started there ({error.strerror}); "
                "make room or choose another folder."
            ) from error
        except BaseException:  # also Ctrl-C: nothing else ends this process yet
            self.stop()
            raise

    def stop(self) -> None:
        """End the process (SIGKILL after 5 s) and remove its data. Idempotent."""
        try:
            if self._process is not None:
                self._process.terminate(_STOP_SECONDS)
        finally:  # also when a second Ctrl-C interrupts the wait
            self.kill()
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def kill(self) -> None:
        """Kill the process. Its data remain for `restart`."""
        if self._process is not None:
            self._process.kill()

    def restart(self) -> None:
        """Start it again on the same port with the same data; DataSourceError when the port was taken meanwhile."""
        self.kill()
        if not self._launch():
            raise self._failure(f"cannot start again: port {self._port} was taken", "stop what took it")

    def set_targets(self, groups: Sequence[TargetGroup]) -> None:
        """Replace the targets. The file is renamed into place, so Prometheus never reads an incomplete one.

        New targets are scraped within about 6 s: Prometheus takes over changed targets every 5 s, and its hidden
        flag for that cannot lower it. Targets that are named before their process starts lose no time.
        """
        replace_file(self.data_dir / "targets.json", json.dumps(list(groups)).encode())
        self.targets = groups

    def wait_for_targets(self, timeout_seconds: float = 15.0) -> None:
        """Wait until it scrapes its targets, which takes about 5 s.

        Without this the first seconds of a run would have no samples. DataSourceError when it never does.
        """
        expected = sum(len(group["targets"]) for group in self.targets)
        deadline = time.monotonic() + timeout_seconds
        while True:
            with suppress(requests.RequestException, ValueError, KeyError):
                if len(self._get("/api/v1/targets?state=active").json()["data"]["activeTargets"]) >= expected:
                    return
            if time.monotonic() >= deadline:
                raise self._failure(f"knows fewer than {expected} targets after {timeout_seconds:g} s", "try again")
            time.sleep(_POLL_SECONDS)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _write_configuration(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.set_targets(self.targets)
        config = self.data_dir / "prometheus.yml"
        settings = _configuration(self.scrape_interval_seconds, honor_labels=self.honor_labels)
        config.write_text(yaml.safe_dump(settings), encoding="utf-8")

    def _launch_on_a_free_port(self) -> None:
        for _ in range(_PORT_ATTEMPTS):
            self._port = self.free_port()
            if self._launch():
                return
        raise self._failure(f"found its port taken {_PORT_ATTEMPTS} times", "try again")

    def _launch(self) -> bool:
        """Start a process and wait until it is ready. False: another process has the port."""
        self.log_path.touch()
        log_start = self.log_path.stat().st_size
        self._process = process = self.start_process(self._command())
        deadline = time.monotonic() + self.ready_timeout_seconds
        while process.poll() is None and time.monotonic() < deadline:
            if self._is_ready():
                return True
            time.sleep(_POLL_SECONDS)
        ended = process.poll()
        self.kill()
        output = self.log_path.read_bytes()[log_start:].decode(errors="replace").strip()
        if _PORT_TAKEN in output:
            return False
        what = f"was not ready within {self.ready_timeout_seconds:g} s" if ended is None else f"ended with {ended}"
        raise self._failure(what, f"its log ends with: {output.splitlines()[-1] if output else 'nothing'}")

    def _command(self) -> Command:
        """One thread is enough for some dozens of targets and leaves the other cores to the trainings."""
        return Command(
            PROCESS_NAME,
            [str(self.binaries.prometheus.absolute()), *self._flags()],
            self.log_path.absolute(),
            environment={"GOMAXPROCS": "1"},
            working_directory=self.data_dir.absolute(),
        )

    @property
    def _tsdb_dir(self) -> Path:
        return self.data_dir.absolute() / "tsdb"

    def _flags(self) -> list[str]:
        return [
            f"--config.file={self.data_dir.absolute() / 'prometheus.yml'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
            f"--storage.tsdb.path={self._tsdb_dir}",
            "--storage.tsdb.retention.time=1h",
            "--log.level=warn",
        ]

    def _is_ready(self) -> bool:
        """True when this process is ready; another Prometheus could have taken the port meanwhile."""
        with suppress(requests.RequestException, ValueError, KeyError):
            if self._get("/-/ready").ok:
                flags = self._get("/api/v1/status/flags").json()["data"]
                return bool(flags["storage.tsdb.path"] == str(self._tsdb_dir))
        return False

    def _get(self, path: str) -> requests.Response:
        with requests.Session() as session:
            session.trust_env = False  # HTTP_PROXY is not for loopback
            return session.get(f"{self.url}{path}", timeout=1)

    def _failure(self, what: str, remedy: str) -> DataSourceError:
        return DataSourceError(f"Prometheus {self.binaries.version} ({self.binaries.prometheus}) {what}; {remedy}.")


def _configuration(scrape_interval_seconds: float, *, honor_labels: bool) -> dict[str, object]:
    """One job of file targets. With `honor_labels: false` a process cannot choose its namespace or pod."""
    interval = f"{round(scrape_interval_seconds * 1000)}ms"
    return {
        "global": {"scrape_interval": interval, "scrape_timeout": interval},
        "scrape_configs": [
            {
                "job_name": "slopewise",
                "honor_labels": honor_labels,
                "file_sd_configs": [{"files": ["targets.json"], "refresh_interval": "5s"}],
            }
        ],
    }
