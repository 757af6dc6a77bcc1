"""Formats figures and foreign text for the terminal and the report.

Job names and reasons come from users and from their processes, so both pass through `plain` first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from slopewise.text import bounded, printable

if TYPE_CHECKING:  # the command line imports this module before it knows what is to be done
    from slopewise.model import CpuControl
    from slopewise.reports.estimates import Estimate

UNKNOWN = "–"
# A request is a weight: it binds only while the others want CPU too, and then as a share of the node's cores.
_ALLOTMENTS: dict[CpuControl, str] = {"limits": "the most it may use", "requests": "its share when every job wants CPU"}
_LARGEST = 1e300
_WHITE = re.compile(r"\s+")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[-+]?\d*\.?\d+(e[-+]?\d+)?", re.IGNORECASE)


def plain(text: str) -> str:
    """`text` on one line, without characters that would act on a terminal or a page instead of showing."""
    return printable(_WHITE.sub(" ", text)).strip()


def no_formula(text: str) -> str:
    """`plain`; a cell that begins like a formula gets a quote before it, as spreadsheets write such text themselves."""
    shown = plain(text)
    return f"'{shown}" if shown.startswith(_FORMULA) and not _NUMBER.fullmatch(shown) else shown


def label(text: str, width: int = 18) -> str:
    """Foreign text for a chart: one line, cut to `width`. The page's templates escape it."""
    return bounded(plain(text), width)


def listed(names: Iterable[str], *, at_most: int = 6) -> str:
    """`a, b and 3 more`: names for a sentence, each shortened, never more than `at_most` of them."""
    every = [label(name, 32) for name in names]
    shown = ", ".join(every[:at_most])
    return f"{shown} and {len(every) - at_most} more" if len(every) > at_most else shown


def finite(value: float) -> bool:
    """False for NaN, the infinities, and values so large that a sum of them would be infinite: a job diverged."""
    return abs(value) < _LARGEST


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """`1 job`, `2 jobs`; `2 passes` when the plural is given."""
    return f"{count} {noun}" if count == 1 else f"{count} {plural or noun + 's'}"


def plus_minus(value: Estimate, digits: int) -> str:
    """`41.30 ± 2.10`; without an interval the mean alone, and a dash without that."""
    if value.mean is None:
        return UNKNOWN
    return f"{value.mean:.{digits}f}" if value.half is None else f"{value.mean:.{digits}f} ± {value.half:.{digits}f}"


def seconds(value: float | None) -> str:
    """`41.3 s`; an unknown duration is a dash."""
    return UNKNOWN if value is None else f"{value:.1f} s"


def of_bound(value: float | None, bound: float | None) -> str:
    """`41.3 of 45.0 s` for a figure and its bound; `112 of 150 ms` below a second; a dash where there is no bound."""
    if bound is None:
        return UNKNOWN
    unit, factor, digits = ("ms", 1000, 0) if bound < 1 else ("s", 1, 1)
    known = UNKNOWN if value is None else f"{value * factor:.{digits}f}"
    return f"{known} of {bound * factor:.{digits}f} {unit}"


def loss_change(first: float | None, last: float | None) -> str:
    """`2.31 → 0.412`; a dash where no loss was reported."""
    return UNKNOWN if first is None or last is None else f"{first:.3g} → {last:.3g}"


def steps_done(steps: float | None, planned: float | None) -> str:
    """`600 of 1000`; `600` without a plan, and a dash where no step was reported."""
    if steps is None:
        return UNKNOWN
    return f"{steps:.0f}" if planned is None else f"{steps:.0f} of {planned:.0f}"


def ratio(value: float | None) -> str:
    """`×0.82`; an unknown ratio is a dash."""
    return UNKNOWN if value is None else f"×{value:.2f}"


def uncapitalised(label: str) -> str:
    """As within a sentence: `mean completion time`, and `CPU of everything else`."""
    return label if label[1:2].isupper() else label[:1].lower() + label[1:]


def change(value: float) -> str:
    """A ratio of two durations in words: 0.82 is `18 % shorter`, 1.3 is `30 % longer`."""
    percent = round(abs(value - 1) * 100)
    if percent == 0:
        return "less than 1 % " + ("shorter" if value < 1 else "longer")
    return f"{percent} % {'shorter' if value < 1 else 'longer'}"


def cores(millicores: int | None) -> str:
    """`0.50` for 500 millicores; an unknown amount is a dash."""
    return UNKNOWN if millicores is None else f"{millicores / 1000:.2f}"


def allotment(control: CpuControl) -> str:
    """The meaning of a job's allotted cores, as the end of `cores: …`."""
    return _ALLOTMENTS[control]
