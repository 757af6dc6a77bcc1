"""Parses Kubernetes quantities (`250m`, `2`, `1.5Gi`, `1e3`) into whole millicores and bytes.

`settings.cpu_quantity` formats them. The grammar is the API server's, which is wider than what
`settings.parse_cpu_millicores` accepts from users: whatever another tool has stored must be readable. Numbers are exact
(Decimal) and rounded up as Kubernetes rounds them: a container with `100n` CPU has 1m.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache

from kubernetes.utils.quantity import parse_quantity

_BOUNDED = re.compile(r"[+-]?[0-9.]{1,41}([a-zA-Z]{0,2}|[eE][+-]?[0-9]{1,2})")
"""The input of `parse_quantity`, with bounded digits: a hostile `1e999999999` must not cost a gigabyte. Decimal also
accepts `nan`, `1_000` and digits of other alphabets, which this excludes."""

Quantity = str | int | float
"""As JSON has it: a number is a quantity too."""

LARGEST = 2**63 - 1
"""Kubernetes caps a quantity's whole number here."""


@lru_cache(maxsize=4096)
def cpu_millicores(quantity: Quantity) -> int:
    """A CPU quantity in millicores, rounded up, e.g. `1.5` is 1500; ValueError with what was found."""
    return _whole(quantity, 1000)


@lru_cache(maxsize=4096)
def memory_bytes(quantity: Quantity) -> int:
    """A memory quantity in bytes, rounded up, e.g. `1.5Gi` is 1610612736; ValueError with what was found."""
    return _whole(quantity, 1)


def _whole(quantity: Quantity, unit: int) -> int:
    """The quantity in units of 1/`unit`."""
    text = str(quantity)
    try:
        exact: Decimal = parse_quantity(text if _BOUNDED.fullmatch(text) else "")  # type: ignore[no-untyped-call]
    except ValueError as error:
        raise ValueError(f"{text[:40]!r} is not a Kubernetes quantity") from error
    if exact < 0:
        raise ValueError(f"{text[:40]!r} is a negative quantity")
    return min(int((exact * unit).to_integral_value(ROUND_CEILING)), LARGEST)
