"""Text of others inside our sentences: bounded to one line, and, where it is a mistyped name, with what was meant.

Before it: whatever others wrote. After it: conditions, events, columns of `kubectl get` and error messages.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection


def bounded(text: object, most_characters: int) -> str:
    """The text on one line, cut off with `…` where it is longer than `most_characters`."""
    line = " ".join(str(text).split())
    return line if len(line) <= most_characters else line[: most_characters - 1] + "…"


def nearest(word: str, known: Collection[str]) -> str | None:
    """The known name that was probably meant; None: none is near. Case, `-` and `_` do not count.

    Worked example: of `flowcon` and `fair`, `Flow_con` means `flowcon`, and `x` neither.
    """
    by_letters = {_letters(each): each for each in known}
    found = difflib.get_close_matches(_letters(word), by_letters, n=1)
    return by_letters[found[0]] if found else None


def unknown_name(what: str, word: str, known: Collection[str], more: str = "") -> str:
    """A sentence for a name that there is not: with the one that was probably meant, else with all there are.

    `more` ends the list of all, e.g. `, or a path such as ./my.yaml`.
    """
    meant = nearest(word, known)
    if meant is not None:
        return f"there is no {what} {word!r}; did you mean {meant!r}?"
    return f"there is no {what} {word!r}; use one of {', '.join(known)}{more}."


def _letters(word: str) -> str:
    return word.lower().replace("_", "").replace("-", "")
