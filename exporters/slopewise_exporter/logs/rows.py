"""Names and numbers that come in pairs already: columns of a CSV file, tags of event files, metrics of a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from slopewise_exporter.logs.found import Found
from slopewise_exporter.logs.names import Names
from slopewise_exporter.logs.text import LOSSES, is_usable, number_of


def found_in_pairs(names: Names, pairs: Iterable[tuple[str, Any]]) -> Found | None:
    """What the values of these names say; of two for one field the one with the better name. None: nothing."""
    values: dict[str, Any] = {}
    ranks: dict[str, int] = {}
    for name, value in pairs:
        meaning = names.meaning_of_path(name)
        if meaning is None or ranks.get(meaning.field, meaning.rank + 1) <= meaning.rank:
            continue
        number = number_in(value)
        if number is not None and is_usable(meaning.field, number):
            ranks[meaning.field] = meaning.rank
            values[meaning.field] = number
            if meaning.field in LOSSES:
                values[f"{meaning.field}_kind"] = meaning.kind
    return Found(**values) if values else None


def number_in(value: Any) -> Any:
    """Whole numbers stay whole; None for what is no number."""
    if type(value) is str:
        return number_of(value.strip())
    return value if type(value) in (int, float) else None
