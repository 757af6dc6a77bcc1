"""What a training or its environment gave us, turned into values that can be exported, or told of once.

Nothing in here raises into the training: a value that cannot be used is replaced by its default, and the log says so
the first time (a loop of a million steps must not write a million lines).
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Callable, TypeVar

Parsed = TypeVar("Parsed")

LOGGER = "slopewise_exporter"

MAX_LINGER_SECONDS = 3600.0


class Checker:
    """Reads values for one reporter and remembers which subjects it has already complained about."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def warn(self, subject: str, message: str) -> None:
        """Log `message` unless something was already said about `subject`; never raises."""
        if subject in self._told:
            return
        self._told.add(subject)
        # A user's log handler or filter may raise; that is not worth a training.
        with suppress(Exception):
            import logging  # here: it is a third of what importing a reporter would cost

            logging.getLogger(LOGGER).warning(message)

    def inform(self, message: str) -> None:
        """Log `message` for those who look; never raises."""
        with suppress(Exception):
            import logging

            logging.getLogger(LOGGER).info(message)

    def warned(self, subject: str) -> bool:
        """Whether something was said about `subject` and not forgotten since."""
        return subject in self._told

    def forget(self, subject: str) -> None:
        """It is well again: the next time something is said about it."""
        self._told.discard(subject)

    def read(self, name: str, value: object, parse: Callable[[object], Parsed], default: Parsed, wanted: str) -> Parsed:
        """`parse(value)`, or `default` and one warning when the value is not what was `wanted`."""
        try:
            return parse(value)
        except Exception:
            used = "it is ignored" if default is None else f"{default!r} is used"
            self.warn(name, f"{name}: {_shown(value)} is not {wanted}; {used}")
            return default


def _shown(value: object) -> str:
    # Only plain values are quoted: the repr of a tensor may be long, slow or raise.
    if type(value) in (str, int, float):
        with suppress(ValueError):  # Python writes no int of more than 4,300 digits
            return repr(value)[:80]
    return f"a {type(value).__name__}"


def parse_number(value: object) -> float:
    """A float, perhaps NaN or infinite, from anything that holds one number.

    `.item()` goes first because `float()` of a PyTorch tensor that requires a gradient warns in newer
    versions; numpy and JAX scalars have it as well.
    """
    item = getattr(value, "item", None)
    return float(item() if callable(item) else value)  # type: ignore[arg-type]


def parse_amount(value: object) -> float:
    """A finite number that is not negative; ValueError otherwise."""
    number = parse_number(value)
    if not math.isfinite(number) or number < 0:
        raise ValueError(number)
    return number


def parse_planned_steps(value: object) -> float | None:
    """A positive finite number, or None for "not known"; progress is divided by it, so never 0."""
    if value is None:
        return None
    steps = parse_amount(value)
    if steps == 0:
        raise ValueError(steps)
    return steps


def parse_steps(value: object) -> int:
    """How many steps have ended at once: a whole number, 1 or more."""
    steps = parse_amount(value)
    if steps < 1 or steps != int(steps):
        raise ValueError(steps)
    return int(steps)


def parse_linger_seconds(value: object) -> float:
    """Seconds from 0 to an hour: the end of a training must never look like a hang."""
    return _within(parse_amount(value), MAX_LINGER_SECONDS)


def parse_ema_decay(value: object) -> float:
    """The weight of the past in the moving average: 0 keeps none of it, 1 would never move."""
    return _within(parse_amount(value), math.nextafter(1.0, 0.0))


def parse_port(value: object) -> int:
    """A TCP port from 0 (any free one) to 65535, as a number or as text."""
    return int(_within(int(str(value)), 65535))


def parse_rank(value: object) -> int:
    """The rank of this process in its group, 0 or more."""
    return int(_within(int(str(value)), math.inf))


def _within(number: float, most: float) -> float:
    if not 0 <= number <= most:
        raise ValueError(number)
    return number


def parse_objective(value: object) -> str:
    """`min` when a lower evaluation value is better, `max` when a higher one is."""
    if value not in ("min", "max"):
        raise ValueError(value)
    return str(value)


def parse_label(value: object) -> str:
    """Text that can be sent as UTF-8: a lone surrogate (from a file name) would fail every later scrape."""
    return str(value).encode("utf-8", "replace").decode("utf-8")


def parse_flag(value: object) -> bool:
    """The usual spellings of yes and no in environment variables."""
    text = str(value).strip().lower()
    if text in ("1", "true", "yes", "on"):
        return True
    if text in ("0", "false", "no", "off"):
        return False
    raise ValueError(text)
