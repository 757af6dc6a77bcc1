"""A real `slopewise run` as a process, and what it costs: time, CPU and memory as the operating system counts them.

The benchmarks beside this file start one with the command that a Deployment uses, against the cluster of KUBECONFIG.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import psutil
import requests
import yaml

from slopewise.adapters.local.prometheus_server import free_loopback_port

MIB = 2**20
_POLL_SECONDS = 0.05
_STOP_SECONDS = 30.0
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB", re.MULTILINE)


class MeasuredController:
    """Runs from entry to exit. `started_at`: Unix seconds just before the process was made."""

    def __init__(
        self,
        policy: Mapping[str, object] | None,
        prometheus_url: str,
        *options: str,
        program: Sequence[str] = ("-m", "slopewise"),
    ) -> None:
        """`policy` is written to a file; it is the only one that is obeyed, whatever the cluster has.

        None: those of the cluster are. `program`: what Python runs.
        """
        self._folder = tempfile.TemporaryDirectory(prefix="slopewise-bench-")
        self._log = Path(self._folder.name) / "log"
        self._port = free_loopback_port()
        self._command = [
            sys.executable, *program, "run", "--json-logs",
            "--prometheus-url", prometheus_url, "--port", str(self._port), *options,
        ]  # fmt: skip
        if policy is not None:
            policy_file = Path(self._folder.name) / "policy.yaml"
            policy_file.write_text(yaml.safe_dump(dict(policy)), encoding="utf-8")
            self._command += ["--policy-file", str(policy_file)]

    def __enter__(self) -> Self:
        with self._log.open("w") as log:
            self.started_at = time.time()
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=dict(os.environ))
        self._seen = psutil.Process(self._process.pid)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            self._folder.cleanup()

    def stop(self) -> None:
        """End it as a kubelet would."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def passes(self, jobs: int | None = None) -> list[dict[str, Any]]:
        """The log lines of all passes, or of those that saw so many jobs, oldest first."""
        passes = [line for line in self._lines() if line.get("event") == "pass completed"]
        return [line for line in passes if jobs in (None, line.get("jobs"))]

    def wait_for_passes(self, jobs: int, count: int, timeout_seconds: float) -> list[dict[str, Any]]:
        """Until there were so many; RuntimeError with the end of its log when there are not."""
        deadline = time.monotonic() + timeout_seconds
        while len(found := self.passes(jobs)) < count:
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"no {count} passes over {jobs} jobs; its log ends with:\n{self._log_end()}")
            time.sleep(_POLL_SECONDS)
        return found

    def seconds_to(self, line: Mapping[str, Any]) -> float:
        """From the start of the process to a line of its log."""
        return datetime.fromisoformat(line["timestamp"]).timestamp() - self.started_at

    def cpu_seconds(self) -> float:
        """User and system time of all threads so far."""
        times = self._seen.cpu_times()
        return float(times.user + times.system)

    def memory_mib(self) -> float:
        """Resident now."""
        return float(self._seen.memory_info().rss / MIB)

    def peak_memory_mib(self) -> float:
        """The most that was ever resident, as the kernel has it."""
        found = _PEAK.search(Path(f"/proc/{self._process.pid}/status").read_text())
        if found is None:
            raise RuntimeError("this kernel does not report a process's peak memory (VmHWM)")
        return int(found[1]) / 1024

    def metrics(self) -> str:
        """Its /metrics, as Prometheus scrapes it."""
        with requests.Session() as session:
            session.trust_env = False  # HTTP_PROXY is not for loopback
            return session.get(f"http://127.0.0.1:{self._port}/metrics", timeout=30).text

    def _lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]

    def _log_end(self) -> str:
        return "\n".join(self._log.read_text().splitlines()[-10:])
