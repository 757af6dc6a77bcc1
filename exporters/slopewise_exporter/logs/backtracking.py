r"""Finds patterns that make Python's `re` try exponentially many ways: `(a+)+`, `(\w+\s*)*`, `(a|ab)*`.

Only where google-re2 is not installed. Refused is a repetition whose body repeats something itself, or has
alternatives: some of those are harmless, which only running them would show; the message names the way out.
Patterns of polynomial time, such as `.*a.*b.*c.*`, are counted, and few are let pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

try:
    from re import _parser as sre  # type: ignore[attr-defined]
except ImportError:  # Python 3.10 and earlier
    import sre_parse as sre

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
