"""Writes the Go module for a release of Kubernetes: `go.mod` and `go.sum` below `modules/kubernetes/VERSION`.

Used by hand when a release is to be added; after it `builds.py` finds the module by its version. Kubernetes' own go.mod
points its parts (k8s.io/api and 30 more) at folders beside it; ours points them at their published releases instead.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from slopewise.errors import SlopewiseError, UsageError
from testbed.builds import KUBERNETES, KUBERNETES_COMMANDS, MODULES


def write(version: str) -> Path:
    """The folder that was written; UsageError for a version that is none, SlopewiseError with the words of go."""
    if not re.fullmatch(r"1\.\d+\.\d+", version):
        raise UsageError(f"{version!r} is not a release of Kubernetes; write it as 1.35.4.")
    folder = MODULES / "kubernetes" / version
    folder.mkdir(parents=True, exist_ok=True)
    try:
        downloaded = json.loads(_go(folder, "mod", "download", "-json", f"{KUBERNETES}@v{version}"))
        upstream = json.loads(_go(folder, "mod", "edit", "-json", downloaded["GoMod"]))
        (folder / "go.mod").write_text(render(version, upstream), encoding="utf-8")
        _go(folder, "mod", "tidy")
    except BaseException:
        shutil.rmtree(folder)
        raise
    return folder


def render(version: str, upstream: dict[str, Any]) -> str:
    """Our go.mod, before `go mod tidy`, from what `go mod edit -json` prints of Kubernetes' own."""
    parts = f"v0.{version.partition('.')[2]}"
    replaced = "\n".join(f"\t{one['Old']['Path']} => {one['Old']['Path']} {parts}" for one in upstream["Replace"])
    tools = "\n".join(f"\t{KUBERNETES}/cmd/{name}" for name in KUBERNETES_COMMANDS)
    return (
        f"module slopewise.dev/testbed/kubernetes\n\ngo {upstream['Go']}\n\n"
        f"require {KUBERNETES} v{version}\n\nreplace (\n{replaced}\n)\n\ntool (\n{tools}\n)\n"
    )


def _go(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["go", *arguments], cwd=folder, env={**os.environ, "GOFLAGS": "", "GOWORK": "off"},
        capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise SlopewiseError(f"go {' '.join(arguments)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout
