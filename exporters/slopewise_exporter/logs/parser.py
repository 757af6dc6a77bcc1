"""One line of a log in, the numbers of the training out: `LineParser().parse("step 120/10000 loss=0.5")`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from slopewise_exporter.logs.bars import read_bar
from slopewise_exporter.logs.found import NOTHING, Found
from slopewise_exporter.logs.json_lines import JsonReader
from slopewise_exporter.logs.libraries import read_library
from slopewise_exporter.logs.names import Names
from slopewise_exporter.logs.patterns import PatternReader
from slopewise_exporter.logs.text import PairReader, found_in

MAX_LINE_CHARACTERS = 65_536
"""Of a longer line only these are read."""

_CONTROL = re.compile(r"\x1b\[[0-9;?]{0,16}[A-Za-z]|\x08+|\x1b")
_SIGNS = (
    *("loss", "step", "epoch", "%|", "iter"),
    "\u2501",
    *("/s", "update", "trainer.fit", "train_runtime", "training ", "nll", "mse", "entropy"),
    "]\t",
    "finished with value",
)
"""One of these is in every line that says something in one of the common formats; most lines have none."""

_FINISHED = re.compile(
    r"^.{0,200}?(?:`Trainer\.fit` stopped: `max_|Training completed\. Do not forget"
    r"|[Tt]raining (?:complete|completed|finished)[.!]?\s*$)"
    r"|['\"]train_runtime['\"]\s?:"
)

_FINISHED_SIGNS = ("trainer.fit", "train_runtime", "training c", "training f")


class LineParser:
    """Reads lines in the common formats, or by patterns of the user alone. Keeps no state between lines.

    Args:
        patterns: regular expressions as in Katib's `metricsFormat`, or with groups named like the fields of `Found`.
        names: field of `Found`: the user's own names for it, e.g. `{"loss": ["nll"]}`.
        may_use_signals: whether a match that takes too long may be interrupted by SIGALRM: not within a training.

    PatternError for a pattern that cannot be used.
    """

    def __init__(
        self,
        patterns: Sequence[str] = (),
        names: Mapping[str, Sequence[str]] | None = None,
        *,
        may_use_signals: bool = False,
    ) -> None:
        self.names = Names(names)
        self._patterns: PatternReader | None = None
        if patterns:
            self._patterns = PatternReader(patterns, self.names, may_use_signals=may_use_signals)
        self._json = JsonReader(self.names)
        self._pairs = PairReader(self.names)
        self._signs = (*_SIGNS, *(name.split()[-1].lower() for name in self.names.own if name.strip()))

    def parse(self, line: str) -> Found | None:
        """What the line says; None: nothing. Never raises."""
        if self._patterns is not None:
            return found_in(self._patterns.read(line[:MAX_LINE_CHARACTERS]))
        if line[:1] == "{":
            found = self._json.read(line)
            if found is not None:
                return None if found is NOTHING else found
        line = line[:MAX_LINE_CHARACTERS]
        lower = line.lower()
        for sign in self._signs:
            if sign in lower:
                return self._text(line, lower)
        return None

    def _text(self, line: str, lower: str) -> Found | None:
        if "\x1b" in line or "\x08" in line:
            line = _CONTROL.sub("", line)
        finished = any(sign in lower for sign in _FINISHED_SIGNS) and _FINISHED.search(line) is not None
        own = None if self.names.own else read_library(line)
        if own is not None:
            return found_in(own)
        bar = read_bar(line)
        values = self._pairs.read(line if bar is None else bar[1])
        if bar is not None:
            values = {**values, **bar[0]}
        if finished:
            values = {
                name: value for name, value in values.items() if not name.startswith("loss")
            }  # Transformers' last line has the mean over the whole training
            return Found(**values, finished=True)
        return found_in(values)
