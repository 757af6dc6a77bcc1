"""The settings on which `marginal` is compared: scenarios, what replaces their keys, policies, and what is aimed at.

Each is a section of replication/marginal-figures.md, with its result in `marginal_figures/NAME.json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

TUNING_SEEDS = range(1000, 1024)
"""Seeds on which readings of the policy were compared; no figure of the page is from them."""

MARGINAL, FLOWCON, SPECON, LAS, FIFO, ORACLE = "marginal", "flowcon", "specon", "las", "fifo", "srpt-oracle"
FAVOURS = ("balanced", "quality", "full", "ends")

OURS: Mapping[str, object] = {
    FIFO: {"name": "fair", "label": FIFO, "defaultScheduler": "fifo"},
    **{
        f"favour {favour}": {"name": MARGINAL, "label": f"favour {favour}", "parameters": {"favour": favour}}
        for favour in FAVOURS
    },
}
"""Entries of `spec.policies` under names that no policy has."""

ONE_NODE_POLICIES = (MARGINAL, FLOWCON, LAS, FIFO, ORACLE)
POLICIES = (MARGINAL, FLOWCON, SPECON, LAS, FIFO, ORACLE)


@dataclass(frozen=True, slots=True)
class Aim:
    """At most; None: none was stated."""

    jct: float | None = None
    makespan: float | None = None
    t90: float | None = None
    t99: float | None = None
    worst: float | None = None
    worst_over_fair: float | None = None
    """This much above fair sharing's own worst job."""

    def figures(self, fair_worst: float | None) -> list[float | None]:
        """In the order of the columns."""
        worst = self.worst
        if self.worst_over_fair is not None and fair_worst is not None:
            worst = fair_worst + self.worst_over_fair
        return [self.jct, self.makespan, self.t90, self.t99, worst]


NO_AIM = Aim()


@dataclass(frozen=True, slots=True)
class Setting:
    """One scenario, with some of its keys replaced, and the policies that are compared on it."""

    name: str
    title: str
    scenario: str
    """A shipped one; `pollux-N` stands for all files of that name in the folder that is given."""
    aim: Aim = NO_AIM
    overrides: Mapping[str, object] = field(default_factory=dict)
    policies: Sequence[str] = ONE_NODE_POLICIES
    baselines_of: str = ""
    """The section whose rows of other policies hold here as well."""
    aims: Mapping[str, Aim] = field(default_factory=dict)
    """By policy, where they differ."""
    note: str = ""
    seeds: int = 24
    """Of each scenario; fewer where a run takes long."""

    @property
    def external(self) -> bool:
        """Its files are not part of the project."""
        return self.scenario == "pollux-N"

    def aim_of(self, policy: str) -> Aim:
        """What was set out to reach; nothing for policies of others."""
        ours = policy == MARGINAL or policy.startswith("favour")
        return self.aims.get(policy, self.aim) if ours else NO_AIM


NO_PLAN: Mapping[str, object] = {"stepsPerCpuSecond": None}
NO_CLASS: Mapping[str, object] = {**NO_PLAN, "workloadClasses": False}
THREE_FINISHED: Mapping[str, object] = {**NO_PLAN, "historyJobs": 3}
PLAN: Mapping[str, object] = {"stepsPerCpuSecond": 10}

ONE_NODE = Aim(0.75, None, 0.86, None, 1.03)
STRICT = Aim(0.75, None, 0.86, None, 1.0)

NO_CLASS_AIM = Aim(0.82, None, 0.98, None, 1.05)
FOUR_NODES = Aim(0.66, None, 0.60, None, 1.15)
DEMO = Aim(0.86, None, 0.92, None, 1.03)
HOURS_PLAN = Aim(0.80, worst=1.25)
HOURS = Aim(0.92, None, 0.97, None, 1.30)
POLLUX_PLAN = Aim(0.64, None, 0.72, worst_over_fair=0.0)
POLLUX = Aim(0.74, None, 0.85, worst_over_fair=0.0)
ALONE = (MARGINAL,)

SETTINGS: tuple[Setting, ...] = (
    Setting("one-node", "one node, 10 jobs, plan known", "flowcon-10", ONE_NODE),
    Setting("noisy", "one node, 10 jobs with noisy losses, plan known", "noisy", STRICT),
    Setting("overfitting", "one node, 10 jobs, half of them overfitting, plan known", "overfitting", STRICT),
    Setting(
        "favour",
        "one node, 10 jobs, plan known, each `favour`",
        "flowcon-10",
        ONE_NODE,
        policies=tuple(f"favour {favour}" for favour in FAVOURS),
        baselines_of="one-node",
        aims={
            "favour quality": Aim(0.85, None, 0.73, None, 1.05),
            "favour full": NO_AIM,
            "favour ends": Aim(0.66, worst=1.02),
        },
    ),
    Setting(
        "wrong-plans",
        "one node, 10 jobs, each plan wrong by up to 50 % either way",
        "flowcon-10",
        NO_AIM,
        {"planRatio": [0.5, 1.5]},
        ALONE,
        "one-node",
    ),
    Setting(
        "plans-too-short",
        "one node, 10 jobs, every plan half of the steps",
        "flowcon-10",
        NO_AIM,
        {"planRatio": 0.5},
        ALONE,
        "one-node",
    ),
    Setting(
        "plans-too-long",
        "one node, 10 jobs, every plan half as many steps again",
        "flowcon-10",
        NO_AIM,
        {"planRatio": 1.5},
        ALONE,
        "one-node",
    ),
    Setting("no-plan", "one node, 10 jobs, no plan, no class", "flowcon-10", NO_CLASS_AIM, NO_CLASS, ALONE, "one-node"),
    Setting(
        "class",
        "one node, 10 jobs, no plan, 3 finished jobs of each class",
        "flowcon-10",
        NO_AIM,
        THREE_FINISHED,
        ALONE,
        "one-node",
    ),
    Setting("four-nodes-20", "4 nodes, 20 jobs, plan known", "specon-20-mixed", FOUR_NODES, policies=POLICIES),
    Setting("four-nodes-30", "4 nodes, 30 jobs, plan known", "specon-30-mixed", policies=POLICIES),
    Setting("eight-nodes-50", "8 nodes, 50 jobs, plan known", "specon-50-mixed", policies=POLICIES),
    Setting(
        "four-nodes-no-plan",
        "4 nodes, 20 jobs, no plan, no class",
        "specon-20-mixed",
        NO_CLASS_AIM,
        NO_CLASS,
        ALONE,
        "four-nodes-20",
    ),
    Setting(
        "four-nodes-class",
        "4 nodes, 20 jobs, no plan, 3 finished jobs of each class",
        "specon-20-mixed",
        NO_AIM,
        THREE_FINISHED,
        ALONE,
        "four-nodes-20",
    ),
    Setting(
        "heavy-tailed",
        "heavy-tailed works, plan known",
        "heavy-tailed",
        policies=POLICIES,
    ),
    Setting(
        "learning-rate-drops",
        "drops of the learning rate, plan known",
        "learning-rate-drops",
        STRICT,
    ),
    Setting(
        "demo", "the jobs of `slopewise demo`, two cores, plan known", "demo", DEMO, policies=(MARGINAL, FLOWCON, LAS)
    ),
    Setting("bursts", "40 jobs in four bursts, plan known", "bursts", policies=POLICIES),
    Setting(
        "hours-plan",
        "jobs of hours, plan known",
        "hours",
        HOURS_PLAN,
        PLAN,
        POLICIES,
        seeds=12,
    ),
    Setting("hours", "jobs of hours, no plan", "hours", HOURS, {}, ALONE, "hours-plan", seeds=12),
    Setting(
        "hours-no-class",
        "jobs of hours, no plan, no class",
        "hours",
        HOURS,
        NO_CLASS,
        ALONE,
        "hours-plan",
        seeds=12,
    ),
    Setting(
        "pollux-plan",
        "Pollux' workloads 1 to 4, plan known",
        "pollux-N",
        POLLUX_PLAN,
        PLAN,
        POLICIES,
        seeds=4,
    ),
    Setting("pollux", "Pollux' workloads 1 to 4, no plan", "pollux-N", POLLUX, NO_PLAN, ALONE, "pollux-plan", seeds=4),
    Setting(
        "pollux-no-class",
        "Pollux' workloads 1 to 4, no plan, no class",
        "pollux-N",
        POLLUX,
        NO_CLASS,
        ALONE,
        "pollux-plan",
        seeds=4,
    ),
    Setting(
        "limits",
        "one node, 10 jobs, plan known, hard limits",
        "flowcon-10",
        NO_AIM,
        {"control": "limits"},
        (MARGINAL, FLOWCON, LAS, ORACLE),
    ),
    Setting(
        "liars",
        "a third of the jobs report a fake slope or a fake plan",
        "liars",
        NO_AIM,
        note="*Worst job* is that of the honest ones.",
    ),
    Setting("no-contention", "one node, 10 jobs, no contention", "flowcon-10", NO_AIM, {"contentionRatio": 0}),
    Setting("contention", "one node, 10 jobs, contention of 5 %", "flowcon-10", NO_AIM, {"contentionRatio": 0.05}),
)
