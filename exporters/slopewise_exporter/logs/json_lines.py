"""Lines that are a JSON object each, as structured loggers, Weights & Biases and many trainers write them.

The keys are looked up once for all lines that have the same keys, so that decoding is most of the work.
"""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

from slopewise_exporter.logs.found import NOTHING, Found
from slopewise_exporter.logs.names import Meaning, Names
from slopewise_exporter.logs.text import LOSSES, MAX_COUNT, is_usable, number_of

_MAX_LAYOUTS = 256
"""Sets of keys remembered; a log that makes up new keys in each line takes no more memory than this."""

_BLANK = list(NOTHING)

Path = tuple[str, ...]


class _Place(NamedTuple):
    """Where a number of an object goes in `Found`."""

    place: int
    field: str
    path: Path
    key: str
    kind_place: int
    """Of `kind`; `place` itself where the field has none."""
    kind: str


class JsonReader:
    """Finds the known names among the keys of an object, and of objects in it: `{"metrics": {"loss": 0.5}}`."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._decode = json.JSONDecoder().raw_decode
        self._layouts: dict[Path, list[_Place]] = {}

    def read(self, text: str) -> Found | None:
        """What it says, `NOTHING` for an object without a known name. None: this is no JSON object."""
        try:
            # RecursionError: a line of 100,000 brackets.
            document, _ = self._decode(text)
        except (ValueError, RecursionError):
            return None
        if type(document) is not dict:
            return None
        keys = tuple(document)
        if text.find("{", 1) > 0:
            keys += tuple(key for inner in document.values() if type(inner) is dict for key in ("{", *inner))
        layout = self._layouts.get(keys)
        if layout is None:
            layout = self._remember(keys, document)
        values: list[Any] | None = None
        for place, field, path, key, kind_place, kind in layout:
            number = document[key]
            if type(number) is not float:
                number = _number_at(document, path)
                if number is None:
                    continue
            if place == 0 or is_usable(field, number):
                if values is None:
                    values = _BLANK[:]
                values[kind_place] = kind
                values[place] = number
        return NOTHING if values is None else Found._make(values)

    def _remember(self, keys: Path, document: dict[str, Any]) -> list[_Place]:
        if len(self._layouts) >= _MAX_LAYOUTS:
            self._layouts.clear()
        layout = self._layouts[keys] = self._layout(document)
        return layout

    def _layout(self, document: dict[str, Any]) -> list[_Place]:
        best: dict[str, tuple[Meaning, Path]] = {}
        for path in _paths(document):
            meaning = self._names.meaning_of_path("/".join(path))
            if meaning is not None and (meaning.field not in best or meaning.rank < best[meaning.field][0].rank):
                best[meaning.field] = (meaning, path)
        index = Found._fields.index
        return [
            _Place(place, field, path, path[0], index(f"{field}_kind") if field in LOSSES else place, meaning.kind)
            for field, (meaning, path) in best.items()
            for place in (index(field),)
        ]


def _paths(document: dict[str, Any]) -> list[Path]:
    paths: list[Path] = []
    for key, value in document.items():
        if type(value) is dict:
            paths += [(key, inner) for inner in value]
        else:
            paths.append((key,))
    return paths


def _number_at(document: Any, path: Path) -> float | None:
    for key in path:
        if type(document) is not dict or key not in document:
            return None
        document = document[key]
    if type(document) is float:
        return document
    if type(document) is str:
        return number_of(document)
    if type(document) is int:
        return document if -MAX_COUNT <= document <= MAX_COUNT else math.inf
    return None
