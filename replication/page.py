"""Writes `replication/papers.md`: for each setting the printed figure, ours with its interval, and a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from replication.claims import Claim, Unit
from replication.comments import COMMENTS, Comment, ShownBy
from replication.run import SETTINGS, Result
from slopewise.reports.estimates import Estimate

Verdict = Literal["agrees", "same direction", "no effect", "contradicts", "differs", ""]

CLOSE_RATIO = 0.1
"""Within 10 % of the printed figure counts as agreeing: the thesis prints one setting twice, 8.5 points apart."""

NOTHING = {"%": 0.5, "jobs": 0.0, "s": 0.0, "": 0.0}
"""So far from no gain a mean is still none: half a per cent of a makespan that is conserved is a rounded resize."""

HEAD = """\
# The papers' figures, and ours

<!-- Written by `make replicate`. -->

Each table sets a paper's printed figures beside what this project's policies give in its
[simulator](../docs/simulator.md), which runs the real pass. Ours are means over seeds ({seeds} seeds a setting) with
95 % intervals (Student's t) in brackets; each paper's policy is compared with that paper's own baseline, seed by seed
over the same jobs.

The papers' machines, the exact lengths of their models and their arrival times are not printed. A scenario's lengths or
speeds are chosen so that the *baseline* comes near the printed one, and the policy has no part in that choice. So
completion times and makespans in seconds are shown but not judged; how much a policy changes them is.

| word | what it means here |
|---|---|
| NA | FlowCon's baseline: no policy, all jobs of the node share evenly (`fair`) |
| DS | the default scheduler: `fair` beside SpeCon, which does not place; else `kube-default` without requests |
| by least used CPU | DS starts a job where least CPU is in use at that moment, as in the thesis (6.2.3) |
| by fewest jobs | DS starts a job where the fewest are, as Kubernetes does with pods and nodes that are alike |
| completion (time) | from a job's arrival to its end |
| makespan | from the first arrival to the last end |
| α | the growth below which a job counts as converged |
| itval, interval | seconds between two evaluations by the policy |
| jobs faster, winners, losers | jobs that end sooner, or later, than under the baseline, by any amount |
| overlap | for how long so many jobs run at the same time |
| slow move, rebalancing move | moves by SpeCon's Algorithm 4, for slow growth, and 5, to even out the nodes |
| jitter | standard deviation over mean of a job's CPU over pieces of 20 s, mean over jobs |
| allocated CPU used | of the CPU that limits (or requests, without a limit) allocate to jobs, the part that they use |
| recorded losses | jobs report [real losses](../docs/simulator.md#recorded-losses): each step's, or averaged |
| falls | how much less it is than under the baseline, in per cent; a negative figure is a rise |

The last column says, by rule:

- *agrees*: the printed figure (of a range: some of it) lies in our interval, or our mean is within 10 % of it; of
  gains, only where no gain (0 %, half of the jobs) lies outside our interval.
- of gains (per cent less, or how many jobs are faster, where half of them is no gain), *same direction*: the whole
  interval is a gain, which is all that can be said where the paper prints no figure but says in words that there is
  one; *no effect*: it includes none, or the mean is within half a per cent of none; *contradicts*: the
  whole interval is a loss.
- *differs*: what neither agrees nor is a gain. What the *best* of many jobs gains is such a figure, for something is
  always gained by one of them.

Where a setting has several columns (readings, default schedulers, losses), the verdict is on the first. FlowCon's
first (*as printed*, each step's loss) fits the paper's own worked example, its second (averaged) is what ships.

Below a table no cause is named without the rows and columns that show it. Settings with *causes tried* in their names
hold the runs made for that: a column is the setting with something else in it, and nothing in them is judged.

| setting | judged figures | agrees | same direction | no effect | contradicts | differs |
|---|---|---|---|---|---|---|
"""


def page(results: Sequence[Result], pictures: Mapping[str, Sequence[str]], validation: str) -> str:
    """The whole page, in Markdown.

    `pictures`: file names by setting; `validation`: the section on simulated against real runs.
    """
    seeds = ", ".join(str(each) for each in sorted({result.seeds for result in results}))
    parts = [HEAD.format(seeds=seeds) + "".join(_summary_row(result) for result in results)]
    parts += [_section(result, pictures.get(result.setting.name, ())) for result in results]
    parts.append(validation)
    return "\n".join(parts).rstrip() + "\n"


def verdict(claim: Claim, ours: Estimate) -> Verdict:
    """What our figure says about the printed one, by the rule that the page states."""
    if claim.printed_value is None or ours.mean is None:
        return ""
    low = ours.mean if ours.low is None else ours.low
    high = ours.mean if ours.high is None else ours.high
    agrees = claim.printed_value != "a gain" and _agrees(claim.printed_value, low, ours.mean, high)
    if claim.neutral is None:
        return "agrees" if agrees else "differs"
    if low <= claim.neutral <= high or abs(ours.mean - claim.neutral) <= NOTHING[claim.unit]:
        return "no effect"
    if agrees:
        return "agrees"
    return "same direction" if low > claim.neutral else "contradicts"


def _agrees(printed: float | tuple[float, float], low: float, mean: float, high: float) -> bool:
    least, most = printed if isinstance(printed, tuple) else (printed, printed)
    close = any(abs(mean - end) <= CLOSE_RATIO * abs(end) for end in (least, most))
    return close or (low <= most and high >= least)


def _summary_row(result: Result) -> str:
    """Counted over the first reading of each claim, which is the default."""
    first = result.setting.variants[0].name
    verdicts = [verdict(claim, result.estimates[place, first]) for place, claim in enumerate(result.setting.claims)]
    printed = sum(bool(each) for each in verdicts)
    counts = [verdicts.count(kind) for kind in ("agrees", "same direction", "no effect", "contradicts", "differs")]
    link = f"[{result.setting.title}](#{anchor(result.setting.title)})"
    return f"| {link} | {printed} | {' | '.join(str(count or '') for count in counts)} |\n"


def _section(result: Result, pictures: Sequence[str]) -> str:
    setting = result.setting
    names = [variant.name for variant in setting.variants]
    source = f"[`{setting.scenario}`](../controller/slopewise/simulator/scenarios/{setting.scenario}.yaml)"
    lines = [f"\n## {setting.title}\n", f"Scenario {source}, {result.seeds} seeds.\n"]
    lines.append(f"| figure | printed | {' | '.join(names)} | |")
    lines.append("|---|---|" + "---|" * (len(names) + 1))
    for place, claim in enumerate(setting.claims):
        cells = [shown(result.estimates.get((place, name)), claim.unit, result.seeds) for name in names]
        said = verdict(claim, result.estimates[place, names[0]])
        lines.append(f"| {claim.what} | {claim.printed} | {' | '.join(cells)} | {said} |")
    lines += [f"\n![{picture}](images/{picture})" for picture in pictures]
    lines += [f"\n{paragraph(comment)}" for comment in COMMENTS.get(setting.name, ())]
    return "\n".join(lines) + "\n"


def paragraph(comment: Comment) -> str:
    """A comment as the page has it: its text, and what shows it."""
    if not comment.shown_by:
        return comment.text
    return f"{comment.text}\nShown by {'; '.join(_evidence(each) for each in comment.shown_by)}."


def _evidence(shown_by: ShownBy) -> str:
    title = SETTINGS[shown_by.setting].title
    parts = [f"[{title}](#{anchor(title)})"]
    for kind, names in (("row", shown_by.rows), ("column", shown_by.columns)):
        if names:
            parts.append(f"{kind}{'s' if len(names) > 1 else ''} {', '.join(f'“{name}”' for name in names)}")
    return ", ".join(parts)


def shown(ours: Estimate | None, unit: Unit, seeds: int) -> str:
    """A mean with its interval, e.g. `13.2 [11.9, 14.5] %`; and of how many seeds, when not all have the figure."""
    if ours is None:
        return ""
    if ours.mean is None:
        return "–"
    interval = "" if ours.low is None or ours.high is None else f" [{_number(ours.low)}, {_number(ours.high)}]"
    some = f" ({ours.count} of {seeds} seeds)" if ours.count < seeds else ""
    return f"{_number(ours.mean)}{interval}{_unit(unit)}{some}"


def _number(value: float) -> str:
    text = f"{value:.1f}" if abs(value) < 1000 else f"{value:.0f}"
    return "0.0" if text == "-0.0" else text


def _unit(unit: Unit) -> str:
    return {"s": " s", "%": " %", "jobs": "", "": ""}[unit]


def anchor(title: str) -> str:
    """The anchor that GitHub gives a heading: lower case, punctuation gone, spaces as dashes."""
    return "".join(_anchor_letters(title))


def _anchor_letters(title: str) -> Iterator[str]:
    for letter in title.lower():
        if letter.isalnum() or letter in "-_":
            yield letter
        elif letter == " ":
            yield "-"
