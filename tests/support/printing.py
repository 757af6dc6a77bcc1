"""What rich prints, as text."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console, RenderableType


def printed(renderable: RenderableType, width: int = 120, **options: Any) -> str:
    """What rich writes to a terminal of `width` columns."""
    file = io.StringIO()
    Console(file=file, width=width, **options).print(renderable)
    return file.getvalue()


def words(line: str) -> str:
    """The line with one space between two words."""
    return " ".join(line.split())
