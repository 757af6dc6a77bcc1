"""Pairs of a name and a number in a line: `loss=0.5`, `loss: 0.5`, `'loss': 0.5`, `Epoch [3/60]`, `step 120/10000`.

Every repetition is bounded or cannot overlap with itself, so that the time for a line grows with its length and no
faster; tests/exporters/logs has lines of a million characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from slopewise_exporter.logs.found import Found
from slopewise_exporter.logs.names import Names

LOSSES = ("loss", "evaluation")
MAX_COUNT = 2.0**53
_MAX_DIGITS = 17
_MAX_NUMBER_CHARACTERS = 64

NUMBER = (
    r"[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?"
    r"|[nN]a[nN]|[iI]nf(?:inity)?)"
)
_END = r"(?!\w|\.\d)"

_CORES = (
    *("[lL]oss", "LOSS", "[sS]tep", "STEP", "[eE]poch", "EPOCH", "[iI]ter", "ITER", "[uU]pdate", "[bB]atch"),
    *("[nN][lL][lL]", "[mM][sS][eE]", "[eE]ntropy", "ENTROPY"),
)
"""In each name of the table. A search for these is five times as fast as one for all pairs of a word and a number."""

_REST = (
    r"(?P<rest>[\w/.\-]{0,40}(?: [A-Za-z_][\w\-/]{0,40}){0,2})"
    r"[\"'\])]{0,2}[ \t]{0,16}(?:=>|[:=|]|(?<=[ \t])|(?=\[))[ \t]{0,16}"
    r"[\"'(\[]{0,2}[ \t]{0,16}"
    rf"(?P<number>{NUMBER}){_END}"
    rf"(?:[ \t]{{0,12}}(?:/|of )[ \t]{{0,12}}(?P<total>\d[\d,]{{0,20}}){_END})?"
    # Epoch: [3][120/5005] and Train Epoch: 3 [640/60000 (1%)]
    r"(?:\]?[ \t]{0,4}\[[ \t]{0,12}(?P<batch>\d{1,15})[ \t]{0,4}/[ \t]{0,4}(?P<batches>\d{1,15}))?"
)
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_/.-")
_MAX_BEFORE = 60
_STAGE = re.compile(
    r"(?:^|[\s\[(|>])(?:(?P<train>train(?:ing)?)|test(?:ing)?|val(?:id(?:ation)?)?|eval(?:uation)?|dev|holdout|held-out)"
    r"(?:[ _-]epoch\b"
    r"|(?:[ _-](?:set|data|dataset|split|results?|metrics?|phase|summary))?(?:[\])]| ?[:|>]| -)(?! *[\d.]))",
    re.IGNORECASE,
)
"""What the numbers after it belong to: `Test set: Average loss: 0.1`, `Test: [10/79] Loss 5.9`, `[val] nll=2.1`."""
_MAX_BEFORE_STAGED = 200
_TOTALS = {"step": "steps_planned", "epoch": "epochs_planned", "batch": "batches"}


class PairReader:
    """Finds the pairs whose name is known."""

    def __init__(self, names: Names) -> None:
        self._names = names
        own = [re.escape(name.split()[-1]) for name in names.own if name.strip()]
        self._pair = re.compile(f"(?:{'|'.join((*own, *_CORES))}){_REST}")

    def read(self, text: str) -> dict[str, Any]:
        """Field of `Found`: number. Of two pairs for one field the one with the better name counts, then the first."""
        values: dict[str, Any] = {}
        ranks: dict[str, int] = {}
        for match in self._pair.finditer(text):
            meaning = self._names.meaning(_name(text, match.start(), match.end("rest")))
            if meaning is None:
                continue
            if meaning.field == "loss" and _is_held_out(text, match.start()):
                meaning = self._names.held_out(meaning)
                if meaning is None:
                    continue
            field, rank, kind = meaning
            if field in ranks and ranks[field] <= rank:
                continue
            number = number_of(match["number"])
            if number is None or not is_usable(field, number):
                continue
            ranks[field] = rank
            values[field] = number
            if field in LOSSES:
                values[f"{field}_kind"] = kind
            elif field in _TOTALS:
                _add_totals(values, field, match)
        return values


def _add_totals(values: dict[str, Any], field: str, match: re.Match[str]) -> None:
    total = number_of(match["total"])
    if total and is_usable(field, total):
        values[_TOTALS[field]] = total
    if field == "epoch" and match["batches"]:
        values["batch"], values["batches"] = float(match["batch"]), float(match["batches"])


def _is_held_out(text: str, start: int) -> bool:
    """Whether the last stage that is named before `start` is not the training."""
    stages = [stage["train"] for stage in _STAGE.finditer(text, max(0, start - _MAX_BEFORE_STAGED), start)]
    return bool(stages) and stages[-1] is None


def _name(text: str, start: int, end: int) -> str:
    """The name from the word that `start` is in, or up to two words before that, to `end`."""
    lowest = max(0, start - _MAX_BEFORE)
    first = start
    while first > lowest and text[first - 1] in _NAME_CHARACTERS:
        first -= 1
    for _ in range(2):
        if first - 1 <= lowest or text[first - 1] != " " or not text[first - 2].isalpha():
            break
        before = max(text.rfind(" ", lowest, first - 1), lowest - 1) + 1
        if not text[before : first - 1].isidentifier():
            break
        first = before
    return text[first:end]


def is_usable(field: str, number: float) -> bool:
    """Losses may be NaN or infinite; counts are from 0 to 2^53, beyond which a float skips whole numbers."""
    return field in LOSSES or 0 <= number <= MAX_COUNT


def number_of(text: str | bytes | None) -> float | None:
    """From `0.5`, `1e-05`, `nan`, `1,000`; whole numbers are ints. None for what is none, or has over 64 characters."""
    if text is None or len(text) > _MAX_NUMBER_CHARACTERS:
        return None
    try:
        return int(text) if text.isdigit() and len(text) < _MAX_DIGITS else float(text)
    except ValueError:
        pass
    try:
        return float((text if isinstance(text, str) else text.decode("utf-8", "replace")).replace(",", ""))
    except ValueError:
        return None


def found_in(values: dict[str, Any]) -> Found | None:
    """None where there is nothing."""
    return Found(**values) if values else None


def found_in_pairs(names: Names, pairs: Iterable[tuple[str, Any]]) -> Found | None:
    """What the values of these names say; of two for one field the one with the better name. None: nothing.

    For pairs that are there already: columns of a CSV file, tags of event files, metrics of a run.
    """
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
