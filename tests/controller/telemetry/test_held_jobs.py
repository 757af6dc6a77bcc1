"""Jobs that are held back in the metrics: how many, for how long, how near their end, and how many past it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.worlds import START, a_node, a_snapshot

from slopewise.model import Arrival, Decisions, Hold, MemoryState, PassReport
from slopewise.telemetry.held_jobs import HeldJobs, expired, held_jobs
from slopewise.telemetry.metrics import Instruments, Telemetry


def a_report(at: float, *, arrived: dict[str, float], until: dict[str, float]) -> PassReport:
    """A pass that finds these arrivals, and holds those with a bound; all times are seconds after `START`."""
    waiting = tuple(Arrival(uid, uid, "team", START + seconds) for uid, seconds in arrived.items())
    return PassReport(
        START + at,
        "dqoes",
        {},
        START + at + 20,
        snapshot=replace(a_snapshot([], [a_node()], at=START + at), waiting=waiting),
        decisions=Decisions("dqoes", (), {}, MemoryState()),
        held_back={uid: Hold("needs 0.9 cores", START + seconds) for uid, seconds in until.items()},
    )


ARRIVED = {"a": 0.0, "b": 300.0, "placed": 0.0}
HELD = a_report(400.0, arrived=ARRIVED, until={"a": 600.0, "b": 450.0})


def test_the_longest_wait_and_the_one_that_is_nearest_its_end_may_be_of_two_jobs() -> None:
    assert held_jobs(HELD) == HeldJobs(2, 400.0, 400 / 600)
    assert held_jobs(a_report(445.0, arrived=ARRIVED, until={"a": 600.0, "b": 450.0})) == HeldJobs(2, 445.0, 145 / 150)


def test_without_held_jobs_the_figures_are_zero_and_a_clock_that_is_behind_makes_none_negative() -> None:
    assert held_jobs(a_report(400.0, arrived=ARRIVED, until={})) == HeldJobs(0, 0.0, 0.0)
    assert held_jobs(a_report(0.0, arrived={"a": 5.0}, until={"a": 605.0})) == HeldJobs(1, 0.0, 0.0)


def test_a_hold_that_ends_as_it_begins_has_used_its_time() -> None:
    assert held_jobs(a_report(400.0, arrived={"a": 400.0}, until={"a": 400.0})) == HeldJobs(1, 0.0, 1.0)


@pytest.mark.parametrize(
    ("at", "until", "ended"),
    [
        (449.0, {"a": 600.0}, 0),
        (450.0, {"a": 600.0}, 1),
        (600.0, {}, 2),
        (600.0, {"a": 700.0}, 1),
        (460.0, {"a": 600.0, "b": 900.0}, 0),
    ],
    ids=["there was room for b", "the time of b is over", "of both", "that of b alone", "b may wait longer"],
)
def test_a_hold_expires_where_its_time_is_over_and_it_is_not_renewed(
    at: float, until: dict[str, float], ended: int
) -> None:
    assert expired(HELD.held_back, a_report(at, arrived=ARRIVED, until=until)) == ended


def value(instruments: Instruments, name: str) -> float | None:
    return instruments.registry.get_sample_value(f"slopewise_{name}")


def test_the_metrics_of_all_policies_have_the_sum_and_the_maxima() -> None:
    instruments = Instruments()
    one, other = (
        Telemetry(control="requests", interval_seconds=20.0, document=name, instruments=instruments) for name in "xy"
    )
    one.record(HELD)
    other.record(a_report(10.0, arrived={"c": 0.0}, until={"c": 11.0}))
    gauges = [value(instruments, name) for name in ("held_jobs", "oldest_hold_seconds", "hold_used_ratio")]
    assert gauges == [3.0, 400.0, pytest.approx(10 / 11)]


def test_an_expired_hold_is_counted_once_also_when_passes_could_not_observe_at_its_end() -> None:
    instruments = Instruments()
    telemetry = Telemetry(control="requests", interval_seconds=20.0, instruments=instruments)
    assert value(instruments, "holds_expired_total") == 0
    telemetry.record(HELD)
    telemetry.record(PassReport(START + 610.0, "dqoes", {}, START + 630.0, held="Prometheus is gone"))
    assert value(instruments, "holds_expired_total") == 0
    for at in (630.0, 650.0):
        telemetry.record(a_report(at, arrived={}, until={}))
        assert value(instruments, "holds_expired_total") == 2
