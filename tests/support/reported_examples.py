"""The examples of docs/exporters-frameworks.md as processes, and what a scrape shows at their end."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from support.killing import REPORTING

PAGE = Path(__file__).parents[2] / "docs/exporters-frameworks.md"
SURROUNDINGS = Path(__file__).parents[1] / "frameworks/page"
"""What the examples take for granted: data, a model, a loader."""

SCRAPE = """
import json as _json
from urllib.request import urlopen as _urlopen
from slopewise_exporter import lifecycle as _lifecycle
_page = _urlopen(f"http://127.0.0.1:{_lifecycle.newest().port}/metrics").read().decode().splitlines()
_samples = dict(line.rsplit(" ", 1) for line in _page if line.startswith("training_"))
print(_json.dumps({name: float(value) for name, value in _samples.items()}))
"""


def reporting_examples() -> list[str]:
    """The page's scripts, in their order."""
    return re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def scraped_at_its_end(
    surroundings: str, code: str, folder: Path, python: str, environment: Mapping[str, str]
) -> dict[str, float]:
    """Runs `code` after the surroundings of this name; the samples of a scrape when it has trained."""
    script = folder / "example.py"
    before = (SURROUNDINGS / f"{surroundings}.py").read_text()
    script.write_text(f"{before}\n{code}\n{SCRAPE}")
    run = subprocess.run(
        [python, str(script)],
        cwd=folder,
        env={**os.environ, **REPORTING, **environment},
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    samples: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return samples
