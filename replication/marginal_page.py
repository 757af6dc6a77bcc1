"""Renders replication/marginal-figures.md from the figures that are kept of each setting."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from replication import marginal_published
from replication.marginal_runs import (
    FAIR,
    LIARS_MEAN,
    LIARS_WORST,
    LOST,
    MOVES,
    RATIOS,
    RESIZES,
    WORST,
    Kept,
)
from replication.marginal_settings import MARGINAL, ORACLE, POLICIES, TUNING_SEEDS, Setting
from slopewise.reports.estimates import Estimate

HEAD = """\
# Figures of `marginal`

<!-- Written by `python -m replication.marginal`. -->

[The policy explained](../docs/marginal.md) says what it does. Each row is a setting in the simulator, with its
real pass. A cell has *mean completion · time to 90 % · makespan · worst job*, means over the setting's seeds:

- The first three are ratios to `fair`, run by run: below 1 is better.
- *Worst job* is the largest ratio of a job's time to its mean time over eight fair runs; fair sharing has one as well.
- *Italics* are above what was set out to reach.

![Mean completion time and the worst job of each policy, on one node and on four](images/marginal-figures.svg)

"""

TABLES_HEAD = """\
# Figures of `marginal`, all tables

<!-- Written by `python -m replication.marginal`. -->

[The short table](../marginal-figures.md) has each setting in a row. Here are means over the seeds that a section names,
with 95 % intervals. Readings of the policy were compared on seeds {tuned} and above alone: no figure here is from them.

- The first four figures are ratios to `fair`, run by run: below 1 is better, and an interval that holds 1 is no effect.
- *Worst job* is the largest ratio of a job's time to its mean time over eight fair runs; fair sharing's own is in its
  row.
- *Aim* is what was set out to reach. A mean above it is in *italics*.
- In rows of `marginal`, the number in parentheses is the gap to `srpt-oracle`: +0.12 is 0.12 above it. The oracle knows
  what work is left, and gives each node to the job with the least. It orders by ends alone, so that it is behind in the
  time to 90 %, and it moves no job.
- *Resizes* and *moves* are changes of CPU and of nodes a job. *CPU lost* is the part of the CPU used that did no work:
  contention, and quotas below a core where limits are hard.
- `fifo` is fair sharing behind a queue: a job starts once a node has all the cores free that it can use, in the order
  of arrival. `flowcon` and `specon` have the parameters of the scenario.

**Contention.** A job loses 1 % of its work for each further job on its node, unless a section says otherwise: that is
assumed. The column *CPU lost* has what it comes to. On real cores, a step of two trainings on one core took 0 to 28 %
more CPU than alone ([recorded pairs](../recorded_pairs.csv)). The policy assumes none: what it counts
in CPU-seconds includes it. The sections without contention and with 5 % show what depends on it.

`python -m replication.marginal --section NAME` runs one section, and keeps the figures of each seed in
`replication/marginal_figures/NAME.json`.

"""

TABLES = "marginal_figures/tables.md"
"""Beside the page."""

SHORT = ("jct_mean_seconds", "time_to_90_seconds", "makespan_seconds", WORST)
"""The four figures of a cell."""

COLUMNS = (
    "| policy | mean completion | makespan | time to 90 % | time to 99 % | worst job | resizes | moves | CPU lost |\n"
    "|---|---|---|---|---|---|---|---|---|\n"
)
NOTHING = "–"


def page(settings: Sequence[Setting], kept: Mapping[str, Kept]) -> str:
    """The short page, in Markdown: a row for each setting, with a list of those of which nothing is kept."""
    lines = [HEAD, f"| setting | {' | '.join(POLICIES)} | `fair` |\n|---|{'---|' * len(POLICIES)}---|\n"]
    for setting in settings:
        if setting.name in kept:
            lines += _short_rows(setting, kept[setting.name])
    return "".join(lines) + _missing([each.name for each in settings if each.name not in kept])


def _short_rows(setting: Setting, kept: Kept) -> list[str]:
    """One row, or one for each way of `marginal` where the setting compares those."""
    link = f"[{setting.title}]({TABLES}#{setting.name})"
    fair = f"worst {number(Estimate(kept.of(FAIR, WORST).mean, None, None))}"
    ways = [each for each in setting.policies if each not in POLICIES]
    rows = [(f"{link}, {way}", [way]) for way in ways] or [(link, list(POLICIES))]
    return [
        f"| {title} | {' | '.join(_short(setting, kept, each) for each in shown)}{' |' * (len(POLICIES) - len(shown))} "
        f"| {fair} |\n"
        for title, shown in rows
    ]


def _short(setting: Setting, kept: Kept, policy: str) -> str:
    if policy not in kept.policies:
        return ""
    fair_worst = kept.of(FAIR, WORST).mean
    aims = dict(zip((*RATIOS, WORST), setting.aim_of(policy).figures(fair_worst), strict=True))
    cells = []
    for measure in SHORT:
        figure, aim = kept.of(policy, measure), aims[measure]
        text = number(Estimate(figure.mean, None, None))
        cells.append(f"*{text}*" if aim is not None and _misses(figure, aim) else text)
    return " · ".join(cells)


def tables(
    settings: Sequence[Setting],
    kept: Mapping[str, Kept],
    published: tuple[Sequence[int], Sequence[marginal_published.Row]] | None,
) -> str:
    """The long tables, in Markdown, with a list of the settings of which nothing is kept."""
    sections = [section(each, kept[each.name], kept.get(each.baselines_of)) for each in settings if each.name in kept]
    if published is not None:
        sections.append(_published(*published))
    names = [each.name for each in settings if each.name not in kept]
    names += [marginal_published.NAME] if published is None else []
    return TABLES_HEAD.format(tuned=TUNING_SEEDS[0]) + _missing(names) + "\n" + "\n".join(sections)


def _missing(names: Sequence[str]) -> str:
    """The sections that were not run."""
    return f"\nNot run yet: {', '.join(f'`{name}`' for name in names)}.\n" if names else ""


def section(setting: Setting, kept: Kept, baselines: Kept | None) -> str:
    """One setting: a row for each policy."""
    rows = {policy: kept for policy in setting.policies if policy in kept.policies}
    if baselines is not None and ORACLE in baselines.policies:
        rows[ORACLE] = baselines
    lines = [f'<a id="{setting.name}"></a>\n\n## {setting.title[0].upper()}{setting.title[1:]}\n\n']
    of_others = setting.baselines_of
    others = f"Other policies are in [{of_others}](#{of_others})." if of_others and baselines is not None else ""
    lines.append(f"{' '.join(filter(None, (_which(setting, kept), setting.note, others)))}\n\n")
    lines.append(COLUMNS)
    fair_worst = kept.of(FAIR, WORST)
    aims = setting.aim.figures(fair_worst.mean)
    if any(aim is not None for aim in aims):
        shown = " | ".join(NOTHING if aim is None else f"{aim:.2f}" for aim in aims)
        lines.append(f"| aim | {shown} | | | |\n")
    lines.append(f"| `fair` | 1 | 1 | 1 | 1 | {number(fair_worst)} | {_effort(kept, FAIR)} |\n")
    lines += [_row(setting, policy, of, kept, baselines) for policy, of in rows.items()]
    return "".join(lines) + _liars(kept)


def _which(setting: Setting, kept: Kept) -> str:
    keys = [f"`{key}: {_yaml(value)}`" for key, value in setting.overrides.items()]
    replaced = f" with {', '.join(keys)}" if keys else ""
    names = " and ".join(f"`{name}`" for name in (kept.scenarios[0], kept.scenarios[-1])[: len(kept.scenarios)])
    what = f"Scenario {names}" if len(kept.scenarios) == 1 else f"Scenarios {names.replace(' and ', ' to ')}"
    each = "" if len(kept.scenarios) == 1 else " of each"
    return f"{what}{replaced}; seeds {kept.seeds[0]} to {kept.seeds[-1]}{each}."


def _yaml(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _row(setting: Setting, policy: str, of: Kept, kept: Kept, baselines: Kept | None) -> str:
    ours = policy == MARGINAL or policy.startswith("favour")
    aims = setting.aim_of(policy).figures(kept.of(FAIR, WORST).mean)
    cells = []
    for measure, aim in zip((*RATIOS, WORST), aims, strict=True):
        text = number(figure := of.of(policy, measure))
        if aim is not None and _misses(figure, aim):
            text = f"*{text}*"
        cells.append(text + (_gap(policy, measure, kept, baselines) if ours else ""))
    name = f"`{policy}`" if " " not in policy else f"`{MARGINAL}`, {policy}"
    return f"| {name} | {' | '.join(cells)} | {_effort(of, policy)} |\n"


def _gap(policy: str, measure: str, kept: Kept, baselines: Kept | None) -> str:
    """How far above the oracle, in parentheses."""
    if ORACLE in kept.policies:
        together = kept
    elif baselines is not None and ORACLE in baselines.policies and baselines.seeds == kept.seeds:
        together = Kept(kept.scenarios, kept.seeds, {**baselines.policies, **kept.policies})
    else:
        return ""
    mean = together.gap(policy, ORACLE, measure).mean
    return "" if mean is None else f" ({mean:+.2f})"


def _effort(kept: Kept, policy: str) -> str:
    resizes, moves, lost = (kept.of(policy, measure).mean for measure in (RESIZES, MOVES, LOST))
    shown = [NOTHING if each is None else f"{each:.1f}" for each in (resizes, moves)]
    return " | ".join([*shown, NOTHING if lost is None else f"{100 * lost:.1f} %"])


def _liars(kept: Kept) -> str:
    """What the liars gain."""
    if LIARS_MEAN not in kept.policies[FAIR]:
        return ""
    lines = ["\n| policy | liars, mean ratio to `fair` | liars, worst |\n|---|---|---|\n"]
    for policy in kept.policies:
        if policy != FAIR:
            cells = (number(kept.of(policy, measure)) for measure in (LIARS_MEAN, LIARS_WORST))
            lines.append(f"| `{policy}` | {' | '.join(cells)} |\n")
    return "".join(lines)


def _misses(figure: Estimate, aim: float) -> bool:
    return figure.mean is not None and round(figure.mean, 2) > round(aim, 2)


def number(figure: Estimate, digits: int = 2) -> str:
    """A mean with its interval."""
    if figure.mean is None:
        return NOTHING
    interval = (
        "" if figure.low is None or figure.high is None else f" [{figure.low:.{digits}f}, {figure.high:.{digits}f}]"
    )
    return f"{figure.mean:.{digits}f}{interval}"


PUBLISHED = """\
<a id="published"></a>

## Every published setting, on that paper's own measures

Seeds {first} to {last}. Each policy is set against the paper's baseline over the same jobs. *Ahead* and *behind*: the
95 % interval of the difference between the two policies, seed by seed, leaves out 0. `marginal` runs with its default
parameters at the paper's interval, once with the scenarios' plans and once without any.

| setting | measure | the paper's policy | `marginal` | | `marginal`, no plan | |
|---|---|---|---|---|---|---|
"""


def _published(seeds: Sequence[int], rows: Sequence[marginal_published.Row]) -> str:
    lines = [PUBLISHED.format(first=seeds[0], last=seeds[-1])]
    before = ""
    for row in rows:
        theirs, ours, without = (
            number(marginal_published.mean(each), 1) for each in (row.theirs, row.ours, row.ours_without_plan)
        )
        name = "" if row.setting == before else row.setting
        before = row.setting
        verdicts = row.verdict(row.ours), row.verdict(row.ours_without_plan)
        lines.append(f"| {name} | {row.measure} | {theirs} | {ours} | {verdicts[0]} | {without} | {verdicts[1]} |\n")
    return "".join(lines)
