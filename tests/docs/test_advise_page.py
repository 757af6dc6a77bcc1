"""docs/advise.md: its rules, metrics and bounds are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slopewise.adapters.prometheus import history, history_queries
from slopewise.advise import findings, flatness, proposal
from slopewise.advise.advice import TOTALS
from slopewise.advise.scenarios import groups, recorded_jobs
from slopewise.reports.estimates import SAME_RATIO

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/advise.md").read_text(encoding="utf-8")
METRIC = re.compile(r"\b(?:container|process|kube|training|DCGM)_[A-Za-z_]+\b")


def rule(finding: str) -> str:
    return next(line for line in PAGE.splitlines() if line.startswith(f"| {finding} |"))


def test_it_names_every_metric_that_is_read_and_no_other() -> None:
    queries = history_queries.usage(["p"], 60) + history_queries.facts(["p"], 60) + history_queries.gpu_present(60)
    asked = set(METRIC.findall(queries + history_queries.allocatable(60))) | {"training_loss"}
    assert set(METRIC.findall(PAGE.split("## What it reads")[1].split("\n## ")[0])) == asked


@pytest.mark.parametrize(
    ("finding", "figures"),
    [
        (
            "flat",
            [
                f"at most {100 * flatness.GAIN_OF_FALL_RATIO:.0f} % of its fall",
                f"{100 * flatness.MOST_OF_LEVEL_RATIO:.0f} % of its level",
                f"{100 * flatness.REST_OF_LEVEL_RATIO:.1f} % of its level",
                f"medians of {flatness.MEDIAN_POINTS}",
            ],
        ),
        ("converged", [f"{100 * flatness.PLAN_DONE_RATIO:.0f} %"]),
        (
            "did not improve",
            [f"{100 * flatness.LEAST_IMPROVEMENT_RATIO:.0f} %", f"{flatness.NOISES:g} times"],
        ),
        ("throttled while it improved", [f"{100 * findings.THROTTLED_RATIO:.0f} %"]),
        ("steps that wait for their batches", [f"{100 * findings.INPUT_BOUND_RATIO:.0f} %"]),
        (
            "GPUs that wait for their CPU",
            [f"{100 * findings.LOW_GPU_RATIO:.0f} %", f"{100 * findings.FULL_CPU_RATIO:.0f} %"],
        ),
    ],
)
def test_a_rule_has_the_bounds_of_the_code(finding: str, figures: list[str]) -> None:
    for figure in figures:
        assert figure in rule(finding)


def test_words_for_bounds() -> None:
    """`half`, `a tenth` and the like are written out."""
    assert findings.NEVER_USED_RATIO == 0.5
    assert (flatness.TAIL_PART, flatness.EARLY_PART, findings.GAP_RATIO) == (0.5, 0.1, 0.1)
    assert proposal.WORST_JOB == 1.1
    assert f"within {100 * recorded_jobs.WORK_RATIO:.0f} %" in PAGE
    assert f"at most {groups.MAX_GROUP_JOBS} jobs" in PAGE
    assert f"groups of {history.JOBS_PER_GROUP} that ran" in PAGE
    assert f"at most {history.POINTS_PER_JOB} points" in PAGE
    assert f"more than {history.MAX_SERIES:,} series" in PAGE
    assert f"{100 * SAME_RATIO:.0f} % or more" in PAGE.replace("\n", " ").replace("  ", " ")


def test_the_output_has_the_words_of_the_command() -> None:
    output = PAGE.split("```text\n")[1].split("```")[0]
    labels = [line.split("  ")[0] for line in output.split("\n\n")[1].splitlines()]
    assert labels == [label for label in TOTALS.values() if label in labels]
