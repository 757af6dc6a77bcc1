r"""Patterns of the user: one group, the loss; two, a name and its value, as in Katib's `metricsFormat`; or named ones.

    cost is (\S+)
    ([\w|-]+)\s*=\s*([+-]?\d*(\.\d+)?([Ee][+-]?\d+)?)
    step (?P<step>\d+) of (?P<steps_planned>\d+): cost (?P<loss>\S+)

With google-re2 (`slopewise-exporter[re2]`) the time for a line grows with its length and no faster, whatever the
pattern. Without it Python's `re` matches: patterns that could take exponential time are refused, lines are read up to
4,096 characters, and a line that takes more than half a second is given up. Inside a training, whose signals are its
own, lines are read up to 500 characters, and patterns with more than three wide repetitions are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from slopewise_exporter.logs.found import Found
from slopewise_exporter.logs.interruption import MAX_SECONDS_A_LINE, TimeUp, Watch
from slopewise_exporter.logs.names import Names
from slopewise_exporter.logs.text import LOSSES, NUMBER, is_usable, number_of
from slopewise_exporter.values import Checker

try:
    from re import _parser as sre  # type: ignore[attr-defined]
except ImportError:  # Python 3.10 and earlier
    import sre_parse as sre

MAX_CHARACTERS = 4096
"""Of a line, without RE2. With it, as many as `parser` reads."""
MAX_CHARACTERS_UNINTERRUPTED = 500
_MAX_WIDE_REPETITIONS = 3
"""Of 500 characters three make 500^3 / 6 ways, which takes less than a second."""

_FIELDS = tuple(name for name in Found._fields if name != "finished" and not name.endswith("_kind"))
_NUMBER = re.compile(NUMBER)
_GROUPS = "one group, which is the loss, two groups, a name and its value, or groups called " + ", ".join(_FIELDS)


class PatternError(ValueError):
    """A pattern that cannot be used; the message is one sentence for its user."""


def engine_name() -> str:
    """`RE2`, or `re` where it is not installed."""
    return "re" if _re2() is None else "RE2"


def compiled(pattern: str, *, interruptible: bool = True) -> Any:
    """A pattern of the engine that is installed. PatternError where it cannot be used."""
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        if _re2() is None:
            raise PatternError(f"the pattern {pattern!r} is no regular expression: {error}") from error
    re2 = _re2()
    if re2 is not None:
        quiet = re2.Options()
        quiet.log_errors = False
        try:
            return re2.compile(pattern, quiet)
        except re2.error as error:
            reason = error.args[0].decode("utf-8", "replace") if isinstance(error.args[0], bytes) else error
            raise PatternError(
                f"RE2 cannot use the pattern {pattern!r}: {reason} (it has no lookahead, lookbehind and backreferences)"
            ) from error
    if explodes(pattern) or (not interruptible and wide_repetitions(pattern) > _MAX_WIDE_REPETITIONS):
        raise PatternError(
            f"the pattern {pattern!r} has repetitions that Python's re may need hours for; simplify it, or install "
            "slopewise-exporter[re2], which takes it"
        )
    return re.compile(pattern)


class PatternReader:
    """Finds what patterns of the user match. PatternError where one cannot be used."""

    def __init__(self, patterns: Sequence[str], names: Names, *, may_use_signals: bool = False) -> None:
        self._names = names
        self._uses_re2 = _re2() is not None
        self._watch = Watch.of_this_thread() if may_use_signals and not self._uses_re2 else None
        interruptible = self._watch is not None
        self._patterns = [_Pattern(pattern, interruptible=interruptible) for pattern in patterns]
        self._check = Checker()

    def read(self, text: str) -> dict[str, Any]:
        """Field of `Found`: number."""
        if self._uses_re2:
            return self._values(text.encode("utf-8", "replace"))
        if self._watch is None:
            return self._values(text[:MAX_CHARACTERS_UNINTERRUPTED])
        try:
            with self._watch:
                return self._values(text[:MAX_CHARACTERS])
        except TimeUp:
            self._check.warn(
                "slow pattern",
                f"a pattern took longer than {MAX_SECONDS_A_LINE:g} s for a line, which is left out; "
                "slopewise-exporter[re2] would not",
            )
            return {}

    def _values(self, text: str | bytes) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for pattern in self._patterns:
            for match in pattern.finditer(text):
                if pattern.fields:
                    for group, field in pattern.fields:
                        _add(values, field, match[group])
                else:
                    name = match[1]
                    meaning = self._names.meaning(name if type(name) is str else name.decode("utf-8", "replace"))
                    if meaning is not None:
                        _add(values, meaning.field, match[2])
                        if meaning.field in LOSSES:
                            values.setdefault(f"{meaning.field}_kind", meaning.kind)
        return values


class _Pattern:
    """One that finds numbers, for which it needs groups, and what has to be looked up in it, once."""

    def __init__(self, pattern: str, *, interruptible: bool) -> None:
        found = compiled(pattern, interruptible=interruptible)
        self.finditer = found.finditer
        self.fields = [(number, name) for name, number in found.groupindex.items() if name in _FIELDS]
        if not self.fields and (found.groupindex or not found.groups):
            raise PatternError(f"the pattern {pattern!r} needs {_GROUPS}")
        if found.groups == 1 and not self.fields:
            self.fields = [(1, "loss")]


def _add(values: dict[str, Any], field: str, text: Any) -> None:
    """The first number for a field counts."""
    if not text or field in values:
        return
    number = _number_in(text)
    if number is not None and is_usable(field, number):
        values[field] = number


def _number_in(text: Any) -> float | None:
    """Of a group: `0.5`, and of `0.5,` or `=0.5` the number in it. Bytes are as good as text."""
    number = number_of(text)
    if number is None:
        match = _NUMBER.search((text if type(text) is str else text.decode("utf-8", "replace"))[:64])
        number = number_of(match[0]) if match else None
    return number


def _re2() -> Any:
    try:
        import re2
    except ImportError:
        return None
    return re2


# --- patterns that make Python's `re` try exponentially many ways: `(a+)+`, `(\w+\s*)*`, `(a|ab)*` -----------------
# A repetition whose body repeats something itself, or has alternatives, is one: some of those are harmless, which only
# running them would show. Those of polynomial time, such as `.*a.*b.*c.*`, are counted.

_REPEATS = tuple(getattr(sre, name) for name in ("MAX_REPEAT", "MIN_REPEAT"))
_MANY = 10
"""Times. A body that is repeated fewer times is tried in few ways."""


def explodes(pattern: str) -> bool:
    """Whether it could take exponential time. `re.error` where it is no pattern."""
    return any(_is_ambiguous(body) for body in _repeated(sre.parse(pattern)))


def wide_repetitions(pattern: str) -> int:
    """How many repetitions match nearly anything: with k of them time may grow as the k-th power of the length."""
    return sum(_is_wide(body) for body in _repeated(sre.parse(pattern)))


def _is_wide(body: Any) -> bool:
    if len(body) != 1:
        return False
    code, argument = body[0]
    if code in (sre.ANY, sre.NOT_LITERAL):
        return True
    wide = (sre.CATEGORY_WORD, sre.CATEGORY_NOT_SPACE, sre.CATEGORY_NOT_DIGIT)
    return code is sre.IN and any(
        kind is sre.NEGATE or (kind is sre.CATEGORY and which in wide) for kind, which in argument
    )


def _repeated(tree: Any) -> Iterator[Any]:
    """The bodies of all repetitions without a small bound."""
    for code, argument in tree:
        if code in _REPEATS:
            _, most, body = argument
            if most > _MANY:
                yield body
        for inner in _inner(code, argument):
            yield from _repeated(inner)


def _is_ambiguous(body: Any) -> bool:
    """Whether there may be several ways to match the same text."""
    for code, argument in body:
        if code in _REPEATS and argument[0] != argument[1]:
            return True
        if code is sre.BRANCH:
            return True
        if any(_is_ambiguous(inner) for inner in _inner(code, argument)):
            return True
    return False


def _inner(code: Any, argument: Any) -> list[Any]:
    if code in _REPEATS:
        return [argument[2]]
    if code is sre.BRANCH:
        return list(argument[1])
    if code is sre.SUBPATTERN:
        return [argument[-1]]
    if code in (sre.ASSERT, sre.ASSERT_NOT):
        return [argument[1]]
    return []
