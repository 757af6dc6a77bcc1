"""Each run against the first: ratios, verdicts, and what must be said before they are believed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from support.demo_runs import demo, job, run

from slopewise.demo.report.comparison import (
    as_json,
    caveats,
    job_rows,
    measure_rows,
    report_blocks,
    summaries,
)
from slopewise.demo.report.results import JCT, TIME_TO_90, DemoResult, Measure
from slopewise.reports.cells import Cell, Row


def ratio_cell(row: Row, run: int) -> Cell:
    """The cell of a measure in seconds."""
    cell = row.cells[run]
    assert isinstance(cell, Cell)
    return cell


def test_a_mean_is_compared_with_that_of_the_first_run() -> None:
    rows = measure_rows(demo(run("fair", job("a", 40), job("b", 60)), run("flowcon", job("a", 30), job("b", 50))))

    mean = rows[0]

    assert (mean.label, ratio_cell(mean, 0).seconds, ratio_cell(mean, 0).ratio) == ("Mean completion time", 50, None)
    assert (ratio_cell(mean, 1).seconds, ratio_cell(mean, 1).ratio, ratio_cell(mean, 1).verdict) == (40, 0.8, "better")


@pytest.mark.parametrize(
    ("measure", "before", "after", "verdict"),
    [
        (JCT, 100, 100.9, "same"),
        (JCT, 100, 101, "unclear"),
        (JCT, 100, 95, "better"),
        (JCT, 10, 10.9, "worse"),
        (TIME_TO_90, 5, 5.9, "same"),
        (TIME_TO_90, 3.1, 4.1, "worse"),
        (TIME_TO_90, 4.1, 3.1, "better"),
        (TIME_TO_90, 400, 398.9, "unclear"),
    ],
)
def test_what_is_closer_than_its_measure_can_resolve_is_the_same(
    measure: Measure, before: float, after: float, verdict: str
) -> None:
    """An end within 1 %; a loss that is read once a second, within that second. What one pair of runs cannot show, less
    than 5 %, is unclear."""
    runs = [
        run(policy, replace(job("a", value), time_to_90_seconds=value))
        for policy, value in (("fair", before), ("flowcon", after))
    ]

    assert job_rows(demo(*runs), measure)[0].cells[1].verdict == verdict


def test_each_job_has_a_row_even_when_only_one_run_had_it() -> None:
    rows = job_rows(demo(run("fair", job("a", 40)), run("flowcon", job("a", 20), job("late", 9))), TIME_TO_90)

    assert [(row.label, [ratio_cell(row, index).seconds for index in (0, 1)]) for row in rows] == [
        ("a", [20, 10]),
        ("late", [None, 4.5]),
    ]
    assert rows[1].cells[0].note == "did not run"


def test_a_job_that_never_ended_cannot_make_its_run_look_faster() -> None:
    """Means 50 and 20 s would read ×0.40; on the one job that both ended, nothing changed."""
    result = demo(run("fair", job("a", 20), job("slow", 80)), run("flowcon", job("a", 20), job("slow", None)))

    cell = ratio_cell(measure_rows(result)[0], 1)

    assert (cell.seconds, cell.ratio, cell.verdict, cell.note) == (20, 1.0, "same", "over 1 common job")
    assert ratio_cell(measure_rows(result)[2], 1).ratio is None


def test_runs_without_a_common_job_are_not_compared() -> None:
    cell = ratio_cell(measure_rows(demo(run("fair", job("a", None)), run("flowcon", job("a", 20))))[0], 1)

    assert (cell.ratio, cell.verdict, cell.note) == (None, None, "nothing to compare")


def test_a_baseline_of_no_time_gives_no_ratio() -> None:
    assert ratio_cell(job_rows(demo(run("fair", job("a", 0)), run("flowcon", job("a", 5))), JCT)[0], 1).ratio is None


def test_the_summary_shows_what_is_worse_beside_what_is_better() -> None:
    result = demo(
        run("fair", job("a", 40), job("b", 60), job("c", 20)), run("flowcon", job("a", 20), job("b", 66), job("c", 20))
    )

    (summary,) = summaries(result)

    assert (summary.policy, summary.baseline) == ("flowcon", "fair")
    assert "mean completion time 12 % shorter" in summary.phrases["better"]
    assert "1 of 3 jobs ended sooner (most: a, 50 % shorter)" in summary.phrases["better"]
    assert "makespan 10 % longer" in summary.phrases["worse"]
    assert "1 of 3 jobs ended later (most: b, 10 % longer)" in summary.phrases["worse"]


def test_a_job_without_end_and_passes_that_saw_nothing_are_said() -> None:
    cut = run("flowcon", job("a", 5), job("c", None, state="training"))

    output = caveats(demo(run("fair", job("a", 5), job("c", 5)), replace(cut, passes_held=2)))

    assert output == [
        "Under flowcon, 1 of 2 jobs had not ended: c.",
        "Under flowcon, 2 passes could not observe the jobs and changed nothing.",
    ]


# --- what is not compared ---------------------------------------------------------------------------------


def verdicts(result: DemoResult, place: int = 1) -> set[str | None]:
    """Of everything that the table shows of a policy."""
    rows = [*measure_rows(result), *(row for block in report_blocks(result) for row in block.rows)]
    return {row.cells[place].verdict for row in rows}


def test_a_policy_that_did_nothing_is_neither_praised_nor_blamed() -> None:
    """20 s instead of 40: chance, since no CPU was changed and no job moved."""
    result = demo(run("fair", job("a", 40)), run("specon", job("a", 20), resizes_applied=0))

    (output,) = caveats(result)
    (summary,) = summaries(result)

    assert verdicts(result) == {None}
    assert (*summary.phrases.values(), summary.compared) == ([], [], [], [], False)
    assert output == (
        "Under specon, nothing was done: no CPU was changed, and no job was moved or started elsewhere than under "
        "fair. Whatever differs is chance and is not compared."
    )


def test_a_policy_that_placed_every_job_where_it_was_anyhow_did_nothing() -> None:
    there, elsewhere = (replace(job("a", 20), node=node) for node in ("node-1", "node-2"))
    same = demo(run("fair", there), run("draps", there, resizes_applied=0, moves_applied=1))
    other = demo(run("fair", there), run("draps", elsewhere, resizes_applied=0, moves_applied=1))

    assert [message.split(":")[0] for message in caveats(same)] == ["Under draps, nothing was done"]
    assert caveats(other) == []


def test_jobs_shorter_than_an_interval_are_distinguished_from_a_policy_that_wanted_nothing() -> None:
    """Growth is known one interval after a job's arrival: what ends before is never looked at. The interval is 8 s."""
    short = demo(run("fair", job("a", 7)), run("flowcon", job("a", 6), resizes_applied=0))

    assert caveats(short)[0].endswith(
        "is not compared; no job ran for as long as an interval (8 s), in which growth is measured: take longer jobs, "
        "or a shorter --interval."
    )


def test_changes_that_guards_withheld_are_said_with_the_guard() -> None:
    held = {"resizes_applied": 0, "withheld": 3, "withheld_most": "min_change"}
    result = demo(run("fair", job("a", 40)), run("flowcon", job("a", 40), **held))

    assert caveats(result)[0].endswith("; guards withheld 3 changes that it wanted, most often min_change.")


@pytest.mark.parametrize("failing", ["fair", "flowcon"])
def test_where_a_job_failed_nothing_is_compared(failing: str) -> None:
    """What crashes early is not fast, and leaves its CPU to the others."""
    jobs = {name: [job("a", 20), job("b", 80)] for name in ("fair", "flowcon")}
    jobs[failing] = [job("a", 10), job("b", 2, state="failed")]
    result = demo(run("fair", *jobs["fair"]), run("flowcon", *jobs["flowcon"]))

    assert verdicts(result) == {None}
    (output,) = caveats(result)
    assert output == (
        f"Under {failing}, 1 of 2 jobs failed: b. Runs in which jobs failed are not compared: what fails leaves its "
        "CPU to the others."
    )
    assert not summaries(result)[0].compared


def test_runs_of_which_one_was_disturbed_by_another_program_are_not_comparable() -> None:
    quiet, disturbed = run("fair", job("a", 20)), run("flowcon", job("a", 30), other_cpu_cores=0.5)
    result = demo(quiet, disturbed)

    assert verdicts(result) == {None}
    (output,) = caveats(result)
    assert output == (
        "Everything else on this machine used 0.00 cores under fair and 0.50 under flowcon, which left the jobs 2.00 "
        "and 1.50. Runs that differ in that by more than 5 % are not comparable: run again on a quieter machine, or "
        "with --repeat."
    )


@pytest.mark.parametrize(
    ("others", "comparable"),
    [((0.0, 0.09), True), ((0.0, 0.11), False), ((1.5, 1.52), True), ((1.5, 1.53), False), ((2.0, 2.0), True)],
)
def test_what_counts_is_what_was_left_to_the_jobs(others: tuple[float, float], comparable: bool) -> None:
    """Of two cores: 0.03 of one that is half taken are more than 5 % of what is left, 0.09 of idle ones are not."""
    runs = [
        run(policy, job("a", 20), other_cpu_cores=used) for policy, used in zip(("fair", "las"), others, strict=True)
    ]

    assert summaries(demo(*runs))[0].compared is comparable


def test_a_machine_that_does_not_count_its_cpu_is_said_to() -> None:
    result = demo(run("fair", job("a", 40)), run("flowcon", job("a", 20), other_cpu_cores=None))

    assert verdicts(result) == {"better"}
    assert caveats(result) == [
        "How much CPU everything else on the machine used is not known: the kernel does not show it."
    ]


# --- several rounds ---------------------------------------------------------------------------------------


def rounds(*pairs: tuple[float, float], **of_flowcon: Any) -> DemoResult:
    """One job; its completion time under fair and under flowcon, round by round."""
    runs = [[run("fair", job("a", fair)), run("flowcon", job("a", flowcon), **of_flowcon)] for fair, flowcon in pairs]
    return replace(demo(*runs[0]), repeats=runs[1:], rounds_asked=len(runs))


def test_rounds_give_a_mean_with_its_interval_and_a_ratio_taken_round_by_round() -> None:
    cell = measure_rows(rounds((40, 32), (50, 40), (60, 48)))[0].cells[1]

    assert (cell.text, cell.badge) == ("40.0 ± 19.9 s", "×0.80 ± 0.00 better")


@pytest.mark.parametrize(
    ("times", "output"),
    [
        ([(40, 32), (40, 33), (40, 31)], "better"),
        ([(40, 48), (40, 47), (40, 49)], "worse"),
        ([(40, 30), (40, 50), (40, 41)], "unclear"),
        ([(40, 40.1), (40, 39.9), (40, 40.0)], "same"),
    ],
)
def test_over_rounds_the_interval_decides_in_the_words_of_the_simulator(
    times: list[tuple[float, float]], output: str
) -> None:
    (summary,) = summaries(rounds(*times))

    assert measure_rows(rounds(*times))[0].cells[1].verdict == output
    assert any("mean completion time" in phrase for phrase in summary.phrases[output])


def test_a_round_that_was_disturbed_is_left_out_of_the_ratios_and_said() -> None:
    whole = rounds((40, 32), (40, 32), (40, 32))
    disturbed = replace(whole.repeats[0][1], other_cpu_cores=0.9, jobs=[job("a", 70)])
    result = replace(whole, repeats=[[whole.repeats[0][0], disturbed], whole.repeats[1]])

    cell = ratio_cell(measure_rows(result)[0], 1)

    assert (cell.badge, cell.against and cell.against.count) == ("×0.80 ± 0.00 better", 2)
    assert caveats(result)[0].startswith("Round 2 of 3: everything else on this machine used 0.00 cores under fair and")


def test_rounds_that_were_not_run_are_said() -> None:
    assert "Stopped early: 2 of 3 rounds were run." in caveats(replace(rounds((4, 3), (4, 3)), rounds_asked=3))


def test_json_has_every_round_and_what_is_said_of_them() -> None:
    result = as_json(rounds((40, 32), (50, 40)))

    output = result["comparison"]["flowcon"]
    assert [list(of_round) for of_round in result["rounds"]] == [["fair", "flowcon"]] * 2
    assert (output["baseline"], output["rounds"], output["rounds_compared"], output["not_compared_because"]) == (
        "fair",
        2,
        2,
        [],
    )
    assert output["measures"]["jct_mean_seconds"] == {
        "ratio": {"mean": pytest.approx(0.8), "low": pytest.approx(0.8), "high": pytest.approx(0.8)},
        "verdict": "better",
    }
    assert output["jobs"]["a"]["time_to_90_seconds"]["verdict"] == "better"
    assert result["policy_runs"]["fair"]["other_cpu_cores"] == 0.0
    json.dumps(result, allow_nan=False)


def test_one_run_alone_is_compared_with_nothing_and_says_so() -> None:
    result = demo(run("fair", job("a", 5)))

    assert summaries(result) == []
    assert caveats(result) == ["Only fair ran: there is nothing to compare it with."]


def test_a_job_that_reported_no_loss_is_named_with_the_cause_once_and_in_its_row() -> None:
    silent = replace(job("b", 5), time_to_90_seconds=None, no_loss="port 41523 refuses; add the two lines")
    changed = replace(run("flowcon", job("a", 5), silent), resizes_applied=1)
    result = demo(run("fair", job("a", 5), silent), changed)

    assert caveats(result) == ["b reported no loss: port 41523 refuses; add the two lines."]
    (_, row) = job_rows(result, TIME_TO_90)
    assert [cell.note for cell in row.cells] == ["no loss", "no loss"]


def test_of_threads_the_cpu_of_steps_is_compared_and_nothing_done_is_no_hindrance() -> None:
    """5 CPU-seconds for 10 steps are 500 for 1,000."""
    cheap = replace(job("a", 20), cpu_seconds=1.0)
    runs = [run("fair-default-threads", job("a", 40), resizes_applied=0), run("fair", cheap, resizes_applied=0)]
    result = replace(demo(*runs), workload="threads")

    (row,) = [row for row in measure_rows(result) if row.name == "cpu_seconds_per_1000_steps_mean"]
    (of_job,) = [block.rows[0] for block in report_blocks(result) if block.name == "cpu_seconds_per_1000_steps"]

    for cells in (row.cells, of_job.cells):
        assert [cell.seconds for cell in cells] == [500.0, 100.0]
        assert (cells[1].ratio, cells[1].verdict) == (0.2, "better")
    assert "CPU-seconds of 1,000 steps 80 % shorter" in summaries(result)[0].phrases["better"]
    assert as_json(result)["policy_runs"]["fair"]["cpu_seconds_per_1000_steps_mean"] == 100.0
    assert caveats(result) == [
        "Under fair-default-threads SLOPEWISE_THREADS is `off` for the jobs; elsewhere it is `follow`."
    ]
    assert not any("1,000 steps" in row.label for row in measure_rows(demo(*runs)))
