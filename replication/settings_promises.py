"""DQoES and the deadline framework: only their abstracts print figures, so the generators are ours and fixed."""

from __future__ import annotations

from replication.claims import (
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
            Claim("satisfied of 10, fair sharing", "not printed", None, "jobs", of_base(qoe_satisfied)),
            Claim("satisfied of 10, direct", wanted_direct, None, "jobs", of_ours(qoe_satisfied), _DIRECT),
            Claim("satisfied of 10, step", "not printed", None, "jobs", of_ours(qoe_satisfied), _STEP),
            Claim("best subset, knowing everything", "not printed", None, "jobs", qoe_best_subset),
            Claim("direct is below the best subset by", "our aim: at most 1", None, "jobs", _below_best, _DIRECT),
            Claim("direct ÷ fair, where fair has any", ratio, None, "", _times, _DIRECT),
        ),
    )


def _deadline(name: str, title: str, printed: tuple[str, str, str]) -> Setting:
    both = Candidate("deadline")
    placement = Candidate("deadline", {"autoscaling": False})
    autoscaling = Candidate("deadline", {"placement": False})
    rows = [("placement alone", placement, printed[0]), ("autoscaling alone", autoscaling, printed[1])]
    rows.append(("both", both, printed[2]))
    met = [
        Claim(f"met of 20, {what}", "not printed", None, "jobs", of_ours(deadlines_met), who) for what, who, _ in rows
    ]
    gains = [gain(f"more met, {what}", text, None, "%", more(deadlines_met), who) for what, who, text in rows]
    return Setting(
        name=name,
        title=title,
        scenario=name,
        baseline=FAIR,
        claims=(
            Claim("met of 20, fair sharing", "not printed", None, "jobs", of_base(deadlines_met)),
            *met,
            *gains,
        ),
    )


SETTINGS = (
    _qoe("qoe-scarce", "DQoES: 10 served models, CPU scarce", "not printed", "up to 8; our aim: at least 2"),
    _qoe("qoe-ample", "DQoES: 10 served models, CPU ample", "our aim: all", "not printed"),
    _deadline("deadline-scarce", "Deadlines: 20 jobs, CPU scarce", ("26", "not printed", "our aim: at least 26")),
    _deadline("deadline-ample", "Deadlines: 20 jobs, CPU ample", ("not printed", "all are met", "our aim: all")),
)
