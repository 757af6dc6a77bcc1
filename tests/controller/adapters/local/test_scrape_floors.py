"""How little CPU a job may have, learned from how long its scrapes take."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from support.worlds import START, a_job, a_snapshot

from slopewise.adapters.local.scrape_floors import ScrapeFloors
from slopewise.adapters.prometheus.client import Target
from slopewise.errors import ObservationError
from slopewise.model import AcceptedRange, CpuControl, Job, Observation

TIMEOUT = 5.0
SLOW = "its scrape took 4.0 s of 5 s"


@dataclass
class World:
    """Jobs with this CPU, and how long the last scrape of each took."""

    control: CpuControl = "requests"
    has: dict[str, int | None] = field(default_factory=dict)
    took: dict[str, float] = field(default_factory=dict)
    asked: int = 0
    unreachable: bool = False
    at: float = START
    started: float = START

    def __post_init__(self) -> None:
        self.floors = ScrapeFloors(self, self.targets, TIMEOUT, self.control)

    def observe(self) -> Observation:
        return Observation(a_snapshot([self.job(name) for name in self.has], at=self.at), "notes")

    def job(self, name: str) -> Job:
        has = self.has[name]
        cpu = {"limit": has} if self.control == "limits" else {"request": has or 1000}
        return a_job(name, started_at=self.started, **cpu)

    def targets(self) -> list[Target]:
        self.asked += 1
        if self.unreachable:
            raise ObservationError("Prometheus does not answer.")
        own = Target({"job": "slopewise"}, "up", "", 4.9)
        return [own, *(Target({"pod": name}, "up", "", seconds) for name, seconds in self.took.items())]

    def a_pass(self, later: float = 20.0) -> dict[str, AcceptedRange | None]:
        self.at += later
        return {job.name: job.accepts for job in self.floors.observe().snapshot.jobs}


@pytest.mark.parametrize("control", ["requests", "limits"])
def test_a_squeezed_job_whose_scrapes_are_late_may_have_no_less_than_they_need(control: CpuControl) -> None:
    """At 50m a scrape took 4 s; at 80m it takes 2.5 s, half of the timeout."""
    world = World(control, {"slow": 50, "quick": 50}, {"slow": 4.0, "quick": 2.4})
    assert world.a_pass() == {"slow": None, "quick": None}  # it may have the 50m since a moment ago
    assert world.a_pass() == {"slow": AcceptedRange(80, None, SLOW), "quick": None}


def test_the_floor_only_rises_and_is_never_above_what_a_new_job_weighs() -> None:
    world = World("requests", {"slow": 50}, {"slow": 4.0})
    world.a_pass()
    world.a_pass()
    world.took["slow"] = 2.6
    assert world.a_pass() == {"slow": AcceptedRange(80, None, SLOW)}
    world.has["slow"], world.took["slow"] = 900, 4.0
    world.a_pass()
    assert world.a_pass() == {"slow": AcceptedRange(1000, None, SLOW)}


def test_a_scrape_that_may_have_been_begun_with_other_cpu_says_nothing() -> None:
    world = World("requests", {"a": 50}, {"a": 5.0})
    world.a_pass()
    assert world.a_pass(later=9.0) == {"a": None}
    world.has["a"] = 60
    assert world.a_pass() == {"a": None}
    assert world.a_pass(later=10.0) == {"a": AcceptedRange(120, None, "its scrape took 5.0 s of 5 s")}


def test_nothing_is_read_where_no_job_is_squeezed_or_prometheus_does_not_answer() -> None:
    world = World("limits", {"free": None, "whole": 1000}, {"free": 4.0, "whole": 4.0})
    world.a_pass()
    assert (world.a_pass(), world.asked) == ({"free": None, "whole": None}, 0)
    world.has["free"], world.unreachable = 50, True
    world.a_pass()
    assert (world.a_pass(), world.asked) == ({"free": None, "whole": None}, 1)


@pytest.mark.parametrize("seen", [True, False])
def test_the_floor_of_a_job_that_has_ended_is_not_that_of_the_next_of_its_name(seen: bool) -> None:
    """`seen`: a pass comes between its end and the next one's start."""
    world = World("requests", {"a": 50}, {"a": 4.0})
    world.a_pass()
    world.a_pass()
    if seen:
        del world.has["a"]
        world.a_pass()
        world.has["a"] = 50
    world.started += 60.0
    assert world.a_pass() == {"a": None}
    assert world.floors.observe().notes == "notes"
