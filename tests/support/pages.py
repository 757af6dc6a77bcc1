"""A page as a browser would read it, and the names that an enemy would give to jobs."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import pytest

HOSTILE = (
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(2)>",
    "a" * 3000,
    "日本語のジョブ é 🚀",
    "</script><b>bold</b><!--",
    "%{y} {{7*7}} {% raw %} $x^2$",
    "\u202eevil\x1b[31m",
    '<a href="https://evil.example">x</a>&lt;i&gt;\udcff',
)


@dataclass
class Page(HTMLParser):
    """What a browser would make of the page: its elements, their attributes, its text and its scripts."""

    source: str
    tags: Counter[str] = field(default_factory=Counter)
    attributes: list[tuple[str, str]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    _inside: str = ""

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(name, value or "") for name, value in attrs]
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.texts.append(data.strip())

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.texts))

    @property
    def ids(self) -> set[str]:
        """The ids of all elements."""
        return {value for name, value in self.attributes if name == "id"}

    @property
    def figures(self) -> dict[str, Any]:
        """The charts' data, refused where JSON would be no JSON to a browser (NaN, Infinity)."""
        figures: dict[str, Any] = json.loads(
            self.scripts[0], parse_constant=lambda name: pytest.fail(f"{name} in the data")
        )
        return figures
