"""Moves away from nodes are counted beside the bounds of their policy."""

from __future__ import annotations

import io
from collections.abc import Sequence

from support.worlds import START, a_node, a_snapshot

from slopewise.model import Decisions, MemoryState, MoveBounds, MoveEvent, MoveRecord, MoveStage, PassReport, Results
from slopewise.telemetry.metrics import Instruments, Telemetry, configure_logging

BOUNDS = MoveBounds(True, 12, 1, 60.0, 600.0, 600.0)


def begun(uid: str, node: str = "n1", at: float = START, stage: MoveStage = "begun") -> MoveEvent:
    return MoveEvent(uid, stage, MoveRecord(at, node, "n9"), "moves")


def recorded(events: Sequence[MoveEvent] = (), nodes: Sequence[str] = ("n1", "n2")) -> PassReport:
    snapshot = a_snapshot([], [a_node(name) for name in nodes])
    decisions = Decisions("p", (), {}, MemoryState())
    return PassReport(
        START, "p", {}, START + 20, snapshot=snapshot, decisions=decisions, results=Results(events=tuple(events))
    )  # fmt: skip


def telemetry(moving: MoveBounds | None = BOUNDS, instruments: Instruments | None = None) -> Telemetry:
    configure_logging(stream=io.StringIO())
    return Telemetry(
        control="limits", interval_seconds=20.0, document="training", instruments=instruments, moving=moving
    )


def departures(of: Telemetry, node: str) -> float | None:
    labels = {"name": "training", "job_node": node}
    return of.registry.get_sample_value("slopewise_node_departures_total", labels)


def bounds(of: Telemetry) -> list[float | None]:
    names = ("slopewise_moves_max_per_node_hour", "slopewise_moves_max_concurrent")
    return [of.registry.get_sample_value(name, {"name": "training"}) for name in names]


def test_the_pods_of_one_workload_that_leave_together_are_one_move() -> None:
    of = telemetry()
    of.record(recorded([begun("job-1:0"), begun("job-1:1"), begun("job-2:0"), begun("job-3:0", "n2")]))
    of.record(recorded([begun("job-1:0", at=START + 20), begun("job-2:0", stage="resumed")]))
    assert (departures(of, "n1"), departures(of, "n2")) == (3.0, 1.0)


def test_a_node_is_there_before_its_first_move_and_gone_with_the_node() -> None:
    of = telemetry()
    of.record(recorded())
    assert departures(of, "n1") == 0.0
    of.record(recorded(nodes=["n2"]))
    assert (departures(of, "n1"), departures(of, "n2")) == (None, 0.0)
    of.record(recorded([begun("job-1:0", "n1")], nodes=["n2"]))  # it was deleted while its job left
    assert departures(of, "n1") == 1.0
    of.forget()
    assert (departures(of, "n1"), bounds(of)) == (None, [None, None]), "its policy is deleted"


def test_the_bounds_are_those_of_the_policy_as_it_is_now() -> None:
    instruments = Instruments()
    assert bounds(telemetry(instruments=instruments)) == [12.0, 1.0]
    assert bounds(telemetry(MoveBounds(True, 3, 2, 60.0, 600.0, 600.0), instruments)) == [3.0, 2.0]
    assert bounds(telemetry(MoveBounds(False, 3, 2, 60.0, 600.0, 600.0), instruments)) == [None, None]
    assert bounds(telemetry(None, instruments)) == [None, None]
