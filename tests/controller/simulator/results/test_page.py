"""The table and the report of a sweep: what they say in words."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from rich.console import Console
from support.instances import a_policy_run, a_sim_job, a_sim_node, an_instance
from support.pages import Page

from slopewise.reports.page import page_of
from slopewise.reports.report import terminal
from slopewise.simulator.engine import run
from slopewise.simulator.results import charts
from slopewise.simulator.results.measures import SHOWN, figures
from slopewise.simulator.results.sections import caveats, legend, report_of, rows, shown_measures
from slopewise.simulator.results.sweep_result import SweepResult
from slopewise.simulator.world.model import MoveKind, RunOutcome, Stay


def swept() -> SweepResult:
    """Three jobs on two nodes; a seed changes their works."""
    policies, seeds = ("fair", "flowcon"), (1, 2, 3)
    runs: dict[tuple[str, int], RunOutcome] = {}
    for seed in seeds:
        jobs = [a_sim_job(name, work=40.0 + 10 * seed * n, arrive=5.0 * n) for n, name in enumerate(("a", "b", "c"))]
        instance = an_instance(jobs, (a_sim_node("n1"), a_sim_node("n2")), seed=seed)
        runs |= {(policy, seed): run(instance, a_policy_run(policy)) for policy in policies}
    return result_of(runs, policies, seeds)


def result_of(
    runs: dict[tuple[str, int], RunOutcome], policies: Sequence[str], seeds: Sequence[int], asked: Sequence[int] = ()
) -> SweepResult:
    reported = {
        policy: [figures(runs[policy, seed], runs[policies[0], seed], {"a": 40.0}) for seed in seeds]
        for policy in policies
    }
    return SweepResult("two-nodes", tuple(policies), tuple(asked or seeds), tuple(seeds), reported, runs)


def render(result: SweepResult) -> str:
    return page_of(report_of(result))


def printed(result: SweepResult, *, everything: bool = False) -> str:
    text = io.StringIO()
    Console(file=text, width=100, no_color=True).print(terminal(report_of(result, everything=everything)))
    return text.getvalue()


@pytest.fixture(scope="module")
def result() -> SweepResult:
    return swept()


@pytest.fixture(scope="module")
def page(result: SweepResult) -> Page:
    return Page(render(result))


# --- the table --------------------------------------------------------------------------------------------


def test_the_table_has_a_mean_with_half_its_interval_and_the_ratio_with_its_verdict(result: SweepResult) -> None:
    makespan = result.summary()["fair"]["makespan_seconds"]
    assert makespan.mean is not None
    assert makespan.high is not None
    text = printed(result)
    assert re.search(rf"Makespan +{makespan.mean:.1f} ± {makespan.high - makespan.mean:.1f} s", text)
    assert re.search(r"×\d\.\d\d ± \d\.\d\d (better|worse|same|unclear)", text)


def test_six_figures_are_shown_and_all_of_them_on_request(result: SweepResult) -> None:
    few, every = printed(result), printed(result, everything=True)
    assert sum(row.label in few for row in rows(result)) == SHOWN
    assert all(row.label in every for row in rows(result))
    assert f"{len(rows(result)) - SHOWN} more figures: --all." in " ".join(few.split())
    assert "--all" not in every


def test_a_reader_is_warned_of_too_few_seeds_jobs_that_did_not_end_and_a_tuned_scenario(result: SweepResult) -> None:
    first = {key: each for key, each in result.runs.items() if key[1] == 1}
    starved = first["flowcon", 1]
    starved = replace(starved, jobs=(replace(starved.jobs[0], finished_seconds=None), *starved.jobs[1:]))
    found = result_of(first | {("flowcon", 1): starved}, result.policies, [1], asked=(1, 2))
    assert caveats(replace(found, tuned_on=True))[:4] == [
        "Stopped early: 1 of 2 seeds were run to their end.",
        "One seed gives no interval: its differences may be chance.",
        "Policies were tuned on this scenario: it says nothing about how well they do on others.",
        "Under flowcon, 1 of 3 jobs of all seeds had not ended: their completion times are in no mean and no ratio.",
    ]


def test_a_row_that_is_0_everywhere_is_left_out_and_named(result: SweepResult) -> None:
    """No job migrates under these two; JSON and CSV have the figure all the same."""
    assert "migrations_total" not in {row.name for row in rows(result)}
    assert "Left out, 0 under every policy: " in legend(result)
    assert "Migrations" in legend(result)
    assert "Migrations" not in printed(result).split("Mean over")[0]
    assert "migrations_total" in result.as_json()["policies"]["fair"]
    assert "measure-migrations_total" not in Page(render(result)).ids


NEVER_SHORT = (
    "CPU was never short: every job always had all that it can use, so no share or limit could make one sooner; "
    "give fewer cores, or more jobs at the same time."
)


def test_it_says_when_or_in_how_many_seeds_cpu_was_never_short(result: SweepResult) -> None:
    """Two trainings of one thread on two cores: no policy can change how long they take."""
    ample, short = (
        an_instance([a_sim_job("a"), a_sim_job("b")], (a_sim_node("n1", cpu=cpu),), seed=seed)
        for seed, cpu in ((1, 2.0), (2, 1.0))
    )
    runs = {
        (policy, each.seed): run(each, a_policy_run(policy)) for each in (ample, short) for policy in ("fair", "las")
    }
    assert [
        [message for message in caveats(found) if "never short" in message]
        for found in (result, result_of(runs, ("fair", "las"), [1]), result_of(runs, ("fair", "las"), [1, 2]))
    ] == [
        [],
        [NEVER_SHORT],
        ["In 1 of 2 seeds CPU was never short, so no share or limit could make a job sooner there."],
    ]
    alone = result_of({("fair", 1): runs["fair", 1]}, ("fair",), [1])
    assert "Only fair ran: there is nothing to compare it with." in caveats(alone)


def test_a_sweep_stopped_before_its_first_seed_still_has_a_table_and_a_page() -> None:
    nothing = result_of({}, ("fair", "flowcon"), (), asked=(1, 2))
    assert "0 of 2 seeds were run" in printed(nothing)
    assert "0 of 2 seeds were run" in Page(render(nothing)).text


# --- the page ---------------------------------------------------------------------------------------------


def test_every_measure_is_in_the_page_with_its_ratio_and_a_point_a_seed(page: Page, result: SweepResult) -> None:
    assert f"Makespan {result.summary()['fair']['makespan_seconds'].mean:.1f} ±" in page.text
    assert re.search(r"×\d\.\d\d ± \d\.\d\d (better|worse|same|unclear)", page.text)
    assert {f"measure-{name}" for name in shown_measures(result)} | {"gantt-1", "gantt-2"} <= page.ids
    for name in shown_measures(result):
        assert len(charts.measure_figure(result, name).marks) == 3 * len(result.policies)
    assert len(page.source.encode()) < 200_000
    bare = Page(render(replace(result, runs={})))
    assert ("Who ran where" in bare.text, "Makespan" in bare.text) == (False, True), "without kept runs"


def test_a_box_holds_the_middle_half_of_the_seeds_and_its_rules_the_rest(result: SweepResult) -> None:
    values = [value for value in result.values["flowcon"]["makespan_seconds"] if value is not None]
    figure = charts.measure_figure(result, "makespan_seconds")
    box = figure.boxes[1]
    ends = [rule for rule in figure.rules if rule.top == rule.bottom == 1]
    assert box.left < sorted(values)[1] < box.right
    assert (min(rule.left for rule in ends), max(rule.right for rule in ends)) == (min(values), max(values))


# --- the Gantt chart --------------------------------------------------------------------------------------


def test_every_stay_is_a_bar_from_when_until_when_on_its_node(result: SweepResult) -> None:
    outcome = result.runs["fair", 1]
    rows = charts.lanes(outcome)
    boxes = charts.gantt_figure(rows, ["test"], outcome.ended_seconds).boxes
    shown = sorted((box.left, box.right) for box in boxes)
    stays = sorted((stay.from_seconds, stay.to_seconds) for job in outcome.jobs for stay in job.stays)
    for (start, end), (began, ended) in zip(shown, stays, strict=True):
        assert (start, end) == pytest.approx((began, ended), abs=0.02)


def test_slow_moves_and_rebalancing_moves_have_marks_of_their_own(result: SweepResult) -> None:
    """The first job's stay cut in as many pieces as there are moves, each on the other node in turn."""
    outcome = result.runs["fair", 1]
    kinds: tuple[MoveKind, ...] = ("placed", "migrated", "rebalanced", "migrated")
    stays = tuple(Stay(f"n{1 + n % 2}", 10.0 * n, 10.0 * n + 10, came) for n, came in enumerate(kinds))
    moved = replace(outcome, jobs=(replace(outcome.jobs[0], stays=stays), *outcome.jobs[1:]))
    marks = charts.gantt_figure(charts.lanes(moved), ["test"], 100.0).marks
    at = {
        symbol: sorted(mark.x for mark in marks if mark.symbol == symbol) for symbol in {each.symbol for each in marks}
    }
    assert at == {"triangle-right": [10.0, 30.0], "diamond": [20.0]}


def test_stays_of_one_row_never_overlap(result: SweepResult) -> None:
    for lane in charts.lanes(result.runs["flowcon", 3]):
        ends = [stay.to_seconds for _, stay in lane.stays]
        begins = [stay.from_seconds for _, stay in lane.stays]
        assert all(end <= begin for end, begin in zip(ends, begins[1:], strict=False))


def test_a_cluster_that_no_page_can_show_is_cut_at_whole_nodes_and_reported(result: SweepResult) -> None:
    job = result.runs["fair", 1].jobs[0]
    jobs = tuple(
        replace(job, name=f"j{n:04}", stays=(Stay(f"n{n % 50:02}", 0.0, 100.0, "placed"),)) for n in range(1000)
    )
    crowd = replace(result.runs["fair", 1], jobs=jobs)
    rows, left_out = charts.shown_lanes(crowd)
    assert (len(rows), left_out) == (300, 35)
    assert (
        "35 further nodes would not fit the page" in Page(render(result_of({("fair", 1): crowd}, ("fair",), [1]))).text
    )
