"""Finds shell syntax in a command that is started without a shell, and returns a message with what to write instead.

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
    | (?P<expansion>{_EXPANSION.replace("#", "[#]")})
    | (?P<redirection>[<>])
    | (?P<sequence>&&|\|\||[|;()])
    | (?P<background>&)
    | (?P<line>\n)
    | (?P<pattern>\*)
    | (?<!\S)(?P<home>~)
    | (?<!\S)(?P<comment>[#])
    """,
    re.VERBOSE | re.DOTALL,
)
_UNPROTECTED_IN_DOUBLE_QUOTES = re.compile(rf"\\.|(?P<expansion>{_EXPANSION})", re.DOTALL)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")

_REMEDIES = {
    "assignment": "write it under `env`",
    "expansion": "write the value itself, or protect it with single quotes",
    "background": "every job runs beside the others, so leave it out",
    "line": "write `>-` instead of `|` to join the lines",
    "home": "write the whole path",
    "comment": "leave it out, or put it behind the quotes",
    "pattern": "write the names, or protect it with quotes",
    "sequence": "make it a job of its own",
}
_OUTPUT = "what the command prints is kept anyway, so leave it out"
_INPUT = "let the program open the file"

MAX_REPEATED_CHARACTERS = 100
"""Of a command in the message about it; a longer one would bury the remedy."""


def shell_mistake(command: str) -> str | None:
    """A sentence about the first thing in `command` that needs a shell, without its full stop; None: nothing does.

    Worked example: of `python a.py > log.txt` it is `>`.
    """
    command = command.strip()
    if assigned := _ASSIGNMENT.match(command):
        return _message(command, "assignment", assigned[0])
    for found in _TOKEN.finditer(command):
        kind, text = found.lastgroup, found[0]
        if kind == "double":
            expanded = next((each for each in _UNPROTECTED_IN_DOUBLE_QUOTES.finditer(text) if each["expansion"]), None)
            kind, text = ("expansion", expanded[0]) if expanded else (None, "")
        if kind is not None:
            return _message(command, kind, text)
    return None


def split(command: str) -> list[str]:
    """The words of a command as a shell would split it; ValueError for a quote that is not closed."""
    return shlex.split(re.sub(r"\\\n\s*", " ", command))


def _message(command: str, kind: str, text: str) -> str:
    named = "a new line" if kind == "line" else repr(text)
    remedy = _REMEDIES.get(kind) or (_OUTPUT if text == ">" else _INPUT)
    whole = json.dumps(command, ensure_ascii=False) if len(command) <= MAX_REPEATED_CHARACTERS else '"…"'
    return f"{named} is for a shell, and there is none: {remedy}; or let a shell run it, command: [sh, -c, {whole}]"
