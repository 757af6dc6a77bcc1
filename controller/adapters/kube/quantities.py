"""Kubernetes quantities (`250m`, `2`, `1.5Gi`, `1e3`) as whole millicores and bytes.

`parsing.py` reads the API server's objects with these; `settings.cpu_quantity` is the way back. The grammar is the API
server's own, which is wider than what `settings.parse_cpu_millicores` lets a user write: whatever somebody else's
tool has stored must be readable. Numbers are exact (Decimal) and rounded up like Kubernetes rounds them: a container
with `100n` CPU has 1m.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache

_QUANTITY = re.compile(
    r"(?P<number>[+-]?(\d{1,40}(\.\d{0,40})?|\.\d{1,40}))"
    r"((?P<suffix>n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)|[eE](?P<exponent>[+-]?\d{1,2}))?",
    re.ASCII,
)
"""`1E` is an exa, `1E3` a thousand. Digits are bounded: a hostile `1e999999999` must not cost a gigabyte."""

_FACTORS: Mapping[str | None, Decimal] = {
    None: Decimal(1),
    **{
        suffix: Decimal(1000) ** power
        for suffix, power in zip("numkMGTPE", (-3, -2, -1, 1, 2, 3, 4, 5, 6), strict=True)
    },
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}

LARGEST = 2**63 - 1
"""Kubernetes caps a quantity's whole number here."""


@lru_cache(maxsize=4096)
def cpu_millicores(quantity: str | float) -> int:
    """A CPU quantity in millicores, rounded up, e.g. `1.5` is 1500; ValueError with what was found."""
    return _whole(quantity, Decimal(1000))


@lru_cache(maxsize=4096)
def memory_bytes(quantity: str | float) -> int:
    """A memory quantity in bytes, rounded up, e.g. `1.5Gi` is 1610612736; ValueError with what was found."""
    return _whole(quantity, Decimal(1))


def _whole(quantity: str | float, unit: Decimal) -> int:
    """The quantity in units of 1/`unit`; JSON numbers are quantities too."""
    match = _QUANTITY.fullmatch(str(quantity))
    if match is None:
        raise ValueError(f"{str(quantity)[:40]!r} is not a Kubernetes quantity")
    factor = _FACTORS[match["suffix"]] * Decimal(10) ** int(match["exponent"] or 0)
    value = (Decimal(match["number"]) * factor * unit).to_integral_value(ROUND_CEILING)
    if value < 0:
        raise ValueError(f"{str(quantity)[:40]!r} is a negative quantity")
    return min(int(value), LARGEST)
