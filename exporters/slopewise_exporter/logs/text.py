"""Pairs of a name and a number in a line: `loss=0.5`, `loss: 0.5`, `'loss': 0.5`, `Epoch [3/60]`, `step 120/10000`.

Every repetition is bounded or cannot overlap with itself, so that the time for a line grows with its length and no
faster; tests/exporters/logs has lines of a million characters.
"""

from __future__ import annotations

import re
from typing import Any

from slopewise_exporter.logs.found import NOTHING, Found
from slopewise_exporter.logs.names import Names

MAX_COUNT = 2.0**53

NUMBER = (
    r"[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?"
    r"|[nN]a[nN]|[iI]nf(?:inity)?)"
)
_END = r"(?!\w|\.\d)"

_PAIR = re.compile(
    r"(?<![\w/.\-])"
    r"(?P<name>[A-Za-z_][\w/.\-]*(?: [A-Za-z_][\w\-/]*){0,3})"
    r"[\"'\])]{0,2}[ \t]{0,16}(?:=>|[:=|]|(?<=[ \t])|(?=\[))[ \t]{0,16}"
    r"[\"'(\[]{0,2}[ \t]{0,16}"
    rf"(?P<number>{NUMBER}){_END}"
    rf"(?:[ \t]{{0,12}}(?:/|of )[ \t]{{0,12}}(?P<total>\d[\d,]*){_END})?"
    # Epoch: [3][120/5005] and Train Epoch: 3 [640/60000 (1%)]
    r"(?:\]?[ \t]{0,4}\[[ \t]{0,12}(?P<batch>\d+)[ \t]{0,4}/[ \t]{0,4}(?P<batches>\d+))?"
)

_TOTALS = {"step": "steps_planned", "epoch": "epochs_planned", "batch": "batches"}

_INTERESTING = re.compile("loss|step|epoch|iter", re.IGNORECASE)
"""Of the names of the table; most lines of most logs have none of them, and this is ten times faster."""


class PairReader:
    """Finds the pairs whose name is known."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def read(self, text: str) -> dict[str, float]:
        """Field of `Found`: number. Of two pairs for one field the one with the better name counts, then the first."""
        values: dict[str, float] = {}
        ranks: dict[str, int] = {}
        for match in _PAIR.finditer(text):
            meaning = self._names.meaning(match["name"])
            if meaning is None:
                continue
            field, rank = meaning
            number = number_of(match["number"])
            if number is None or ranks.get(field, rank + 1) <= rank:
                continue
            if not is_usable(field, number):
                continue
            ranks[field] = rank
            values[field] = int(number) if match["number"].isdigit() else number
            self._add_totals(values, field, match)
        return values

    def _add_totals(self, values: dict[str, float], field: str, match: re.Match[str]) -> None:
        total = number_of(match["total"])
        if total and field in _TOTALS:
            values[_TOTALS[field]] = total
        if field == "epoch" and match["batches"]:
            values["batch"], values["batches"] = float(match["batch"]), float(match["batches"])


def is_usable(field: str, number: float) -> bool:
    """Losses may be NaN or infinite; counts are from 0 to 2^53, beyond which a float skips whole numbers."""
    return field in ("loss", "evaluation") or 0 <= number <= MAX_COUNT


def number_of(text: str | None) -> float | None:
    """A float from `1e-05`, `nan`, `1,000`; None for what is none."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        try:
            return float(text.replace(",", ""))
        except ValueError:
            return None


def found_in(values: dict[str, Any]) -> Found | None:
    """None where there is nothing."""
    return NOTHING._replace(**values) if values else None
