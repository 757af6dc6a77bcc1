"""The table of real runs: which rounds it takes, when they suffice, and that it is that of the rounds that are kept."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from rich.console import Console

from replication.real_runs import (
    BEGIN,
    END,
    LEAST_ROUNDS,
    MOST_ROUNDS,
    PAGE,
    RECORDED,
    ROUNDS_BEFORE_STOP,
    added,
    block,
    by_cpu_seconds,
    counting,
    ended,
    keep,
    newest,
    ratios,
    read,
    run_rounds,
    table,
)
from slopewise.errors import UsageError

POLICIES = ("fair", "flowcon", "marginal")


def printed(
    rounds: int = LEAST_ROUNDS, apart: int = 0, *, cores: float = 2.0, makespan: float = 90.0, **figures: Any
) -> dict[str, Any]:
    """What a demo prints: under `marginal` the jobs end after 0.8 of their time, one of them after 1.1.

    `figures`: more of each run; `makespan` identifies a demo: no two measure the same.
    """
    factors = {"fair": (1.0, 1.0), "flowcon": (1.0, 1.2), "marginal": (0.5, 1.1)}
    runs = {
        policy: {
            "jobs": [
                {"name": name, "jct_seconds": 30.0 * each, "cpu_seconds": 20.0 * each}
                for name, each in zip(("a", "b"), factors[policy], strict=True)
            ],
            "jct_mean_seconds": 15.0 * sum(factors[policy]),
            "time_to_90_mean_seconds": 5.0,
            "makespan_seconds": makespan,
            **figures,
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


def rounds_of(*demos: dict[str, Any]) -> list[dict[str, Any]]:
    """What is kept of these demos."""
    rounds: list[dict[str, Any]] = []
    for demo in demos:
        rounds = added(rounds, demo)
    return rounds


def test_ratios_are_to_fair_sharing_of_the_same_round_and_the_worst_job_counts_by_itself() -> None:
    rounds = rounds_of(printed())
    assert ratios(rounds, "marginal", "jct_mean_seconds") == pytest.approx([0.8] * LEAST_ROUNDS)
    assert ratios(rounds, "marginal", "worst_job") == pytest.approx([1.1] * LEAST_ROUNDS)
    shown = table(rounds)
    (row,) = [line for line in shown.splitlines() if "`marginal`: mean completion" in line]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    # The fixture's jobs took 0.8 of the CPU-seconds as well: by CPU-seconds nothing was gained.
    assert cells[1:] == ["0.80", "0.80", "0.80 [0.80, 0.80]", "1.00 [1.00, 1.00]"]
    assert "The same work took 32 to 44 CPU-seconds in a run;" in shown


def test_rounds_end_where_their_interval_is_narrow_and_not_before_the_sixth_and_at_the_fortieth() -> None:
    even = rounds_of(printed(ROUNDS_BEFORE_STOP))
    assert ended(even)
    assert not ended(even[1:])
    assert not ended([])
    wide = json.loads(json.dumps(even))
    for of_round in wide[::2]:
        of_round["runs"]["marginal"]["jct_mean_seconds"] *= 1.2
    assert not ended(wide)
    assert by_cpu_seconds(wide, "marginal", "jct_mean_seconds") == pytest.approx([1.2, 1.0] * (ROUNDS_BEFORE_STOP // 2))
    assert ended((wide * MOST_ROUNDS)[:MOST_ROUNDS])


def test_fewer_than_five_rounds_that_can_be_compared_are_refused() -> None:
    with pytest.raises(UsageError, match=r"4 of 4 rounds can be compared"):
        newest(rounds_of(printed(LEAST_ROUNDS - 1)))
    with pytest.raises(UsageError, match=r"4 of 5 rounds can be compared.*Round 1: something else"):
        newest(rounds_of(printed(apart=1)))


def test_rounds_of_several_files_count_together_and_those_that_cannot_be_compared_are_left_out_and_counted() -> None:
    rounds = newest(rounds_of(printed(4, apart=1), printed(3, makespan=91.0)))
    assert (len(counting(rounds)), len(rounds)) == (LEAST_ROUNDS + 1, LEAST_ROUNDS + 2)
    assert {runs["marginal"]["makespan_seconds"] for runs in counting(rounds)} == {90.0, 91.0}
    assert " 1 more was left out" in table(rounds)
    failing = printed(2, apart=2)
    assert len(rounds_of(failing, failing)) == 4, "rounds that do not count may be alike, and forty end the rule"


def test_a_demo_with_fewer_jobs_or_without_marginal_is_refused() -> None:
    fewer = printed(jobs=[{"name": "a", "jct_seconds": 30.0, "cpu_seconds": 20.0}])
    with pytest.raises(UsageError, match="a demo on a busy machine runs fewer"):
        rounds_of(printed(), fewer)
    with pytest.raises(UsageError, match="is not what `slopewise demo --policy marginal -o json` prints"):
        added([], {"rounds": [{"fair": {}}]})


def test_rounds_go_on_from_those_that_were_kept_until_they_suffice(tmp_path: Path) -> None:
    """Two at a time, each stored as it ends; the same rounds once; another machine's beside, and said."""
    recorded, page = tmp_path / "real_runs.json", tmp_path / "real-runs.md"
    page.write_text(f"# Page\n{BEGIN}nothing yet\n{END}")
    for _ in range(2):
        keep(printed(2, cores=4.0), recorded, page)
    assert (len(read(recorded)), block(page.read_text())) == (2, "nothing yet\n")
    kept_before: list[int] = []

    def demo() -> dict[str, Any]:
        kept_before.append(len(read(recorded)))
        return printed(2, makespan=90.0 + len(kept_before))

    run_rounds(demo, recorded, page, Console(quiet=True))
    assert kept_before == [2, 4]
    assert len(read(recorded)) == ROUNDS_BEFORE_STOP
    said = block(page.read_text())
    assert said == table(read(recorded))
    assert "6 rounds of `make demo` (2 on 4 cores" in said
    assert "; 4 on 2 cores" in said


def test_rounds_of_other_decisions_do_not_count_and_stay_in_the_table_until_there_are_enough_new_ones() -> None:
    before, after = rounds_of(printed()), rounds_of(printed())
    for each in before:
        each["decisions"] = "others"
    assert newest([*before, *after[1:]]) == before
    assert newest([*before, *after]) == after


def test_the_table_is_that_of_the_rounds_that_were_kept() -> None:
    assert block(PAGE.read_text(encoding="utf-8")) == table(newest(read(RECORDED)))


def test_the_figures_of_the_readme_are_those_of_the_table() -> None:
    readme = (PAGE.parents[1] / "README.md").read_text(encoding="utf-8")
    (row,) = [line for line in readme.splitlines() if line.endswith("| `make real-runs` |")]
    rounds = newest(read(RECORDED))
    shown = block(PAGE.read_text(encoding="utf-8"))
    figures = re.findall(r"×([\d.]+ \[[\d., ]+\])", row)
    assert len(figures) == 2
    assert [each for each in figures if each not in shown] == []
    worst = fmean(ratios(rounds, "marginal", "worst_job"))
    assert f"worst job {worst:.2f}, over {len(counting(rounds))} rounds" in row
