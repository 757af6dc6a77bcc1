"""Real text that is on every machine: the sources of Python's own standard library."""

from __future__ import annotations

import sysconfig
from pathlib import Path

from slopewise.errors import MissingToolError


def standard_library_modules() -> list[tuple[str, str]]:
    """Name and text of each top-level module of this Python's standard library, by name (about 5 MB in all)."""
    folder = Path(sysconfig.get_path("stdlib"))
    modules = [(file.stem, file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.py"))]
    if not modules:
        raise MissingToolError(
            f"{folder} holds no Python sources, which are this training's text; use a Python that ships them."
        )
    return modules
