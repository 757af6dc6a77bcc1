"""The examples of docs/checkpointing.md as processes: ended by SIGTERM in the middle, then started again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from support.killing import REPORTING

PAGE = Path(__file__).parents[2] / "docs/checkpointing.md"
MAX_SECONDS = 250.0


def examples() -> list[str]:
    """The page's scripts, in their order."""
    return re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def check_that_it_is_moved(code: str, folder: Path, python: str, environment: Mapping[str, str]) -> None:
    """SIGTERM after some steps makes it save them all and end with 143; the next process does the rest, and no more."""
    script = folder / "example.py"
    script.write_text(code)
    port_file = folder / "port"
    variables = {
        **os.environ,
        **REPORTING,
        **environment,
        "SLOPEWISE_EXPORTER_PORT_FILE": str(port_file),
        "SLOPEWISE_CHECKPOINT_FOLDER": str(folder / "checkpoints"),
    }
    first = subprocess.Popen([python, str(script)], env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        seen = _steps_seen(first, port_file)
        first.send_signal(signal.SIGTERM)
        output, _ = first.communicate(timeout=MAX_SECONDS)
    finally:
        first.kill()
        first.communicate()
    assert first.returncode == 143, output.decode()
    saved = saved_steps(folder / "checkpoints")
    assert saved >= seen > 0
    again = subprocess.run([python, str(script)], env=variables, check=False, capture_output=True, timeout=MAX_SECONDS)
    assert again.returncode == 0, again.stderr.decode()
    assert saved_steps(folder / "checkpoints") > saved


def saved_steps(folder: Path) -> int:
    """The steps of the last checkpoint, by its manifest."""
    manifests = [json.loads(path.read_text()) for path in folder.rglob("*.json")]
    steps: int = max(each["progress"]["steps"] for each in manifests if "progress" in each)
    return steps


def _steps_seen(process: subprocess.Popen[bytes], port_file: Path) -> float:
    """Its steps as Prometheus would see them, once there are some."""
    give_up_at = time.monotonic() + MAX_SECONDS
    while time.monotonic() < give_up_at and process.poll() is None:
        try:
            page = urlopen(f"http://127.0.0.1:{int(port_file.read_text())}/metrics", timeout=10).read().decode()
        except (FileNotFoundError, URLError):
            time.sleep(0.05)
            continue
        steps = float(re.findall(r"^training_steps_total (\S+)", page, re.MULTILINE)[0])
        if steps >= 3:
            return steps
        time.sleep(0.02)
    raise AssertionError("it did no steps")
