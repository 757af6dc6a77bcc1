"""The script that builds the image says what is missing at once, not after it has made a base for two minutes."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.images import SCRIPT

BASH = "/bin/bash"


def build(path: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(path), "HOME": str(path), "XDG_CACHE_HOME": str(path / "cache")}
    return subprocess.run([BASH, str(SCRIPT)], env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_a_program_that_is_missing_is_named_before_anything_is_made(tmp_path: Path) -> None:
    dpkg = tmp_path / "dpkg"
    dpkg.write_text(f"#!{BASH}\n")
    dpkg.chmod(0o755)
    result = build(tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        "build_image.sh: not on the PATH: buildah; install it (on Debian and Ubuntu: apt-get install buildah), or "
        "build the image with docker (docs/deployment.md).\n"
    )
    assert not (tmp_path / "cache").exists()
