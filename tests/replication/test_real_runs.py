"""The README's table of real runs: which runs it takes, and that it is the one of the runs that were kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from replication.real_runs import (
    BEGIN,
    END,
    LEAST_ROUNDS,
    README,
    RECORDED,
    block,
    condensed,
    ratios,
    table,
    with_table,
)
from slopewise.errors import UsageError

POLICIES = ("fair", "flowcon", "marginal")


def printed(rounds: int = LEAST_ROUNDS, compared: int | None = None) -> dict[str, Any]:
    """What a demo prints: under `marginal` the jobs end after 0.8 of their time, one of them after 1.1."""
    factors = {"fair": (1.0, 1.0), "flowcon": (1.0, 1.2), "marginal": (0.5, 1.1)}
    runs = {
        policy: {
            "jobs": [
                {"name": name, "jct_seconds": 30.0 * each}
                for name, each in zip(("a", "b"), factors[policy], strict=True)
            ],
            "jct_mean_seconds": 15.0 * sum(factors[policy]),
            "time_to_90_mean_seconds": 5.0,
            "makespan_seconds": 90.0,
        }
        for policy in POLICIES
    }
    said = {
        "rounds_compared": rounds if compared is None else compared,
        "not_compared_because": [] if compared is None else ["Round 2: something else used 1 core."],
    }
    return {
        "node_cores": 2.0, "actuator": "cgroup v1: quota and weight", "prometheus_version": "2.42.0",
        "rounds": [runs] * rounds, "comparison": dict.fromkeys(POLICIES[1:], said),
    }  # fmt: skip


def test_ratios_are_to_fair_sharing_of_the_same_round_and_the_worst_job_counts_by_itself() -> None:
    recorded = condensed(printed())
    assert ratios(recorded, "marginal", "jct_mean_seconds") == pytest.approx([0.8] * LEAST_ROUNDS)
    assert ratios(recorded, "marginal", "worst_job") == pytest.approx([1.1] * LEAST_ROUNDS)


def test_a_row_has_every_run_and_the_mean_with_its_interval() -> None:
    (row,) = [line for line in table(condensed(printed())).splitlines() if "`marginal`: mean completion" in line]
    assert [cell.strip() for cell in row.strip("|").split("|")][1:] == ["0.80"] * LEAST_ROUNDS + ["0.80 [0.80, 0.80]"]


def test_fewer_than_five_rounds_and_rounds_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(UsageError, match="there are 4 rounds"):
        condensed(printed(LEAST_ROUNDS - 1))
    with pytest.raises(UsageError, match="flowcon: 4 of 5 rounds can be compared: Round 2"):
        condensed(printed(compared=4))


def test_the_readme_has_one_place_for_the_table() -> None:
    readme = README.read_text(encoding="utf-8")
    written = with_table(readme, condensed(printed()))
    assert block(written) == table(condensed(printed()))
    assert written.replace(block(written), "") == readme.replace(block(readme), "")
    assert written.count(BEGIN) == written.count(END) == 1


def test_the_table_is_that_of_the_runs_that_were_kept_or_says_that_there_are_none() -> None:
    shown = block(README.read_text(encoding="utf-8"))
    if RECORDED.exists():
        assert shown == table(json.loads(RECORDED.read_text(encoding="utf-8")))
    else:
        assert "`marginal` has none that count yet" in shown
