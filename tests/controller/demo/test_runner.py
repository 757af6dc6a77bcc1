"""From a run's raw data to its figures: time to 90 %, and the rows of the decision table."""

from __future__ import annotations

import pytest
from support.worlds import START, a_job, a_node, a_snapshot, known

from controller.demo.results import Curves, JobResult, RunResult
from controller.demo.runner import decision_rows, with_times_to_quality
from controller.model import Decisions, MemoryState, Objective, Outcome, PassReport, Resize, Withheld


def a_run(policy: str, arrived: float, *points: tuple[float, float], objective: Objective = "min") -> RunResult:
    job = JobResult("j", arrived, 100.0, 100.0 - arrived, None, 10, None, None, 1.0, "finished")
    return RunResult(policy, [job], {"j": Curves(objective, list(points))}, [], 1, 0, 0, 0, 0.0)


def times(*runs: RunResult) -> list[float | None]:
    return [run.jobs[0].time_to_90_seconds for run in with_times_to_quality(runs)]


def test_time_to_90_counts_from_the_arrival_to_nine_tenths_of_the_improvement() -> None:
    assert times(a_run("fair", 5.0, (6.0, 1.0), (8.0, 0.5), (9.0, 0.05), (20.0, 0.0))) == [4.0]


def test_all_runs_share_one_target_although_one_was_scraped_later_and_the_other_ended_earlier() -> None:
    fair = a_run("fair", 0.0, (1.0, 10.0), (2.0, 2.0), (3.0, 0.9), (4.0, 0.0))
    late = a_run("flowcon", 0.0, (2.0, 2.0), (3.0, 1.5), (5.0, 0.95))
    assert times(fair, late) == [3.0, 5.0]  # against its own range the second would need 1.055, reached at 5.0 too
    assert times(late) == [5.0]


def test_an_accuracy_is_to_rise() -> None:
    assert times(a_run("fair", 0.0, (1.0, 0.1), (2.0, 0.95), (3.0, 1.0), objective="max")) == [2.0]


@pytest.mark.parametrize("points", [(), ((1.0, 0.5), (2.0, 0.5)), ((1.0, 0.5), (2.0, 0.9))])
def test_a_job_that_never_improved_never_reached_anything(points: tuple) -> None:
    assert times(a_run("fair", 0.0, *points)) == [None]


def a_report(after: float, job_class: str, **became: tuple) -> PassReport:
    jobs = [a_job("a")]
    memory = MemoryState({"a": known(job_class=job_class)})
    decisions = Decisions("flowcon", (), {"a": f"{job_class}: because"}, memory)
    return PassReport(START + after, "flowcon", {}, START, snapshot=a_snapshot(jobs), decisions=decisions, **became)


def test_the_decision_table_has_changes_of_class_and_every_resize_with_what_became_of_it() -> None:
    resize = Resize("a", "n1", "limits", 1000, 500, "NL: why")
    reports = [
        a_report(1, "NL"),
        a_report(2, "NL"),
        a_report(3, "NL", outcomes=(Outcome(resize, "applied"),)),
        a_report(4, "WL", withheld=(Withheld(resize, "cooldown", "cooldown: 1 s"),)),
        PassReport(START + 5, "flowcon", {}, START, held="Prometheus is gone"),
    ]
    found = decision_rows(reports, START, "limits")
    rows = [(r.at_seconds, r.job_class, r.to_millicores, r.outcome, r.reason) for r in found]
    assert rows == [
        (1.0, "NL", None, "", "NL: because"),
        (3.0, "NL", 500, "applied", "NL: why"),
        (4.0, "WL", 500, "withheld: cooldown", "cooldown: 1 s"),
    ]


def test_weights_are_told_as_the_share_of_the_node_that_they_give() -> None:
    memory = MemoryState({uid: known(job_class="NL") for uid in ("a", "b")})
    resizes = [Resize("a", "n1", "requests", 1000, 1500, ""), Resize("b", "n1", "requests", 1000, 500, "")]
    report = PassReport(
        START, "flowcon", {}, START,
        snapshot=a_snapshot([a_job("a"), a_job("b")], [a_node(cpu_cores=2.0)]),
        decisions=Decisions("flowcon", tuple(resizes), {}, memory),
        outcomes=tuple(Outcome(resize, "applied") for resize in resizes),
    )  # fmt: skip
    rows = [(row.job, row.from_millicores, row.to_millicores) for row in decision_rows([report], START, "requests")]
    assert rows == [("a", 1000, 1500), ("b", 1000, 500)]
