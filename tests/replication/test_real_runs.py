"""The table of real runs: which runs it takes, and that it is the one of the runs that were kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from replication.real_runs import (
    BEGIN,
    END,
    LEAST_ROUNDS,
    PAGE,
    RECORDED,
    ROUNDS_BEFORE_STOP,
    block,
    by_cpu_seconds,
    condensed,
    ended,
    ratios,
    table,
    with_table,
)
from slopewise.errors import UsageError

POLICIES = ("fair", "flowcon", "marginal")


def printed(rounds: int = LEAST_ROUNDS, apart: int = 0, cores: float = 2.0) -> dict[str, Any]:
    """What a demo prints: under `marginal` the jobs end after 0.8 of their time, one of them after 1.1."""
    factors = {"fair": (1.0, 1.0), "flowcon": (1.0, 1.2), "marginal": (0.5, 1.1)}
    runs = {
        policy: {
            "jobs": [
                {"name": name, "jct_seconds": 30.0 * each, "cpu_seconds": 20.0 * each}
                for name, each in zip(("a", "b"), factors[policy], strict=True)
            ],
            "jct_mean_seconds": 15.0 * sum(factors[policy]),
            "time_to_90_mean_seconds": 5.0,
            "makespan_seconds": 90.0,
        }
        for policy in POLICIES
    }
    busy = {policy: {**run, "makespan_seconds": 300.0} for policy, run in runs.items()}
    said = {
        "rounds_not_compared": list(range(1, apart + 1)),
        "not_compared_because": [f"Round {number}: something else used 1 core." for number in range(1, apart + 1)],
    }
    return {
        "node_cores": cores, "actuator": "cgroup v1: quota and weight", "prometheus_version": "2.42.0",
        "rounds": [busy] * apart + [runs] * (rounds - apart), "comparison": dict.fromkeys(POLICIES[1:], said),
    }  # fmt: skip


def test_ratios_are_to_fair_sharing_of_the_same_round_and_the_worst_job_counts_by_itself() -> None:
    recorded = condensed([printed()])
    assert ratios(recorded, "marginal", "jct_mean_seconds") == pytest.approx([0.8] * LEAST_ROUNDS)
    assert ratios(recorded, "marginal", "worst_job") == pytest.approx([1.1] * LEAST_ROUNDS)
    shown = table(recorded)
    (row,) = [line for line in shown.splitlines() if "`marginal`: mean completion" in line]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    # The fixture's jobs took 0.8 of the CPU-seconds as well: by CPU-seconds nothing was gained.
    assert cells[1:] == ["0.80", "0.80", "0.80 [0.80, 0.80]", "1.00 [1.00, 1.00]"]
    assert "The same work took 32 to 44 CPU-seconds in a run;" in shown


def test_rounds_end_where_their_interval_is_narrow_and_not_before_the_sixth() -> None:
    even = condensed([printed(ROUNDS_BEFORE_STOP)])
    assert ended(even)
    assert not ended(condensed([printed(ROUNDS_BEFORE_STOP - 1)]))
    assert not ended(None)
    wide = json.loads(json.dumps(even))
    for of_round in wide["rounds"][::2]:
        of_round["marginal"]["jct_mean_seconds"] *= 1.2
    assert not ended(wide)
    assert by_cpu_seconds(wide, "marginal", "jct_mean_seconds") == pytest.approx([1.2, 1.0] * (ROUNDS_BEFORE_STOP // 2))


def test_fewer_than_five_rounds_that_can_be_compared_are_refused() -> None:
    with pytest.raises(UsageError, match=r"4 of 4 rounds can be compared"):
        condensed([printed(LEAST_ROUNDS - 1)])
    with pytest.raises(UsageError, match=r"4 of 5 rounds can be compared.*Round 1: something else"):
        condensed([printed(apart=1)])


def test_rounds_of_several_files_count_together_and_those_that_cannot_be_compared_are_left_out_and_counted() -> None:
    recorded = condensed([printed(4, apart=1), printed(3, apart=1)])
    assert (len(recorded["rounds"]), recorded["left_out"]) == (LEAST_ROUNDS, 2)
    assert {of_round["marginal"]["makespan_seconds"] for of_round in recorded["rounds"]} == {90.0}
    assert " 2 more were left out" in table(recorded)


def test_files_of_two_machines_are_refused() -> None:
    with pytest.raises(UsageError, match=r"node_cores is 2.0 in one file and 4.0"):
        condensed([printed(), printed(cores=4.0)])


def test_the_page_has_one_place_for_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    written = with_table(page, condensed([printed()]))
    assert block(written) == table(condensed([printed()]))
    assert written.replace(block(written), "") == page.replace(block(page), "")
    assert written.count(BEGIN) == written.count(END) == 1


def test_the_table_is_that_of_the_runs_that_were_kept_or_says_that_there_are_none() -> None:
    shown = block(PAGE.read_text(encoding="utf-8"))
    if RECORDED.exists():
        assert shown == table(json.loads(RECORDED.read_text(encoding="utf-8")))
    else:
        assert "`marginal` has none that count yet" in shown
