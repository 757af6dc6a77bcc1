"""The types of what `tests/exporters/conftest.py` hands out: reporters, scrapes, and trainings as processes."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from typing import Any

from slopewise_exporter import Reporter

Samples = dict[str, float]
"""`name{label="value"}` -> value."""

Fetch = Callable[..., str]
InBackground = Callable[[Callable[[], object]], threading.Thread]
MakeReporter = Callable[..., Reporter]
Scrape = Callable[[int | None], Samples]
StandIn = Callable[..., None]
StartProcess = Callable[..., subprocess.Popen[Any]]
StartTraining = Callable[..., subprocess.Popen[str]]
