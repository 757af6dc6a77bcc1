"""Causes that the comments name, tried: the figures of a published setting again, one column a world that differs.

Nothing here is judged: the printed figures stand beside, for the eye. The first column is the setting as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from replication.claims import AS_READ, Claim, Setting, Variant
from replication.settings_clusters import MIXED_30, VAE_EVERY_50
from replication.settings_flowcon import FIFTEEN, FIVE, FIXED, READINGS, TEN
from replication.settings_promises import SETTINGS as PROMISES
from slopewise.simulator.scenario.builtin_models import BUILT_IN
from slopewise.simulator.scenario.generate_settings import MIXED

DEADLINE_SCARCE, DEADLINE_AMPLE = (
    next(setting for setting in PROMISES if setting.name == name) for name in ("deadline-scarce", "deadline-ample")
)


def again(setting: Setting, name: str, title: str, rows: Sequence[str], columns: Sequence[Variant]) -> Setting:
    """These rows of a setting under other columns; ValueError for a row that it has not."""
    claims = {claim.what: claim for claim in setting.claims}
    if missing := sorted(set(rows) - claims.keys()):
        raise ValueError(f"{setting.name} has no row {missing[0]!r}; change settings_causes.py")
    return replace(
        setting, name=name, title=title, claims=tuple(_shown(claims[row]) for row in rows), variants=tuple(columns)
    )


def _shown(claim: Claim) -> Claim:
    """The same figure beside the printed one, without a verdict: it is counted where it is published."""
    return replace(claim, printed_value=None)


def _world(reading: Variant, name: str, scenario: Mapping[str, object]) -> Variant:
    return replace(reading, name=name, scenario={**reading.scenario, **scenario})


_FIRST = READINGS[0]
"""The reading on which FlowCon's settings are judged."""


def _contention(reading: Variant, ratio: float) -> Variant:
    return _world(reading, f"contention {ratio:.0%}", {"contentionRatio": ratio})


FLOWCON_FIXED = again(
    FIXED,
    "flowcon-fixed-causes",
    "FlowCon, causes tried: three jobs at fixed times",
    (
        "makespan, NA",
        "makespan falls, α = 5%, itval = 20 s",
        "makespan falls, α = 5%, itval = 30 s",
        "two jobs or more overlap for less, α = 5%, itval = 20 s",
        "three jobs overlap for less, α = 5%, itval = 20 s",
        "MNIST-TF's time falls, α = 5%, itval = 20 s",
        "MNIST-TF's time falls, α = 5%, itval = 30 s",
    ),
    (
        replace(_FIRST, name="as above"),
        _contention(_FIRST, 0.0),
        _contention(_FIRST, 0.05),
        _contention(_FIRST, 0.1),
        _world(_FIRST, "scrapes every 5 s", {"scrapeSeconds": 5}),
        _world(_FIRST, "scrapes every 10 s", {"scrapeSeconds": 10}),
    ),
)


def _two_models(fast_seconds: tuple[float, float], slow_seconds: tuple[float, float]) -> Mapping[str, object]:
    """FlowCon's ten jobs drawn from two models: one has 98 % of its improvement after a fifth."""
    return {
        "generate": {"count": 10, "arriveSeconds": {"uniform": [0, 200]}, "models": {"fast": 1, "slow": 1}},
        "models": {
            "fast": {"workCpuSeconds": list(fast_seconds), "curve": {"exponential": {"k": 19.56}}},
            "slow": {"workCpuSeconds": list(slow_seconds), "curve": {"exponential": {"k": 2}}},
        },
    }


_SHORT, _LONG = (20.0, 60.0), (180.0, 300.0)
_LINEAR_QUOTA = {"quotaSpeeds": [[0, 0], [1, 1]]}
_LIMITS = replace(_FIRST, control="limits")

FLOWCON_TEN = again(
    TEN,
    "flowcon-10-causes",
    "FlowCon, causes tried: ten jobs at random times",
    (
        "makespan, NA",
        "makespan falls",
        "jobs faster of 10",
        "best job's time falls",
        "worst job's time grows",
        "mean completion falls",
        "mean time to 90 % of the improvement falls",
    ),
    (
        replace(_FIRST, name="as above"),
        _contention(_FIRST, 0.05),
        _contention(_FIRST, 0.1),
        _world(_FIRST, "fast jobs are short", _two_models(_SHORT, _LONG)),
        _world(_FIRST, "fast jobs are long", _two_models(_LONG, _SHORT)),
        replace(_LIMITS, name="hard limits"),
        _world(_LIMITS, "hard limits, a quota costs its fraction", _LINEAR_QUOTA),
    ),
)


def _by_contention(setting: Setting, title: str, rows: Sequence[str]) -> Setting:
    columns = (replace(_FIRST, name="as above"), _contention(_FIRST, 0.05), _contention(_FIRST, 0.1))
    return again(setting, f"{setting.name}-causes", f"FlowCon, causes tried: {title}", rows, columns)


FLOWCON_FIVE = _by_contention(
    FIVE,
    "five jobs at random times",
    (
        "jobs faster of 5, α = 3%, itval = 30 s",
        "makespan falls, α = 3%, itval = 30 s",
        "jobs faster of 5, α = 5%, itval = 60 s",
        "makespan falls, α = 5%, itval = 60 s",
    ),
)
FLOWCON_FIFTEEN = _by_contention(
    FIFTEEN,
    "fifteen jobs at random times",
    ("makespan, NA", "makespan falls", "jobs faster of 15", "best job's time falls", "worst job's time grows"),
)

_ONE_AT_A_TIME: Mapping[str, object] = {
    "nodes": [{"name": "worker", "count": 4, "cpu": 1, "memoryGiB": 1}],
    "models": {
        name: {**BUILT_IN[name].model_dump(by_alias=True, exclude_unset=True), "memoryGiB": 1} for name in MIXED
    },
}
"""A node has room for one job, so that the others wait for their turn, as they do for the CPU that they ask for."""

_ONE_NODE: Mapping[str, object] = {"nodes": [{"name": "pool", "cpu": 4, "memoryGiB": 256}]}
_MET = tuple(f"met of 20, {part}" for part in ("fair sharing", "placement alone", "autoscaling alone", "both"))

DEADLINES_SCARCE = again(
    DEADLINE_SCARCE,
    "deadline-scarce-causes",
    "Deadlines, causes tried: CPU scarce",
    (*_MET, "more met, placement alone"),
    (replace(AS_READ, name="as above"), _world(AS_READ, "a node takes one job at a time", _ONE_AT_A_TIME)),
)

DEADLINES_AMPLE = again(
    DEADLINE_AMPLE,
    "deadline-ample-causes",
    "Deadlines, causes tried: CPU ample",
    (*_MET, "all could be met at all, in per cent of the seeds"),
    (
        replace(AS_READ, name="as above"),
        _world(AS_READ, "one node of 4 cores", _ONE_NODE),
        Variant("timed within 5 s", interval_seconds=5.0, scenario={"scrapeSeconds": 1}),
        Variant(
            "one node, timed within 5 s",
            interval_seconds=5.0,
            scenario={**_ONE_NODE, "scrapeSeconds": 1},
        ),
    ),
)


def _vae_every(seconds: float) -> Variant:
    drawn = {"count": 20, "arriveSeconds": {"every": seconds}, "models": {"vae-pytorch": 1}}
    return _world(AS_READ, f"one every {seconds:g} s", {"generate": drawn})


SPECON_VAE = again(
    VAE_EVERY_50,
    "specon-20-vae-causes",
    "SpeCon, causes tried: 20 VAE",
    ("most jobs on a worker at once, DS", "moves a run", "moves a run, α = 0.1", "mean completion falls"),
    (replace(AS_READ, name="as above"), _vae_every(40), _vae_every(30), _vae_every(20)),
)

SPECON_30 = again(
    MIXED_30,
    "specon-30-causes",
    "SpeCon, causes tried: 30 mixed jobs",
    (
        "mean completion falls",
        "makespan falls",
        "load imbalance falls",
        "slow moves a run (-M)",
        "rebalancing moves a run (-R)",
        "an idle worker received jobs, in per cent of the runs",
    ),
    (
        replace(AS_READ, name="as above"),
        Variant("rebalance before all have converged", {"requireAllConverged": False}),
    ),
)

SETTINGS = (
    FLOWCON_FIXED, FLOWCON_FIVE, FLOWCON_TEN, FLOWCON_FIFTEEN, DEADLINES_SCARCE, DEADLINES_AMPLE, SPECON_VAE, SPECON_30,
)  # fmt: skip
