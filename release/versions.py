"""Keeps the version in one file, the one that hatch reads, and writes it into every file that repeats it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from slopewise.errors import UsageError

ROOT = Path(__file__).resolve().parents[1]
REPEATED = (
    "docs/deployment.md",
    "docs/releasing.md",
    "examples/cluster/job-moves.yaml",
    "examples/cluster/job-otlp.yaml",
    "examples/cluster/job-sidecar.yaml",
    "examples/cluster/job.yaml",
    "examples/cluster/trainjob.yaml",
    "exporters/slopewise_exporter/__init__.py",
    "manifests/base/kustomization.yaml",
    "manifests/components/moves/kustomization.yaml",
)
"""Where a package index, a kubelet or a reader finds it, none of which could look it up."""

_STATED = re.compile(r'(__version__ = "|newTag: |\bVERSION=|\bgit tag v|\bslopewise(?:-trainer)?:)\d+\.\d+\.\d+\w*')


def current(root: Path = ROOT) -> str:
    """The version of all that is released; controller, exporter and image have the same."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    source = root / project["tool"]["hatch"]["version"]["path"]
    (version,) = re.findall(r'^__version__ = "(.*)"$', source.read_text(encoding="utf-8"), re.MULTILINE)
    return str(version)


def outdated(root: Path = ROOT) -> dict[Path, str]:
    """The files that repeat another version, with the text that they should have; UsageError for one that has none."""
    version, found = current(root), {}
    for path in (root / name for name in REPEATED):
        text = path.read_text(encoding="utf-8")
        updated, places = _STATED.subn(rf"\g<1>{version}", text)
        if not places:
            raise UsageError(f"{path} repeats no version; take it out of the list in release/versions.py.")
        if updated != text:
            found[path] = updated
    return found
