"""Writes the list of all panels into docs/dashboards.md: what each answers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from grafana_foundation_sdk.models.dashboard import Dashboard, Panel

PAGE = Path(__file__).resolve().parent.parent / "docs" / "dashboards.md"
_BEGIN = "<!-- panels: written by grafana/generate.py; do not edit -->\n"
_END = "<!-- end of panels -->"


def page(dashboards: Iterable[Dashboard]) -> str:
    """The page as it should be, around what is written by hand."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}{''.join(_table(each) for each in dashboards)}{_END}{after}"


def _table(dashboard: Dashboard) -> str:
    title = (dashboard.title or "").removeprefix("Slopewise / ")
    rows = [
        f"| {panel.title} | {_question(panel.description)} |"
        for panel in dashboard.panels or ()
        if isinstance(panel, Panel) and panel.description
    ]
    return "\n".join([f"\n### {title}\n", "| panel | question |", "|---|---|", *rows, "\n"])


def _question(description: str) -> str:
    """Up to its question mark; the rest is about how to read the panel."""
    return f"{description.partition('?')[0]}?"
