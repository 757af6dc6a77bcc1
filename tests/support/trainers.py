"""Pods that report a scripted loss through `slopewise_exporter`, for tests of what the controller makes of them.

The exporter comes from this checkout by a hostPath volume, so that no image has to be built; a cluster that does not
run on this machine has none, and its tests that need trainers are skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from support.cluster import PodShape

METRICS_PORT = 9464
_EXPORTERS = Path(__file__).resolve().parents[2] / "exporters"
_INSIDE = "/opt/exporters"

_SCRIPT = """
import math, os, time
from slopewise_exporter import Reporter
reporter = Reporter(port={port}, planned_steps=100000)
started = time.time()
silent_after = {silent_after}
def loss(seconds):
    return {loss}
while True:
    end = time.process_time() + 0.05
    while time.process_time() < end:
        math.sqrt(2.0)
    seconds = time.time() - started
    if seconds > silent_after:
        reporter.end(failed=False, linger=False)
    value = loss(seconds)
    reporter.step(loss=value)
    reporter.evaluate(value)
    time.sleep(0.15)
"""

FALLING = "0.1 + 10 * math.exp(-seconds / 600)"
CONVERGED = "0.1"
DIVERGED = "math.nan if seconds > 15 else 1.0"

_PAGE = """
import http.server
page = {page!r}.encode()
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(page)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("", {port}), Page).serve_forever()
"""


@dataclass(frozen=True)
class Trainers:
    """Makes pods of one shape."""

    shape: PodShape

    def pod(
        self, name: str, loss: str = FALLING, *, falls_silent_after_seconds: float = 1e9, **more: Any
    ) -> dict[str, Any]:
        """A pod whose loss is this expression of `seconds` since its start; its endpoint may close while it runs."""
        script = _SCRIPT.format(port=METRICS_PORT, loss=loss, silent_after=falls_silent_after_seconds)
        return self.reporting(name, script, **more)

    def reporting(self, name: str, script: str, *arguments: str, **more: Any) -> dict[str, Any]:
        """A pod that runs this program, which reports through the exporter."""
        made = self._with_script(script, more, arguments).pod(name)
        spec = made["spec"]
        spec["volumes"] = [{"name": "exporters", "hostPath": {"path": str(_EXPORTERS), "type": "Directory"}}]
        container = spec["containers"][0]
        container["volumeMounts"] = [{"name": "exporters", "mountPath": _INSIDE, "readOnly": True}]
        container["env"] = [{"name": "PYTHONPATH", "value": _INSIDE}, {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"}]
        return made

    def liar(self, name: str, page: str, **more: Any) -> dict[str, Any]:
        """A pod that serves this page as its metrics, whatever it says."""
        return self.serving(page, **more).pod(name)

    def serving(self, page: str, **more: Any) -> PodShape:
        """The shape of that pod."""
        return self._with_script(_PAGE.format(port=METRICS_PORT, page=page), more)

    def _with_script(self, script: str, more: dict[str, Any], arguments: Sequence[str] = ()) -> PodShape:
        command = ("python3", "-c", script, *arguments)
        return replace(self.shape, command=command, metrics_port=METRICS_PORT, **more)
