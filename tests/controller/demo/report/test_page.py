"""The report: one file, safe whatever the jobs are called."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from support.demo_result import TRAININGS, sample_result
from support.pages import HOSTILE, Page

from slopewise.adapters.local.limiters.cgroup_v1 import CgroupV1Limiter
from slopewise.adapters.local.limiters.duty_cycle import DutyCycleLimiter
from slopewise.demo.report.results import Curves, DemoResult, RunResult
from slopewise.demo.report.sections import actuator_note, report_of
from slopewise.reports.page import page_of


def render(result: DemoResult) -> str:
    return page_of(report_of(result))


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(render(sample_result()))


@pytest.fixture(scope="module")
def hostile_page() -> Page:
    return Page(render(with_hostile_names(sample_result())))


def with_hostile_names(result: DemoResult) -> DemoResult:
    """The sample with every name and reason chosen by an enemy."""
    names = dict(zip([training.name for training in TRAININGS], HOSTILE, strict=True))

    def renamed(run: RunResult, policy: str) -> RunResult:
        return replace(
            run,
            policy=policy,
            jobs=[replace(job, name=names[job.name]) for job in run.jobs],
            curves={names[name]: curves for name, curves in run.curves.items()},
        )

    runs = [renamed(run, policy) for run, policy in zip(result.runs, ["fair", HOSTILE[0]], strict=True)]
    return replace(result, runs=runs, prometheus_version=HOSTILE[1], actuator=HOSTILE[4])


def with_curves(run: RunResult, curves: Curves) -> RunResult:
    """`run` with other curves of wine-mlp."""
    return replace(run, curves=run.curves | {"wine-mlp": curves})


# --- what the page shows ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shown",
    [
        "Mean completion time 58.8 s 63.2 s ×1.08 worse",
        "Mean time to 90 % 27.9 s 26.9 s ×0.96 unclear",
        "stdlib-charlm 86.0 s 77.0 s ×0.90 better",
        "▲ Better 4 of 8 jobs ended sooner",
        "▼ Worse mean completion time 8 % longer 4 of 8 jobs ended later",
        "? Unclear mean time to 90 % makespan",
        "Changes made none 13 resizes CPU of everything else 0.03 cores 0.03 cores",
        "everything else on the machine",
        "Prometheus 3.5.0",
        "CPU given by cgroup v2, weights (cpu.weight) Cores shared 2 Interval 8 s",
        "its passes used 0.63 % of one core",
    ],
)
def test_figures_stand_with_their_ratio_and_verdict_in_words_beside_what_ran_them(page: Page, shown: str) -> None:
    assert shown in page.text


def tiles(page: Page) -> list[str]:
    """The classes of the boxes that stand first on the page, which their colours follow."""
    return [value for name, value in page.attributes if name == "class" and value.split()[0] == "tile"]


def test_the_colours_of_the_boxes_are_their_verdicts(page: Page) -> None:
    assert tiles(page) == ["tile worse", "tile unclear", "tile unclear"]


@pytest.mark.parametrize("hindered", ["idle", "failed", "disturbed"])
def test_what_is_not_compared_has_no_colour_and_says_why_first(hindered: str) -> None:
    fair, flowcon = sample_result().runs
    changed = {
        "idle": replace(flowcon, resizes_applied=0),
        "failed": replace(flowcon, jobs=[replace(flowcon.jobs[0], state="failed"), *flowcon.jobs[1:]]),
        "disturbed": replace(flowcon, other_cpu_cores=1.2),
    }
    reported = Page(render(replace(sample_result(), runs=[fair, changed[hindered]])))

    assert tiles(reported) == ["tile "] * 3
    assert "flowcon against fair: not compared" in reported.text
    assert reported.text.index("compar") < reported.text.index("Mean completion time")
    assert not re.search(r"×|sooner|later|shorter|longer", reported.text[: reported.text.index("Each run")])


def test_of_several_rounds_the_first_is_drawn() -> None:
    whole = sample_result()
    reported = Page(render(replace(whole, repeats=[whole.runs, whole.runs], rounds_asked=3)))

    assert "Mean completion time 58.8 ± 0.0 s 63.2 ± 0.0 s ×1.08 ± 0.00 worse" in reported.text
    assert "The runs of the first round" in reported.text
    assert len(drawn(reported)) == 4


def drawn(page: Page) -> list[str]:
    """The ids of all charts."""
    return [value for name, value in page.attributes if name == "id" and re.fullmatch(r"run-\d+-[a-z]+", value)]


def test_each_run_has_its_two_charts(page: Page) -> None:
    assert drawn(page) == [f"run-{number}-{kind}" for number in (1, 2) for kind in ("loss", "used")]
    assert list(page.figures) == drawn(page)


def test_the_charts_are_drawn_without_any_script(page: Page) -> None:
    """A curve and an area for each job and run."""
    classes = [value for name, value in page.attributes if name == "class"]
    assert classes.count("curve") == 2 * len(TRAININGS)
    assert classes.count("area") == 2 * len(TRAININGS)


def test_the_report_is_a_small_file(page: Page) -> None:
    """With plotly's script it was 4.9 MB."""
    assert len(page.source.encode()) < 400_000


def test_stop_and_continue_is_explained_where_it_replaced_cgroups() -> None:
    description = DutyCycleLimiter("no cgroups: cgroup v2: not mounted").description
    text = Page(render(replace(sample_result(), actuator=description))).text

    assert "(no cgroups: cgroup v2: not mounted). Each job's processes were stopped and continued in turn" in text
    assert actuator_note(CgroupV1Limiter.description) == ""


def test_only_a_loss_that_leaves_its_chart_is_said_to(page: Page) -> None:
    fair, flowcon = sample_result().runs
    curves = fair.curves["wine-mlp"]
    diverged = replace(curves, loss=[*curves.loss, (curves.loss[-1][0] + 1, 1e6)])
    text = Page(render(replace(sample_result(), runs=[with_curves(fair, diverged), flowcon]))).text

    assert text.count("Out of the chart") == 1
    assert "Hover for the loss. Out of the chart above 1.5: wine-mlp." in text
    assert "Out of the chart" not in page.text


def test_what_is_not_known_is_a_dash() -> None:
    fair, flowcon = sample_result().runs
    unknown = replace(flowcon.jobs[0], finished_seconds=None, jct_seconds=None, time_to_90_seconds=None)
    result = replace(sample_result(), runs=[fair, replace(flowcon, jobs=[unknown, *flowcon.jobs[1:]])])

    text = Page(render(result)).text

    assert "digits-logreg 34.0 s – " in text
    assert "Makespan 87.0 s –" in text
    assert "None" not in text


def test_a_demo_stopped_before_its_first_run_still_has_a_page() -> None:
    page = Page(render(replace(sample_result(), runs=[])))

    assert "No run was completed" in page.text
    assert page.figures == {}


# --- one file, no network, nothing obeyed -----------------------------------------------------------------


def test_the_page_asks_the_network_for_nothing(page: Page) -> None:
    fetching = [(name, value) for name, value in page.attributes if name in ("src", "href", "srcset", "action")]
    fetching += [each for each in page.attributes if "url(" in each[1] and not each[1].startswith("url(#hatch-")]
    policy = next(value for name, value in page.attributes if name == "content" and "default-src" in value)

    assert fetching == []
    assert page.tags["link"] == page.tags["iframe"] == page.tags["img"] == 0
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy
    assert "<style" not in page.source.split("</style>")[0].split("<style>")[1]
    assert "url(" not in page.source.split("</style>")[0]


def test_hostile_names_add_no_element_and_no_attribute(page: Page, hostile_page: Page) -> None:
    allowed = {tag for tag in page.tags if page.tags[tag]}

    assert set(hostile_page.tags) == allowed
    assert hostile_page.tags["script"] == page.tags["script"] == 2
    assert {name for name, _ in hostile_page.attributes} == {name for name, _ in page.attributes}


def test_hostile_names_are_shown_as_they_are(hostile_page: Page) -> None:
    shown = [HOSTILE[0], HOSTILE[1], HOSTILE[2], HOSTILE[3], HOSTILE[4], HOSTILE[5], "�evil�[31m"]

    assert [name[:40] for name in shown if name not in hostile_page.text] == []


def test_hostile_names_cannot_end_the_data_nor_style_a_chart(hostile_page: Page) -> None:
    names = [series["name"] for series in hostile_page.figures["run-1-loss"]["series"]]

    assert len(hostile_page.figures) == 4
    assert names[0] == "<script>alert(1)</scrip…"  # as data: the script makes text of it, never markup
    assert [line for line in hostile_page.source.splitlines() if "<script>alert" in line] == []
    assert "innerHTML" not in hostile_page.source


def test_a_loss_that_is_not_finite_leaves_the_data_readable() -> None:
    fair, flowcon = sample_result().runs
    curves = fair.curves["wine-mlp"]
    broken = replace(curves, loss=[(1.0, float("nan")), (2.0, float("inf"))], cpu_cores=[(1.0, float("nan"))])
    result = replace(sample_result(), runs=[with_curves(fair, broken), flowcon])

    figures = Page(render(result)).figures

    assert len(figures["run-1-loss"]["series"]) == len(TRAININGS)


def test_tables_and_charts_can_be_read_aloud(page: Page) -> None:
    labels = [value for name, value in page.attributes if name == "aria-label"]

    assert page.tags["caption"] == page.tags["table"]
    assert len([label for label in labels if "under flowcon; the tables" in label]) == 2
