"""Advice as it is shown: totals, order, and hostile names on a terminal."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console
from support.pages import HOSTILE
from support.past_jobs import START, constant, past, points, straight

from slopewise.adapters.prometheus.history import Period
from slopewise.advise.advice import TOTALS, Advice
from slopewise.advise.findings import finding
from slopewise.advise.proposal import proposal
from slopewise.advise.replay import PolicyReplay, Replays
from slopewise.advise.sections import report_of
from slopewise.reports.estimates import Estimate
from slopewise.reports.report import terminal
from slopewise.reports.wording import plain
from slopewise.signals import Interrupted

PERIOD = Period(START, START + 7 * 86_400)


def advice(*jobs: object, **more: object) -> Advice:
    findings = [finding(job) for job in jobs]  # type: ignore[arg-type]
    known = {"policy_text": "kind: TrainingPolicy\n", "jobs_known": len(jobs), **more}
    return Advice("http://prometheus:9090", PERIOD, "training_loss", findings, **known)  # type: ignore[arg-type]


def printed(given: Advice, width: int = 160) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(terminal(report_of(given)))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_totals_add_up_and_unknown_counts_as_nothing() -> None:
    given = advice(past("a-0", gpus=2.0), past("b-0", loss=constant, gpus=1.0), past("c-0", loss=None, request=None))
    totals = given.totals
    assert list(totals) == list(TOTALS)
    assert (totals["jobs"], totals["gpu_jobs"], totals["flat_jobs"], totals["stalled_jobs"]) == (3, 2, 1, 1)
    assert totals["gpu_hours"] == pytest.approx(30)
    assert totals["gpu_stalled_hours"] == pytest.approx(10)
    assert totals["gpu_flat_hours"] == pytest.approx(2 * (given.findings[0].flat_hours or 0), rel=1e-4)
    assert totals["cpu_held_core_hours"] == pytest.approx(20 + 20 + 10, rel=0.01)


def test_the_hours_that_gpus_waited_are_shown_of_how_many_and_at_which_price() -> None:
    """Ten hours each: two GPUs that waited for 40 % of the time, and one that reports no waits."""
    given = advice(past("a-0", gpus=2.0, wait_ratio=0.4), past("b-0", gpus=1.0), price_gpu_hour=2.5)
    assert given.totals["gpu_waiting_hours"] == pytest.approx(8)
    assert given.as_json()["price_gpu_hour"] == 2.5
    rows = [" ".join(line.split()) for line in printed(given).splitlines()]
    assert "GPU-hours that waited for batches 8 (27%), 20 at 2.5 each" in rows
    unpriced = [" ".join(line.split()) for line in printed(replace(given, price_gpu_hour=None)).splitlines()]
    assert "GPU-hours that waited for batches 8 (27%)" in unpriced


def test_the_headline_has_all_that_was_held_and_what_is_not_known() -> None:
    one = advice(past(gpus=1.0), past("b-0", loss=straight)).headline
    assert one == (
        "Training jobs held 72% of the GPU-hours (7.2 of 10) and 36% of the core-hours (14 of 40) while their loss "
        "was flat."
    )
    assert advice(past()).headline.startswith("Training jobs held 72% of the core-hours (14 of 20) while")
    assert advice(past(), past("b-0", loss=None, gpus=1.0)).headline.endswith(" Of 1 of 2 jobs it is not known.")


def test_each_kind_of_finding_names_an_action_and_whom_to_ask() -> None:
    given = advice(past(), past("b-0"), past("c-0", namespace="odd"), past("d-0", loss=constant))
    shown = printed(given, 240)
    assert "3 jobs with a flat loss (ask the owners of team: 2, odd: 1): stop such trainings at a target" in shown
    assert "1 job whose loss did not improve (ask the owners of team: 1): check the learning rate" in shown
    assert given.as_json()["actions"][0] in " ".join(shown.split())


def test_an_unknown_use_of_nodes_is_no_node_without_two_jobs() -> None:
    bare = replace(past("b-0"), cpu_cores=past().loss[:0])
    assert "Whether jobs shared a node's CPU is not known: of 1 of 2 jobs" in " ".join(advice(past(), bare).caveats)
    assert "No two jobs were on one node" in " ".join(advice(past(), past("b-0", node="node-b")).caveats)
    stopped = advice(past(), jobs_known=12, stopped=Interrupted(2))
    assert stopped.caveats[0] == "Stopped early: 1 of 12 jobs were read."


def test_a_job_whose_loss_was_never_finite_is_not_said_to_have_gpus() -> None:
    (note, *_) = advice(past(loss=None)).caveats
    assert note == "Of 1 job no finite training_loss is known, nor whether it was flat."


def test_who_held_most_in_vain_comes_first() -> None:
    jobs = [
        past("improves-0", loss=straight, gpus=8.0),
        past("little-0", gpus=1.0),
        past("stalled-0", loss=constant, gpus=1.0),
        past("cpu-0", request=50.0),
    ]
    assert [job.pod for job in advice(*jobs).worst_first] == ["stalled-0", "little-0", "cpu-0", "improves-0"]


def test_json_is_json_also_of_nothing_known() -> None:
    bare = replace(past(loss=None), cpu_cores=points(60, 60, lambda _: 0.0)[:0], memory_bytes=past().loss[:0])
    document = json.loads(json.dumps(advice(bare).as_json(), allow_nan=False))
    assert document["jobs"][0]["cpu_used_core_hours"] is None
    assert document["totals"]["jobs"] == 1


def replays_of(policy: str) -> Replays:
    ratio = Estimate(0.8, 0.7, 0.9, 4)
    ratios = dict.fromkeys(("jct_mean_seconds", "time_to_90_seconds", "makespan_seconds"), ratio)
    return Replays(5, 3, 2, 10, (PolicyReplay(policy, ratios, ratio, 10, 6, 1, {}),), 0.07)


def test_replays_show_their_verdict_and_interval_and_what_was_left_out() -> None:
    shown = printed(advice(past(), replays=replays_of("marginal")))
    assert "×0.80 ± 0.10 better" in shown
    assert "6 of 10" in shown
    assert "In 2 of 5 groups of jobs on a node CPU was not short" in shown
    assert "2 of 3 groups in which CPU was short were replayed." in shown
    assert "7% from the" in shown


def test_where_gpus_waited_for_their_cpu_no_note_says_that_nothing_was_short_or_replayed() -> None:
    """A limit holds a loader back on a node that has CPU: alone there, or beside jobs that have all they can use."""
    by_need = replace(replays_of("Share"), groups=1, contended=1, replayed=1, fair_error_ratio=0.3)
    for groups in (0, 5):
        given = advice(past(), replays=Replays(groups, 0, 0, 0), replays_by_need=by_need)
        notes = "\n".join(given.caveats)
        assert "nothing is replayed" not in notes
        assert "every job had all that it could use" not in notes
        assert "30% from the" in notes
        assert list(given.as_json()["replays_by_need"]["policies"]) == ["Share"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_text_on_a_terminal(name: str) -> None:
    pod = name.encode(errors="replace").decode()
    jobs = past(pod, namespace=pod, node=pod, gpus=1.0), past("b-0")
    _, text = proposal([finding(job) for job in jobs], replays_of("marginal"), "training_loss", "min")
    given = advice(*jobs, replays=replays_of(pod), policy_text=text, loss_names=[pod])
    shown = printed(given)
    assert "\x1b[31m" not in shown
    assert "\u202e" not in shown
    assert plain(pod)[:12] in shown.replace("\n", "")
