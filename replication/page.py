"""Writes `docs/replication.md`: for each setting the printed figure, ours with its interval, and what to make of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from controller.simulator.measures import Estimate
from replication.claims import Claim, Unit
from replication.comments import COMMENTS
from replication.run import Result

Verdict = Literal["agrees", "same direction", "no effect", "contradicts", "differs", ""]

CLOSE_RATIO = 0.1
"""Within 10 % of the printed figure counts as agreeing: the thesis prints one setting twice, 8.5 points apart."""

HEAD = """\
# The papers' figures, and ours

Written by `make replicate` ({seeds} seeds a setting); do not edit. Each table sets a paper's printed figures beside
what this project's policies give in its simulator, which runs the real pass (`controller/reconcile.py`). Ours are means
over seeds with 95 % intervals (Student's t); each paper's policy is compared with that paper's own baseline. The
papers' machines, the exact lengths of their models and their arrival times are not known: where a run is not determined
by what is printed, only ratios can be compared.

*agrees*: the printed figure lies in our interval, or our mean within 10 % of it. For gains (per cent less, or how many
jobs are faster, where half of them is no gain): *same direction* when the whole interval is a gain, *no effect* when it
includes none, *contradicts* when it is a loss. *differs*: what neither agrees nor is a gain or a loss.

| setting | printed figures | agrees | same direction | no effect | contradicts | differs |
|---|---|---|---|---|---|---|
"""


def page(results: Sequence[Result], pictures: Sequence[str], validation: str) -> str:
    """The whole page, in Markdown; `validation` is its section on simulated against real runs."""
    seeds = ", ".join(str(each) for each in sorted({result.seeds for result in results}))
    parts = [HEAD.format(seeds=seeds) + "".join(_summary_row(result) for result in results)]
    parts += [
        _section(result, [each for each in pictures if each.startswith(result.setting.name)]) for result in results
    ]
    parts.append(validation)
    return "\n".join(parts).rstrip() + "\n"


def verdict(claim: Claim, ours: Estimate) -> Verdict:
    """What our figure says about the printed one, by the rule that the page states."""
    printed = claim.printed_value
    if printed is None or ours.mean is None:
        return ""
    low = ours.mean if ours.low is None else ours.low
    high = ours.mean if ours.high is None else ours.high
    if low <= printed <= high or abs(ours.mean - printed) <= CLOSE_RATIO * abs(printed):
        return "agrees"
    if claim.neutral is None:
        return "differs"
    return "same direction" if low > claim.neutral else "contradicts" if high < claim.neutral else "no effect"


def _summary_row(result: Result) -> str:
    """Counted over the first reading of each claim, which is the default."""
    first = result.setting.variants[0].name
    verdicts = [verdict(claim, result.estimates[place, first]) for place, claim in enumerate(result.setting.claims)]
    printed = sum(bool(each) for each in verdicts)
    counts = [verdicts.count(kind) for kind in ("agrees", "same direction", "no effect", "contradicts", "differs")]
    link = f"[{result.setting.title}](#{_anchor(result.setting.title)})"
    return f"| {link} | {printed} | {' | '.join(str(count or '') for count in counts)} |\n"


def _section(result: Result, pictures: Sequence[str]) -> str:
    setting = result.setting
    names = [variant.name for variant in setting.variants]
    lines = [f"\n## {setting.title}\n", f"Scenario `{setting.scenario}`, {result.seeds} seeds.\n"]
    lines.append(f"| figure | printed | {' | '.join(names)} | |")
    lines.append("|---|---|" + "---|" * (len(names) + 1))
    for place, claim in enumerate(setting.claims):
        cells = [shown(result.estimates.get((place, name)), claim.unit) for name in names]
        said = verdict(claim, result.estimates[place, names[0]])
        lines.append(f"| {claim.what} | {_printed(claim)} | {' | '.join(cells)} | {said} |")
    lines += [f"\n![{picture}](images/replication/{picture})" for picture in pictures]
    if setting.name in COMMENTS:
        lines.append(f"\n{COMMENTS[setting.name]}")
    return "\n".join(lines) + "\n"


def _printed(claim: Claim) -> str:
    return claim.printed if claim.printed_value is None else f"{claim.printed}{_unit(claim.unit)}"


def shown(ours: Estimate | None, unit: Unit) -> str:
    """A mean with its interval, e.g. `13.2 [11.9, 14.5] %`."""
    if ours is None or ours.mean is None:
        return "–" if ours is not None else ""
    if ours.low is None or ours.high is None:
        return f"{_number(ours.mean)}{_unit(unit)}"
    return f"{_number(ours.mean)} [{_number(ours.low)}, {_number(ours.high)}]{_unit(unit)}"


def _number(value: float) -> str:
    return f"{value:.1f}" if abs(value) < 1000 else f"{value:.0f}"


def _unit(unit: Unit) -> str:
    return {"s": " s", "%": " %", "jobs": "", "": ""}[unit]


def _anchor(title: str) -> str:
    """The anchor that GitHub gives a heading: lower case, punctuation gone, spaces as dashes."""
    return "".join(_anchor_letters(title))


def _anchor_letters(title: str) -> Iterator[str]:
    for letter in title.lower():
        if letter.isalnum() or letter in "-_":
            yield letter
        elif letter == " ":
            yield "-"
