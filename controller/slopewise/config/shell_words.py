"""Finds shell syntax in a command that is started without a shell, and returns a message with what to do.

Quotes and backslashes protect text as in a shell. Commands written as lists are not checked.
"""

from __future__ import annotations

import json
import re
import shlex

_EXPANSION = r"\$(?:[A-Za-z_]\w*|\{[^}]*\}|[0-9?@#*!$-])|\$\(|`"

_TOKEN = re.compile(
    rf"""'[^']*'
    | (?P<double>"(?:[^"\\]|\\.)*")
    | \\.
    | (?P<syntax>{_EXPANSION.replace("#", "[#]")}|&&|\|\||[<>|;()&\n*]|(?<!\S)[~#])
    """,
    re.VERBOSE | re.DOTALL,
)
_UNPROTECTED_IN_DOUBLE_QUOTES = re.compile(rf"\\.|(?P<expansion>{_EXPANSION})", re.DOTALL)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")

MAX_REPEATED_CHARACTERS = 100
"""Of a command in the message about it; a longer one would bury the remedy."""


def shell_mistake(command: str) -> str | None:
    """A sentence about the first thing in `command` that needs a shell, without its full stop; None: nothing does.

    Worked example: of `python a.py > log.txt` it is `>`.
    """
    command = command.strip()
    if assigned := _ASSIGNMENT.match(command):
        return _message(command, assigned[0], "write it under `env`")
    for found in _TOKEN.finditer(command):
        text = found["syntax"]
        if found["double"]:
            expanded = _UNPROTECTED_IN_DOUBLE_QUOTES.finditer(found["double"])
            text = next((each["expansion"] for each in expanded if each["expansion"]), None)
        if text is not None:
            return _message(command, text, "put it in single quotes, or leave it out")
    return None


def words_of(command: str) -> list[str]:
    """The words of a command; ValueError with a sentence for the user where it needs a shell, or cannot be split."""
    if mistake := shell_mistake(command):
        raise ValueError(mistake)
    try:
        return split(command)
    except ValueError as error:
        raise ValueError(f"{command!r} cannot be split into words ({error}); close its quotes") from error


def split(command: str) -> list[str]:
    """The words of a command as a shell would split it; ValueError for a quote that is not closed."""
    return shlex.split(re.sub(r"\\\n\s*", " ", command))


def _message(command: str, text: str, remedy: str) -> str:
    named = "a new line" if text == "\n" else repr(text)
    whole = json.dumps(command, ensure_ascii=False) if len(command) <= MAX_REPEATED_CHARACTERS else '"…"'
    return f"{named} is for a shell, and there is none: {remedy}; or let a shell run it, command: [sh, -c, {whole}]"
