"""DQoES and the deadline framework: only their abstracts print figures, so the generators are ours and fixed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from replication.claims import (
    NOT_PRINTED,
    Candidate,
    Claim,
    Pair,
    Setting,
    deadlines_met,
    gain,
    more,
    of_base,
    of_ours,
    qoe_best_subset,
    qoe_satisfied,
)
from replication.feasible import all_could_be_met
from replication.figures import allocated_cpu_used_percent, within_an_even_share

FAIR = Candidate("fair")
_DIRECT = Candidate("dqoes", {"variant": "direct"}, 20.0)
_STEP = Candidate("dqoes", {"variant": "step"}, 20.0)


def _below_best(pair: Pair) -> float:
    return qoe_best_subset(pair) - qoe_satisfied(pair.ours)


def _times(pair: Pair) -> float | None:
    before = qoe_satisfied(pair.base)
    return None if before == 0 else qoe_satisfied(pair.ours) / before


def _qoe(name: str, title: str, wanted_direct: str, ratio: str) -> Setting:
    return Setting(
        name=name,
        title=title,
        scenario=name,
        baseline=FAIR,
        claims=(
            Claim("satisfied of 10, fair sharing", *NOT_PRINTED, "jobs", of_base(qoe_satisfied)),
            Claim("satisfied of 10, direct", wanted_direct, None, "jobs", of_ours(qoe_satisfied), _DIRECT),
            Claim("satisfied of 10, step", *NOT_PRINTED, "jobs", of_ours(qoe_satisfied), _STEP),
            Claim("objectives that an even share would meet", *NOT_PRINTED, "jobs", within_an_even_share),
            Claim("best subset, knowing everything", *NOT_PRINTED, "jobs", qoe_best_subset),
            Claim("direct is below the best subset by", "our aim: at most 1", None, "jobs", _below_best, _DIRECT),
            Claim("direct ÷ fair, where fair has any", ratio, None, "", _times, _DIRECT),
        ),
    )


_BOTH = Candidate("deadline")
_PLACEMENT = Candidate("deadline", {"autoscaling": False})
_AUTOSCALING = Candidate("deadline", {"placement": False})
_PARTS = {"placement alone": _PLACEMENT, "autoscaling alone": _AUTOSCALING, "both": _BOTH}

Printed = Mapping[str, tuple[str, float | None]]
"""Text and number, by the part of the policy that it is about."""


_LIMITED = {part: replace(_PARTS[part], control="limits") for part in ("autoscaling alone", "both")}
"""Shares are weights, which allocate nothing: the use of an allocation is a figure of hard limits."""


def _possible(pair: Pair) -> float:
    return 100.0 * all_could_be_met(pair.instance.jobs, pair.instance.nodes)


def _deadline(name: str, title: str, met: Printed, more_met: Printed) -> Setting:
    """`more_met` is over the seeds in which fair sharing meets any deadline, because it is a ratio to those."""
    used = of_ours(allocated_cpu_used_percent)
    return Setting(
        name=name,
        title=title,
        scenario=name,
        baseline=FAIR,
        claims=(
            Claim("met of 20, fair sharing", *NOT_PRINTED, "jobs", of_base(deadlines_met)),
            Claim("all could be met at all, in per cent of the seeds", *NOT_PRINTED, "%", _possible),
            *(
                Claim(f"met of 20, {part}", *met.get(part, NOT_PRINTED), "jobs", of_ours(deadlines_met), who)
                for part, who in _PARTS.items()
            ),
            *(
                gain(f"more met, {part}", *more_met.get(part, NOT_PRINTED), "%", more(deadlines_met), who)
                for part, who in _PARTS.items()
            ),
            Claim("allocated CPU used, fair sharing", *NOT_PRINTED, "%", of_base(allocated_cpu_used_percent)),
            *(
                Claim(f"allocated CPU used, {part}, hard limits", "100 %", 100.0, "%", used, who)
                for part, who in _LIMITED.items()
            ),
            *(
                Claim(f"met of 20, {part}, hard limits", *NOT_PRINTED, "jobs", of_ours(deadlines_met), who)
                for part, who in _LIMITED.items()
            ),
        ),
    )


SETTINGS = (
    _qoe("qoe-scarce", "DQoES: 10 served models, CPU scarce", "not printed", "up to 8; our aim: at least 2"),
    _qoe("qoe-ample", "DQoES: 10 served models, CPU ample", "our aim: all", "not printed"),
    _deadline(
        "deadline-scarce",
        "Deadlines: 20 jobs, CPU scarce",
        met={},
        more_met={"placement alone": ("26 %", 26.0), "both": ("our aim: at least 26 %", None)},
    ),
    _deadline(
        "deadline-ample",
        "Deadlines: 20 jobs, CPU ample",
        met={"autoscaling alone": ("all", 20.0), "both": ("our aim: all", None)},
        more_met={},
    ),
)
