"""The log of a run on this machine for people: one short line for each withheld change, event, or job and minute."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from support.worlds import START, a_job, a_snapshot

from slopewise.local.live import configure_short_lines
from slopewise.model import PassReport, Resize, Results, Withheld
from slopewise.telemetry.metrics import Telemetry

STAMP = len("2026-11-22T09:38:58Z ")


@contextmanager
def logged() -> Iterator[list[str]]:
    """The lines without their times."""
    stream = io.StringIO()
    lines: list[str] = []
    configure_short_lines(stream=stream, namespace="local")
    yield lines
    lines += [line[STAMP:] for line in stream.getvalue().splitlines()]


def a_pass(withheld: Withheld[Resize]) -> PassReport:
    job = a_job("a")
    snapshot = a_snapshot([job])
    here = job.altered(namespace="local")
    snapshot = type(snapshot)(START, snapshot.nodes, (here,))
    return PassReport(START, "flowcon", {}, START + 20, snapshot=snapshot, results=Results((), (withheld,)))


def test_what_a_mode_withholds_is_reported_with_the_policys_reason_whenever_another_figure_is_wanted() -> None:
    resizes = [Resize("a", "n1", "limits", 1000, to, f"wants {to}") for to in (500, 500, 700)]
    veto = "paused: mode is Recommend, and only Canary and Auto change anything"
    with logged() as lines:
        telemetry = Telemetry(control="limits", interval_seconds=20.0)
        for desired in resizes:
            telemetry.record(a_pass(Withheld(desired, "paused", veto)))
    assert lines == [f"a 1000m to {to}m withheld: {veto}; wants {to}" for to in (500, 700)]


def test_events_name_their_job_first_and_trouble_is_marked() -> None:
    with logged() as lines:
        log = structlog.get_logger("slopewise")
        log.info("job started", name="a", node="local")
        log.info("job ended", name="a", status=1, last_output_lines="Traceback\nValueError: no")
        log.info("job compared", name="b", reason="took 32s; under fair sharing about 41s")
        log.info("job ended", name="b", status=0, last_output_lines="")
        log.warning("job warning raised", job="local/a", warning="reports no loss")
        log.warning("job warning raised", job="local/a", warning="its port refuses", others=["local/b", "local/c"])
        log.warning("pass held", name="default", policy="flowcon", reason="Prometheus is gone", observe_ms=3.0)
        log.info("cpu is given by", actuator="cgroup v1")
    assert lines == [
        "a: job started",
        "a: job ended, status 1: ValueError: no",
        "b: took 32s; under fair sharing about 41s",
        "b: job ended, status 0",
        "warning: a: reports no loss",
        "warning: a and 2 more: its port refuses",
        "warning: pass held: Prometheus is gone",
    ]


def test_a_job_and_a_minute_are_one_line() -> None:
    with logged() as lines:
        structlog.get_logger("slopewise").info(
            "job progress", name="a", state="training", loss=0.53217, progress=0.451, cores_used=0.981,
            cores_allotted=1.15, job_class="NL", meaning="still learning",
        )  # fmt: skip
        structlog.get_logger("slopewise").info(
            "job progress", name="gpt", state="training", seconds=0.1123, objective_seconds=0.15, cores_allotted=0.5
        )
    assert lines == [
        "a: training, 45 %, loss 0.532, used 0.98 of 1.15 cores, NL, still learning",
        "gpt: training, 112 of 150 ms, has 0.50 cores",
    ]


def test_text_of_others_stays_on_its_line() -> None:
    with logged() as lines:
        structlog.get_logger("slopewise").warning("job warning raised", job="local/a", warning="x\x1b[31m\ny")
    assert lines == ["warning: a: x�[31m y"]
