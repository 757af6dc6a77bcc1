"""Sweeps in a jobs file: an entry with a matrix, or a grid, list or CSV file of arguments, is a job for each trial."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from pydantic import Field

from slopewise.config.shell_words import shell_mistake, split
from slopewise.config.validation import Document, validate
from slopewise.errors import UsageError

MAX_TRIALS = 1000
"""Of one entry; more are a mistake."""

MAX_NAME = 63
"""Letters of a job's name."""

_BAD_LETTERS = re.compile(r"[^a-z0-9]+")
_BRACES = re.compile(r"\{\{(?P<pair>[^{}]+)\}\}|(?P<shell>\$?)\{(?P<name>[^{}]+)\}")

Trial = Mapping[str, str]
"""The arguments of one trial, by name."""


class SweepEntry(Document):
    """The `sweep` of an entry. Those of its trials have their `arguments` instead of `grid`, `list` or `csv`."""

    grid: Any = None
    list_: Any = Field(None, alias="list")
    csv: str | None = None
    max_running: int | None = Field(None, ge=1)
    arguments: dict[str, str] = Field(default_factory=dict)


def as_name(text: str) -> str:
    """A text with the letters that a job's name may have. Worked example: `My study` is `my-study`."""
    return _BAD_LETTERS.sub("-", text.lower())[:MAX_NAME].strip("-")


def with_lists(document: object, where: str, folder: Path) -> object:
    """The document with the rows of the CSV files that its sweeps name, which are below `folder`, as lists."""
    if not isinstance(document, list):
        return document
    return [_with_list(entry, f"{where}: job {number}", folder) for number, entry in enumerate(document, start=1)]


def _with_list(entry: object, where: str, folder: Path) -> object:
    sweep = entry.get("sweep") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(sweep, dict) or not isinstance(sweep.get("csv"), str):
        return entry
    others = {key: value for key, value in sweep.items() if key != "csv"}
    if "list" in others:
        raise UsageError(f"{where}: sweep: has list and csv; leave one of them out.")
    return {**entry, "sweep": {**others, "list": _rows(folder / sweep["csv"], f"{where}: sweep.csv")}}


def _rows(path: Path, where: str) -> list[dict[str, str]]:
    try:
        reader = csv.reader(StringIO(path.read_text(encoding="utf-8-sig")), skipinitialspace=True, strict=True)
        rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(map(str.strip, row))]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{where}: {path} cannot be read ({why}); name a CSV file with a row a trial.") from error
    names = rows.pop(0)[1] if rows else []
    if len(set(names)) < len(names):
        raise UsageError(f"{where}: {path} has one name in line 1 twice; correct it.")
    if not rows:
        raise UsageError(f"{where}: {path} has no trial; write the names of arguments in line 1, and a row a trial.")
    _check_number(len(rows), where)  # here, because a session takes no request of millions of rows
    for number, row in rows:
        if len(row) != len(names):
            raise UsageError(f"{where}: {path} line {number} has not a value for each name of line 1; correct it.")
    return [dict(zip(names, row, strict=True)) for _, row in rows]


def trials_of(entry: object, where: str) -> Iterator[tuple[str, object]]:
    """The entry with its place, or an entry for each trial of its matrix or sweep."""
    matrix, sweep = (entry.get("matrix"), entry.get("sweep")) if isinstance(entry, dict) else (None, None)
    is_trial = isinstance(sweep, dict) and "arguments" in sweep
    if not isinstance(entry, dict) or (matrix is None and (sweep is None or is_trial)):
        yield where, entry
    elif sweep is None:
        yield from _made(entry, _grid(matrix, f"{where}: matrix"), where, None)
    elif matrix is not None:
        raise UsageError(f"{where}: has matrix and sweep; leave one of them out.")
    else:
        asked = validate(SweepEntry, sweep, where=f"{where}: sweep")
        if (asked.grid is None) == (asked.list_ is None):
            raise UsageError(f"{where}: sweep: needs one of grid, list and csv, such as {{grid: {{lr: [0.1, 0.01]}}}}.")
        of_grid = asked.grid is not None
        trials = _grid(asked.grid, f"{where}: sweep.grid") if of_grid else _list(asked.list_, f"{where}: sweep.list")
        yield from _made(entry, trials, where, asked)


def _grid(lists: object, where: str) -> list[Trial]:
    """Each combination of the values."""
    if not isinstance(lists, dict) or not lists or not all(map(_are_values, lists.values())):
        raise UsageError(f"{where}: must be lists of texts or numbers by name, such as {{lr: [0.1, 0.01]}}.")
    _check_number(prod(map(len, lists.values())), where)
    return [dict(zip(map(str, lists), map(str, values), strict=True)) for values in product(*lists.values())]


def _list(rows: object, where: str) -> list[Trial]:
    if not isinstance(rows, list) or not rows:
        raise UsageError(f"{where}: must be a list of at least one trial, such as [{{lr: 0.1}}, {{lr: 0.01}}].")
    _check_number(len(rows), where)
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict) or not _are_values(list(row.values())) or row.keys() != rows[0].keys():
            raise UsageError(f"{where}: trial {number}: must have the names of trial 1, and a text or number for each.")
    return [{str(key): str(value) for key, value in row.items()} for row in rows]


def _are_values(values: object) -> bool:
    kinds = (str, int, float)
    return isinstance(values, list) and bool(values) and all(type(each) in kinds for each in values)


def _check_number(trials: int, where: str) -> None:
    if trials > MAX_TRIALS:
        raise UsageError(f"{where}: makes {trials} jobs; leave at most {MAX_TRIALS}.")


def _made(
    entry: dict[str, Any], trials: Sequence[Trial], where: str, sweep: SweepEntry | None
) -> Iterator[tuple[str, object]]:
    """An entry for each trial; `sweep`: None for a matrix."""
    name = entry.get("name")
    left = {key: value for key, value in entry.items() if key not in ("matrix", "sweep")}
    if isinstance(command := left.get("command"), str):
        left["command"] = _words(command, trials[0])
    for number, trial in enumerate(trials, start=1):
        made = {key: _filled(value, trial, f"{where}: {key}") for key, value in left.items()}
        if isinstance(name, str) and (sweep is not None or made["name"] == name):
            made.setdefault("study", name if sweep is None else as_name(name))
        if isinstance(name, str) and made["name"] == name:
            made["name"] = f"{name}-{number}" if sweep is None else _name(f"{name}-{number}", trial)
        if sweep is not None:
            most = {} if sweep.max_running is None else {"maxRunning": sweep.max_running}
            made["sweep"] = {"arguments": trial, **most}
        yield f"{where} ({', '.join(f'{key}={value}' for key, value in trial.items())})", made


def _name(numbered: str, trial: Trial) -> str:
    """Worked example: `digits-7-width64-lr0-01-relu` of width 64, lr 0.01 and activation relu."""
    said = as_name("-".join(f"{key}{value}" if value[:1].isdigit() else value for key, value in trial.items()))
    return f"{numbered}-{said}"[: max(MAX_NAME, len(numbered))].strip("-")


def _words(command: str, names: Iterable[str]) -> list[str] | str:
    """The words of a command before it is filled, so that a value is one argument, also one with spaces.

    The text as it is where it cannot be split: that is said where the entry is validated.
    """
    marks = {f"{{{name}}}": f"\ue000{number}\ue000" for number, name in enumerate(names)}
    marked = command
    for placeholder, mark in marks.items():  # a name may have spaces, too
        marked = marked.replace(placeholder, mark)
    try:
        words = split(marked)
    except ValueError:
        return command
    for placeholder, mark in marks.items():
        words = [word.replace(mark, placeholder) for word in words]
    return command if shell_mistake(command) else words


def _filled(value: object, trial: Trial, where: str) -> object:
    """The value with `{key}` replaced in all of its texts; UsageError for another word in braces."""
    if isinstance(value, str):
        return _BRACES.sub(lambda found: _text(found, trial, where), value)
    if isinstance(value, list):
        return [_filled(each, trial, where) for each in value]
    if isinstance(value, dict):
        return {key: _filled(each, trial, where) for key, each in value.items()}
    return value


def _text(found: re.Match[str], trial: Trial, where: str) -> str:
    """What stands for these braces: `{{word}}` is `{word}`; JSON, `${HOME}` and `{a,b}`, no single words, stay."""
    name, pair = found["pair"] or found["name"], found["pair"] is not None
    is_word = name in trial or re.fullmatch(r"[A-Za-z_][\w-]*", name)
    if name in trial and not pair:
        return f"{found['shell']}{trial[name]}"
    if pair or found["shell"] or not is_word:
        return f"{{{name}}}" if pair and is_word else found[0]
    known = " or ".join(f"{{{key}}}" for key in trial)
    raise UsageError(f"{where}: {found[0]} is no value of a trial; write {known}, or {{{found[0]}}} for these braces.")
