"""One policy's passes over a small API server, and what is asked of its runner while one of them is under way."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from typing import cast
from urllib.parse import parse_qs, urlsplit

import pytest
from support.api_server import refusal
from support.fake_prometheus import answer, text, vector
from support.loopback import Respond
from support.managed_pods import PODS
from support.replicas import ORIGINAL, Town, shared_parts, sizes_alone
from support.waiting import eventually
from support.write_faults import Faulty

from slopewise.adapters.clock import SystemClock
from slopewise.adapters.kube.resize.rate_limiter import RateLimiter
from slopewise.adapters.kube.state.freezes import freeze_path
from slopewise.manager.policy_runner import PolicyRunner
from slopewise.manager.shared import SharedState
from testbed.histories.check import contradictions


@pytest.fixture
def town() -> Iterator[Town]:
    """Two pods and a policy that wants half of the node for each."""
    with Town() as town:
        town.pod("a")
        town.pod("b")
        town.policy()
        yield town


@pytest.fixture
def faulty(town: Town) -> Faulty:
    """Does no fault: for the history."""
    return Faulty(town.server, {})


@pytest.fixture
def shared(town: Town, faulty: Faulty) -> Iterator[SharedState]:
    """Of a replica that may write, whose watches have read everything; what may wait is never written."""
    with shared_parts(faulty.client(30.0), town.prometheus.url) as shared:
        yield shared


def a_runner(shared: SharedState) -> PolicyRunner:
    """Of the one policy there is."""
    [record] = shared.claims.policies()
    assert record.document is not None
    return PolicyRunner(shared, record, record.document, None)


@dataclass
class AsksAtEachTurn:
    """Lets every resize through, and asks something before: in the middle of a pass, between its two saves."""

    ask: Callable[[], bool] = lambda: False
    answers: list[bool] = field(default_factory=list)

    def take(self, node: str, namespace: str) -> str | None:
        self.answers.append(self.ask())
        return None


def test_asking_for_originals_does_not_disturb_the_pass_that_is_under_way(town: Town, shared: SharedState) -> None:
    turns = AsksAtEachTurn()
    runner = a_runner(replace(shared, rate_limiter=cast("RateLimiter", turns)))
    turns.ask = runner.holds_originals
    town.server.fault(refusal(403, "Forbidden", "no right"), method="POST", path="jobgrowths$")  # the first one's

    report = runner.one_pass()
    runner.stop()

    assert turns.answers == [True], "the one whose original is stored has a turn"
    assert sorted(outcome.result for outcome in report.results.outcomes) == ["applied", "failed"]
    assert (town.limit("a"), town.limit("b")) == (ORIGINAL, "1")
    assert len(town.server.asked("POST", "jobgrowths$")) == 2, "what could not be stored is not tried twice in a pass"


def test_a_runner_holds_originals_from_its_first_change_until_they_are_back(town: Town, shared: SharedState) -> None:
    runner = a_runner(shared)
    assert not runner.holds_originals()

    runner.one_pass()
    runner.stop()
    assert runner.holds_originals()
    assert not shared.job_growths.holds_originals("another policy")

    town.policy(mode="Recommend")
    assert eventually(lambda: shared.claims.policies()[0].generation == 2)
    lets_go = a_runner(shared)
    lets_go.one_pass()
    assert lets_go.holds_originals()  # accepted, and not yet in effect
    assert eventually(lambda: lets_go.one_pass() and not lets_go.holds_originals())
    lets_go.stop()
    assert town.limit("a") == town.limit("b") == ORIGINAL


def test_a_pass_of_a_policy_that_has_just_become_invalid_releases_nothing(town: Town, shared: SharedState) -> None:
    runner = a_runner(shared)
    runner.start()
    assert eventually(lambda: town.limit("a") == town.limit("b") == "1" and not runner.loop.busy)

    town.policy(policy={"name": "not-a-policy"})
    assert eventually(lambda: not shared.claims.current().policy_of)
    passes = runner.loop.passes
    runner.loop.trigger()
    assert eventually(lambda: runner.loop.passes > passes)
    runner.stop(60)
    assert runner.holds_originals()
    assert town.limit("a") == town.limit("b") == "1"
    assert not town.lines("workload released")


def test_a_changed_job_with_gpus_is_restored_once_that_is_not_allowed(town: Town, shared: SharedState) -> None:
    runner = a_runner(shared)
    runner.one_pass()
    runner.stop()
    raw = town.server.get(f"{PODS}/a")
    raw["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "1"
    town.server.put(PODS, raw)
    town.policy(policy={"name": "fair"})
    assert eventually(lambda: shared.claims.policies()[0].generation == 2)
    successor = a_runner(shared)
    assert eventually(lambda: successor.one_pass() and town.limit("a") == ORIGINAL)
    successor.stop()


def test_a_policy_that_names_another_container_first_restores_the_one_that_was_changed(
    town: Town, shared: SharedState
) -> None:
    def limits() -> list[str]:
        containers = town.server.get(f"{PODS}/a")["spec"]["containers"]
        return [each["resources"]["limits"]["cpu"] for each in containers]

    raw = town.server.get(f"{PODS}/a")
    for of_pod in (raw["spec"]["containers"], raw["status"]["containerStatuses"]):
        of_pod.append({**of_pod[0], "name": "beside"})
    town.server.put(PODS, raw)
    for generation, (named, expected) in enumerate({"trainer": ["1", ORIGINAL], "beside": [ORIGINAL, "1"]}.items(), 2):
        town.policy(selector={"container": named})
        assert eventually(lambda: shared.claims.policies()[0].generation == generation)  # noqa: B023
        runner = a_runner(shared)
        assert eventually(lambda: runner.one_pass() and limits() == expected), limits()  # noqa: B023
        runner.stop()


@pytest.mark.parametrize("policy", ["marginal", "fair"])
def test_limits_are_restored_once_only_requests_are_changed(town: Town, shared: SharedState, policy: str) -> None:
    town.pod("c", cpu_limit="2")
    assert eventually(lambda: len(shared.watches.pods.items()) == 3)
    runner = a_runner(shared)
    runner.one_pass()
    runner.stop()
    assert town.limit("a") == town.limit("c") == "667m"
    town.policy(policy={"name": policy}, resources={"control": "requests"})
    assert eventually(lambda: shared.claims.policies()[0].generation == 2)
    successor = a_runner(shared)
    assert eventually(lambda: successor.one_pass() and (town.limit("a"), town.limit("c")) == (ORIGINAL, "2"))
    successor.stop()


def test_a_freeze_that_comes_in_the_middle_of_a_pass_holds_the_next_write_back(town: Town, shared: SharedState) -> None:
    def freeze() -> bool:
        if turns.answers:
            town.server.put(freeze_path(), {"metadata": {"name": "f"}, "spec": {"scope": "all"}})
        return True

    turns = AsksAtEachTurn(freeze)
    runner = a_runner(replace(shared, rate_limiter=cast("RateLimiter", turns)))

    report = runner.one_pass()
    runner.stop()

    assert [outcome.result for outcome in report.results.outcomes] == ["applied", "deferred"]
    assert report.results.outcomes[1].detail == "frozen: Freeze f (all)"
    assert len(turns.answers) == 2, "it came between the second one's turn and its write"
    assert {town.limit("a"), town.limit("b")} == {"1", ORIGINAL}
    lists = [each for each in town.server.asked("GET", "/freezes$") if "limit" in each.params and not each.is_watch]
    assert len(lists) == 3, "one by the watch, one before each write"


@dataclass
class LaterClock(SystemClock):
    """The machine's, by as many seconds later as a test sets."""

    later_seconds: float = 0.0

    def now(self) -> float:
        return super().now() + self.later_seconds


def of_another_moment(*seconds: float) -> Respond:
    """Answers as of so many seconds later, one after the other: what two give of which one is behind."""
    turns = itertools.cycle(seconds)

    def respond(handler: BaseHTTPRequestHandler) -> None:
        at = float(parse_qs(urlsplit(handler.path).query)["time"][0]) + next(turns)
        answer(vector({"metric": {"pod": "a", "slopewise_value": "level"}, "value": [at, "1"]}))(handler)

    return respond


WRONG: Mapping[str, tuple[Respond, str]] = {
    "fails": (text(b"storage is on fire", status=503), "storage is on fire"),
    "gives a part": (answer(vector(warnings=["a store is gone"])), "a part of the answer"),
    "is two that disagree": (of_another_moment(0.0, -600.0), "an answer of another moment (600 s ago)"),
}
"""What else can be wrong with it is held with its sentence in the same way (adapters/prometheus/test_faults.py)."""


@pytest.mark.parametrize("wrong", WRONG)
def test_an_outage_of_three_intervals_restores_the_originals_once_and_a_shorter_one_changes_nothing(
    town: Town, faulty: Faulty, shared: SharedState, wrong: str
) -> None:
    clock = LaterClock()
    town.policy(behaviour={"intervalSeconds": 60, "cooldownSeconds": 0, "maxStepRatio": 8})
    assert eventually(lambda: shared.claims.policies()[0].generation == 2)
    runner = a_runner(replace(shared, clock=clock))
    runner.one_pass()
    assert (town.limit("a"), town.limit("b")) == ("1", "1")

    town.prometheus.respond, said = WRONG[wrong]
    clock.later_seconds = 150
    held = runner.one_pass().held or ""
    assert said in held
    assert "intervals" not in held
    assert (town.limit("a"), town.limit("b")) == ("1", "1")
    assert outage(shared) == 0

    clock.later_seconds = 190
    held = runner.one_pass().held or ""
    assert held.endswith("s, 3 intervals: original resources are restored.")
    assert "nothing is changed" not in held
    assert town.limit("a") == town.limit("b") == ORIGINAL
    assert outage(shared) == 1
    assert eventually(lambda: runner.one_pass() and not runner.holds_originals())
    written = len(town.server.asked("PATCH", "resize"))
    runner.one_pass()
    assert len(town.server.asked("PATCH", "resize")) == written, "once"

    town.prometheus.respond = sizes_alone
    assert runner.one_pass().held is None
    runner.stop()
    assert (town.limit("a"), town.limit("b")) == ("1", "1")
    assert outage(shared) == 0
    assert contradictions(faulty.events, settled=True) == []


def outage(shared: SharedState) -> float | None:
    return shared.instruments.registry.get_sample_value("slopewise_outage", {"name": "p"})
