"""Runs the trainings of `outside_curves`, and renders `replication/algoperf.md` and `taskset.md` from what is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from replication import outside_curves
from replication.marginal_page import number
from replication.marginal_runs import FAIR, WORST, Kept, load
from replication.marginal_settings import ORACLE
from replication.outside_curves import MARGINAL, Cluster, Trainings
from replication.plots import draw_trade
from slopewise.reports.estimates import Estimate
from slopewise.simulator.scenario.scenario import Scenario, load_scenario
from slopewise.simulator.sweep import Simulator, simulate

HERE = Path(__file__).resolve().parent
KEPT = HERE / "outside_figures"

JCT = "jct_mean_seconds"
COLUMNS = {
    JCT: "mean completion", "time_to_target_seconds": "time to target", WORST: "worst job",
    "jobs_later_ratio": "jobs later",
}  # fmt: skip
"""The measures, and how a page calls them: the first two are ratios to fair sharing."""

RATIOS = 2

SHOWN_GAP = 0.005
"""What is not 0.00 in the table."""


@dataclass(frozen=True, slots=True)
class Study:
    """Recorded trainings of one source, and what they are run on."""

    name: str
    title: str
    read: Callable[[Path], Mapping[str, Trainings]]
    interval_seconds: float
    clusters: Mapping[str, Cluster]
    source: str


ALGOPERF = Study(
    "algoperf",
    "AlgoPerf's runs, with plans and targets of others",
    outside_curves.read_algoperf,
    600.0,
    {"one node": Cluster(1, 10, 86_400.0), "four nodes": Cluster(4, 20, 43_200.0)},
    """\
Runs of the AlgoPerf competition: eight workloads, with times and targets of their authors. Source:
`mlcommons/submissions_algorithms`, commit `12c8e4ea`, Apache-2.0:
`previous_leaderboards/algoperf_v0{5,6}/logs/**/measurements.csv`, and targets of `scoring/workload_targets*.json`.
Its files are no part of this project; [flat runs](flat-runs.md) has the two tables that are made of them. `runs.csv`
needs `end_seconds` and `end_step` as well: those of a run's last evaluation.

- A second of a run is a core-second. Jobs report the training loss, and are at their target when the run was at its
  authors' validation target; runs that did not reach it have none. They end where the run was stopped, most at the
  target.
- `marginal`: a job plans the workload's own length, which is 0.3 to 4.8 times what its run took, and within 10 % of it
  for a third of the runs. Those above 10 times are left out (LAWA's, which count steps in another unit). *Steps known*:
  the plan is what the run took. *No plan*: none.
- One node: 10 jobs within a day. Four nodes: 20 jobs within 12 hours. An evaluation every 10 minutes.
- `flowcon` measures growth by the minute: over hours its jobs soon count as completing, and then share evenly.
""",
)

TASKSET = Study(
    "taskset",
    "TaskSet's sweeps, in which half of the trials never learn",
    outside_curves.read_taskset,
    30.0,
    {"one node": Cluster(1, 16, 0.0), "four nodes": Cluster(4, 32, 0.0)},
    """\
Trials of six sweeps over wide ranges of hyperparameters, of recurrent networks on IMDB's texts. Source:
`releaunifreiburg/DPL`, commit `de44b740`, Apache-2.0: `data/taskset/*.json`, a part of Google's TaskSet. Its files are
no part of this project. FOLDER has a table `SWEEP.csv.gz` of each: the first 400 of its 1,000 trials, with the columns
`trial` (its place), `train_0` to `train_50` and `valid_0` to `valid_50`: the losses at 51 equally spaced evaluations,
empty where they were not finite.

- TaskSet has no times: each trial is 600 core-seconds here. A trial reports its training loss. No targets were
  published: *time to target* is until the best of the drawn trials is at its lowest validation loss.
- `marginal`: a trial plans what it takes. *No plan*: nothing.
- One node: 16 trials, four nodes: 32, all there at once. An evaluation every 30 s. All sweeps try the same
  hyperparameters, so that they are not independent.
""",
)

STUDIES = (ALGOPERF, TASKSET)


def load_scenario_of(study: Study, name: str, trainings: Trainings, cluster: Cluster) -> Scenario:
    """The validated scenario of these trainings."""
    with TemporaryDirectory() as folder:
        document = outside_curves.document(name, trainings, cluster, study.interval_seconds)
        file = Path(folder, "scenario.yaml")
        file.write_text(yaml.safe_dump(document), encoding="utf-8")
        return load_scenario(str(file))


def run(study: Study, sweeps: Mapping[str, Trainings], cluster: Cluster, seeds: Sequence[int], workers: int) -> Kept:
    """All policies over these seeds of each sweep."""
    found: dict[str, dict[str, list[float | None]]] = {}
    for name, trainings in sweeps.items():
        simulator = Simulator(draw=partial(outside_curves.draw, trainings), run=outside_curves.run)
        scenario = load_scenario_of(study, name, trainings, cluster)
        result = simulate(scenario, seeds, workers, simulator=simulator)
        for policy in result.policies:
            of_policy = found.setdefault(policy, {measure: [] for measure in COLUMNS})
            for figures in result.figures[policy]:
                for place, measure in enumerate(COLUMNS):
                    value = (figures.ratios_to_fair if place < RATIOS else figures.values)[measure]
                    of_policy[measure].append(None if value is None else round(value, 4))
    return Kept(list(sweeps), list(seeds), found)


def key(study: Study, cluster: str) -> str:
    """The name under which the figures are kept."""
    return f"{study.name}-{cluster.replace(' ', '-')}"


def load_all(study: Study, folder: Path) -> dict[str, Kept]:
    """What is kept of a study, by cluster."""
    return {name: kept for name in study.clusters if (kept := load(key(study, name), folder)) is not None}


HEAD = """\
# {title}

<!-- Written by `python -m replication.outside {name} --data FOLDER --seeds {draws}`. -->

**Where `marginal` loses**, with the mean difference draw by draw; *unclear*: its 95 % interval includes 0.

{behind}
![Mean completion time and the worst job of each policy](images/{name}.svg)

{table}
Mean completion and time to target are ratios to `fair`, draw by draw over the same jobs. *Worst job*: the largest
completion time over the same job's mean in 8 runs of `fair` that place jobs otherwise; *jobs later*: the part of jobs
that took over 5 % longer than that. Means with 95 % intervals. `fifo` and `srpt-oracle` as in
[the figures of `marginal`](marginal-figures.md). Draws are seeds 1 and on{each}.

Half of the trainings, those whose name has a SHA-256 with an odd last digit, are held back and were never run.
Nothing was tuned on the others; no parameter differs from its default.

{source}"""


def page(study: Study, kept: Mapping[str, Kept]) -> str:
    """The whole page, in Markdown."""
    first = next(iter(kept.values()))
    scenarios = len(first.scenarios)
    return HEAD.format(
        title=study.title,
        name=study.name,
        draws=len(first.seeds) * scenarios,
        behind="".join(_behind(cluster, of) for cluster, of in kept.items()),
        table=_table(kept),
        each="" if scenarios == 1 else f" of each of {scenarios} sweeps",
        source=study.source,
    )


def write(study: Study, kept: Mapping[str, Kept], folder: Path) -> Path:
    """Write the page and its picture."""
    draw_trade(kept, JCT, WORST, folder / "images" / f"{study.name}.svg")
    path = folder / f"{study.name}.md"
    path.write_text(page(study, kept), encoding="utf-8")
    return path


def _behind(cluster: str, kept: Kept) -> str:
    """A line for each form of `marginal`: the measures in which others are better on average, but for the oracle."""
    lines = []
    others = [each for each in kept.policies if each != ORACLE and not each.startswith(MARGINAL)]
    for policy in (each for each in kept.policies if each.startswith(MARGINAL)):
        found = []
        for measure, name in COLUMNS.items():
            gaps = {other: kept.gap(policy, other, measure) for other in others}
            ahead = [f"`{other}` ({_gap(gap)})" for other, gap in gaps.items() if (gap.mean or 0.0) >= SHOWN_GAP]
            found += [f"{name} to {', '.join(ahead)}"] if ahead else []
        lines.append(f"- {cluster}, {_shown(policy)}: {'; '.join(found) or 'nowhere'}.\n")
    return "".join(lines)


def _gap(gap: Estimate) -> str:
    return f"{gap.mean:+.2f}{'' if gap.low is not None and gap.low > 0 else ', unclear'}"


def _shown(policy: str) -> str:
    name, _, plan = policy.partition(", ")
    return f"`{name}`{', ' * bool(plan)}{plan}"


def _table(kept: Mapping[str, Kept]) -> str:
    lines = [f"| setting | policy | {' | '.join(COLUMNS.values())} |\n|---|---|{'---|' * len(COLUMNS)}\n"]
    for cluster, of in kept.items():
        for place, policy in enumerate(of.policies):
            cells = ["1", "1"] if policy == FAIR else [number(of.of(policy, name)) for name in list(COLUMNS)[:RATIOS]]
            cells += [number(of.of(policy, name)) for name in list(COLUMNS)[RATIOS:]]
            setting = "" if place else f"{cluster}, {len(of.seeds) * len(of.scenarios)} draws"
            lines.append(f"| {setting} | {_shown(policy)} | {' | '.join(cells)} |\n")
    return "".join(lines)
