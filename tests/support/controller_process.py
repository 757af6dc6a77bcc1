"""The controller as a process outside the cluster, behind gateways of the test's own: started, watched, killed.

`fault_stage.py` makes these. The process is `slopewise run` as a user starts it, so that what a test sees is what a
pod would do; its log lines and metrics are what a test reads.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from support.rendering import ROOT
from support.waiting import wait_for

PROGRAM = Path(__file__).with_name("moving_controller.py")
"""`slopewise` with the policies of the tests."""

_STARTS_WITHIN_SECONDS = 180.0
_ENDS_WITHIN_SECONDS = 30.0
_PORT = re.compile(r"/metrics on 127\.0\.0\.1:(\d+)\.")


class ControllerProcess:
    """One replica. `log`: the file that its output goes to. `checkout`: of another version."""

    def __init__(self, arguments: Sequence[str], log: Path, checkout: Path | None = None) -> None:
        self._log = log
        program, environment = PROGRAM, {**os.environ, "NO_PROXY": "*"}
        if checkout is not None:
            program = checkout / PROGRAM.relative_to(ROOT)
            environment["PYTHONPATH"] = os.pathsep.join(str(checkout / part) for part in ("controller", "exporters"))
        command = [sys.executable, str(program), "run", "--json-logs", "--port", "0", *arguments]
        with log.open("wb") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)

    @property
    def text(self) -> str:
        """All that it has written so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def lines(self, event: str) -> list[dict[str, Any]]:
        """Its log lines of one kind, e.g. `pass`; the oldest first."""
        complete = self.text.rpartition("\n")[0].splitlines()
        found = (json.loads(line) for line in complete if line.startswith("{"))
        return [line for line in found if line["event"] == event]

    def wait_for_line(self, event: str, times: int = 1, seconds: float = 180.0) -> dict[str, Any]:
        """Wait until it has logged this so many times; returns the last of them."""
        wait_for(
            f"the controller logs {event!r} {times} times",
            lambda: self.text[-2000:],
            lambda _: len(self.lines(event)) >= times,
            seconds,
        )
        return self.lines(event)[times - 1]

    def wait_until_ready(self) -> None:
        """Until /readyz says so: everything that it watches has been read."""
        wait_for("the controller is ready", self.readiness, lambda seen: seen.startswith("200"), _STARTS_WITHIN_SECONDS)

    def wait_until_leading(self) -> None:
        self.wait_for_line("leading", seconds=_STARTS_WITHIN_SECONDS)

    def metric(self, name: str, /, **labels: str) -> float:
        """The sum over all series of a metric that carry these labels; 0 where there is none."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port()}/metrics", timeout=10) as page:
            text = page.read().decode()
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def wait_for_metric(self, name: str, done: Callable[[float], bool], **labels: str) -> float:
        """`metric` when it is as wanted: a pass records its metrics when it has acted, after what others can see."""
        return wait_for(f"{name} of {labels}", lambda: self.metric(name, **labels), done)

    def wait_for_passes(self, more: int = 1, seconds: float = 180.0) -> None:
        """Wait for so many further passes that could observe."""
        wanted = len(self.lines("pass completed")) + more
        self.wait_for_line("pass completed", wanted, seconds)

    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """As the kernel does it when memory runs out. Returns when it is gone."""
        self._process.kill()
        self._process.wait(_ENDS_WITHIN_SECONDS)

    def stop(self) -> int:
        """As a kubelet does it; returns the exit code."""
        if self.is_running():
            self._process.terminate()
        return self.wait_until_ended()

    def wait_until_ended(self) -> int:
        """The exit code of a process that is to end by itself."""
        try:
            return self._process.wait(_ENDS_WITHIN_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(
                f"the controller did not end within {_ENDS_WITHIN_SECONDS:g} s:\n{self.text[-3000:]}"
            ) from None

    def _port(self) -> int:
        found = wait_for("the controller serves", lambda: self.text, _PORT.search, _STARTS_WITHIN_SECONDS)
        match = _PORT.search(found)
        assert match is not None
        return int(match[1])

    def readiness(self) -> str:
        """What /readyz says: the status, and why."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port()}/readyz", timeout=5) as page:
                return f"{page.status} {page.read().decode()}"
        except urllib.error.HTTPError as error:
            return f"{error.code} {error.read().decode()}"
        except OSError as error:
            return str(error)
