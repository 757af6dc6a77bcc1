r"""Patterns of the user: two groups, a name and its value, as in Katib's `metricsFormat`; or groups named as fields.

([\w|-]+)\s*=\s*([+-]?\d*(\.\d+)?([Ee][+-]?\d+)?)
step (?P<step>\d+) of (?P<steps_planned>\d+): cost (?P<loss>\S+)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from slopewise_exporter.logs.found import Found
from slopewise_exporter.logs.names import Names
from slopewise_exporter.logs.text import is_usable, number_of


class PatternError(ValueError):
    """A pattern that cannot be used; the message is one sentence for its user."""


class PatternReader:
    """Finds what patterns of the user match. PatternError where one cannot be used."""

    def __init__(self, patterns: Sequence[str], names: Names) -> None:
        self._names = names
        self._patterns = [self._compiled(pattern) for pattern in patterns]

    @staticmethod
    def _compiled(pattern: str) -> Any:
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise PatternError(f"the pattern {pattern!r} is no regular expression: {error}") from error
        return compiled

    def read(self, text: str) -> dict[str, float]:
        """Field of `Found`: number."""
        values: dict[str, float] = {}
        for pattern in self._patterns:
            for match in pattern.finditer(text):
                self._add(values, match)
        return values

    def _add(self, values: dict[str, float], match: Any) -> None:
        groups = match.groupdict()
        if groups:
            pairs = [(name, value) for name, value in groups.items() if name in Found._fields]
        else:
            meaning = self._names.meaning(match[1] or "")
            pairs = [(meaning.field, match[2])] if meaning else []
        for field, text in pairs:
            number = number_of(text)
            if number is not None and is_usable(field, number):
                values.setdefault(field, int(number) if text.isdigit() else number)
