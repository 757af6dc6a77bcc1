"""Bounds and cleans text of others, writes sizes and durations, and suggests the name that a mistyped one means."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable

# An escape sequence would drive the terminal; a bidirectional override (U+202E) would turn the rest of a line
# around; a lone surrogate (a name that was not UTF-8) cannot be written to a file at all.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

_PORT = re.compile(r"\bport \d+")


def printable(text: str) -> str:
    """`text` with its lines, without characters that would act on a terminal or a page instead of showing."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def escaped_json(text: str) -> str:
    r"""The same JSON, with those characters escaped: U+202E becomes `\u202e`."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def bounded(text: object, most_characters: int) -> str:
    """The text on one line, cut off with `…` where it is longer than `most_characters`."""
    line = " ".join(str(text).split())
    return line if len(line) <= most_characters else line[: most_characters - 1] + "…"


def equal_messages(messages: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Pairs of name and message as the names of each message; messages that differ in a port alone are one.

    Worked example: `port 1 refuses` of a and `port 2 refuses` of b are `its port refuses` of a and b.
    """
    alike: dict[str, list[tuple[str, str]]] = {}
    for name, message in messages:
        alike.setdefault(_PORT.sub("its port", message), []).append((name, message))
    return {
        group[0][1] if len(group) == 1 else message: [name for name, _ in group] for message, group in alike.items()
    }


def mebibytes(size_bytes: float) -> str:
    """A size in memory for people, e.g. `14400Mi`, `512Mi`, `0.5Mi`."""
    size = size_bytes / 2**20
    return f"{size:.0f}Mi" if abs(size) >= 1000 else f"{size:.4g}Mi"


def duration(seconds: float) -> str:
    """A duration with its two largest units: `45s`, `3m20s`, `2h05m`, `4d03h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    minutes = round(whole / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60}h{minutes % 60:02d}m"
    hours = round(whole / 3600)
    return f"{hours // 24}d{hours % 24:02d}h"


def nearest(name: str, known: Collection[str]) -> str | None:
    """The known name that was probably meant; None: none is near. Case, `-` and `_` do not count.

    Worked example: of `flowcon` and `fair`, `Flow_con` means `flowcon`, and `x` neither.
    """
    by_letters = {_letters(each): each for each in known}
    found = difflib.get_close_matches(_letters(name), by_letters, n=1)
    return by_letters[found[0]] if found else None


def unknown_name(what: str, name: str, known: Collection[str], more: str = "") -> str:
    """A sentence for a name that there is not: with the one that was probably meant, else with all there are, if any.

    `more` ends the list of all, e.g. `, or a path such as ./my.yaml`.
    """
    meant = nearest(name, known)
    if meant is not None:
        return f"there is no {what} {name!r}; did you mean {meant!r}?"
    if not known:
        return f"there is no {what} {name!r}."
    return f"there is no {what} {name!r}; use one of {', '.join(known)}{more}."


def _letters(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
