"""Runs the `slopewise` command: in this process, or as one of its own, which takes a second longer."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest

from slopewise.commands.app import run_command_line


def slopewise(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command that ends by itself in this process. Not for `--json-logs`, which changes the whole process."""
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.object(sys, "argv", ["slopewise", *arguments]),
        redirect_stdout(out),
        redirect_stderr(err),
        chdir(cwd or Path.cwd()),
        pytest.raises(SystemExit) as ended,
    ):
        run_command_line()
    assert isinstance(ended.value.code, int)
    return subprocess.CompletedProcess(arguments, ended.value.code, out.getvalue(), err.getvalue())


def slopewise_process(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command as a user does, in a process of its own."""
    command = [sys.executable, "-m", "slopewise", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd, check=False)
