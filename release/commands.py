"""Runs the programs that a release is made with."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from release.versions import ROOT
from slopewise.errors import SlopewiseError


def call(*command: str | Path, cwd: Path = ROOT, variables: Mapping[str, str] | None = None) -> str:
    """The program's output; SlopewiseError with the end of its complaint where it fails. `variables`: besides ours."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(variables or {})},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        raise SlopewiseError(f"{' '.join(map(str, command[:4]))} … failed:\n{done.stdout[-1000:]}{done.stderr[-4000:]}")
    return done.stdout
