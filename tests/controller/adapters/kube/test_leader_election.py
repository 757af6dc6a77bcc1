"""At most one controller may write at a time, whatever hangs, and a lease that is lost is reported."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.api_server import ApiServer, Drop, Reply, refusal
from support.waiting import eventually
from support.worlds import FakeClock

from slopewise.adapters.kube.leader_election import Elector, Terms

LEASES = "/apis/coordination.k8s.io/v1/namespaces/slopewise-system/leases"
LEASE = f"{LEASES}/slopewise"
QUICK = Terms(lease_seconds=4.0, renew_deadline_seconds=2.5, retry_seconds=0.1)


class Candidate:
    """An elector and what it reported."""

    def __init__(
        self,
        server: ApiServer,
        identity: str,
        terms: Terms = QUICK,
        on_started: Callable[[], object] = lambda: None,
        **options: Any,
    ) -> None:
        self.started = 0
        self._on_started = on_started
        self.lost: list[str] = []
        self.elector = Elector(
            server.client(timeout_seconds=1.0),
            "slopewise-system",
            "slopewise",
            identity,
            terms=terms,
            on_started_leading=self._start,
            on_lost=self.lost.append,
            **options,
        )

    def _start(self) -> None:
        self.started += 1
        self._on_started()


class Election:
    """Candidates for one lease on one API server."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.entered: list[Candidate] = []

    def enter(self, identity: str, **options: Any) -> Candidate:
        candidate = Candidate(self.server, identity, **options)
        self.entered.append(candidate)
        candidate.elector.start()
        return candidate

    def lead(self, identity: str, **options: Any) -> Candidate:
        candidate = self.enter(identity, **options)
        assert eventually(lambda: candidate.elector.may_write() and candidate.started)
        return candidate

    @property
    def spec(self) -> dict[str, Any]:
        """Of the lease."""
        found: dict[str, Any] = self.server.get(LEASE)["spec"]
        return found

    def put_foreign(self, **changes: object) -> None:
        """Another controller's lease, renewed just now by a clock that is a year ahead."""
        spec = {
            "holderIdentity": "other",
            "leaseDurationSeconds": 2,
            "acquireTime": "2027-01-01T00:00:00.000000Z",
            "renewTime": "2027-01-01T00:00:00.000000Z",
            "leaseTransitions": 4,
            **changes,
        }
        self.server.put(LEASES, {"metadata": {"name": "slopewise"}, "spec": spec})

    def makes_more_requests(self, count: int, method: str = "") -> bool:
        """So many more than now, soon."""
        wanted = len(self.server.asked(method)) + count
        return eventually(lambda: len(self.server.asked(method)) >= wanted)


@pytest.fixture
def election(server: ApiServer) -> Iterator[Election]:
    """Its candidates are stopped after the test."""
    election = Election(server)
    yield election
    server.thaw()
    server.heal()
    for each in election.entered:
        each.elector.stop()


def test_the_first_one_makes_the_lease_leads_and_renews_with_one_request_each_time(election: Election) -> None:
    first = election.lead("a")
    before = election.spec
    assert (before["holderIdentity"], before["leaseDurationSeconds"], before["leaseTransitions"]) == ("a", 4, 0)
    assert eventually(lambda: len(election.server.asked("PUT")) >= 5)
    assert len(election.server.asked("GET")) == 1
    assert election.spec["renewTime"] > before["renewTime"]
    assert election.spec["acquireTime"] == before["acquireTime"]
    assert (first.elector.may_write(), first.elector.is_leader, first.started) == (True, True, 1)


def test_the_second_one_waits_and_takes_a_lease_that_is_handed_back_at_once(election: Election) -> None:
    terms = Terms(lease_seconds=3600, renew_deadline_seconds=1800, retry_seconds=0.1)
    first = election.lead("a", terms=terms)
    second = election.enter("b", terms=terms)
    assert eventually(lambda: second.elector.holder == "a")
    assert (second.elector.may_write(), second.elector.is_leader, second.started) == (False, False, 0)
    first.elector.stop()
    assert not first.elector.may_write()
    assert not first.elector.is_leader
    assert first.lost == []
    assert eventually(second.elector.may_write)
    assert election.spec["leaseTransitions"] == 1


@pytest.mark.parametrize(("says", "lasts"), [(2, 4.0), (60, 60.0)], ids=["shorter than ours", "longer"])
def test_the_lease_of_a_dead_holder_is_taken_by_our_clock(election: Election, says: int, lasts: float) -> None:
    election.put_foreign(leaseDurationSeconds=says)
    clock = FakeClock()
    waiting = election.enter("b", clock=clock.monotonic)
    assert eventually(lambda: waiting.elector.holder == "other")
    clock.seconds += lasts - 0.1
    assert election.makes_more_requests(3)
    assert not waiting.elector.may_write()
    clock.seconds += 1  # less than the renew deadline: a try that was sent before the jump may take it
    assert eventually(waiting.elector.may_write)
    assert election.spec["leaseTransitions"] == 5
    assert election.spec["acquireTime"] == election.spec["renewTime"] or len(election.server.asked("PUT")) > 1


def test_a_lease_that_is_renewed_is_never_taken_however_old_its_times_are(election: Election) -> None:
    election.put_foreign(renewTime="2001-01-01T00:00:00.000000Z")
    clock = FakeClock()
    waiting = election.enter("b", clock=clock.monotonic)
    for second in range(4):
        assert election.makes_more_requests(2)
        election.put_foreign(renewTime=f"2001-01-01T00:00:{second:02}.000000Z")
        clock.seconds += 3
    assert not waiting.elector.is_leader


def test_a_leader_that_was_suspended_says_so_and_blames_no_api_server(election: Election) -> None:
    clock = FakeClock()
    first = election.lead("a", clock=clock.monotonic)
    election.server.freeze()  # or it would renew in time
    clock.seconds += 60
    assert eventually(lambda: first.lost)
    assert "could not be renewed for 2.5 s (this process did not run for at least 5" in first.lost[0]
    assert first.lost[0].endswith("s: it was suspended, or had no CPU)")


def test_writing_ends_at_the_deadline_while_a_renewal_hangs(election: Election) -> None:
    first = election.lead("a")
    election.server.freeze()
    assert eventually(lambda: not first.elector.may_write())
    assert eventually(lambda: first.lost)
    assert "could not be renewed for 2.5 s (No answer to get " in first.lost[0]
    election.server.thaw()
    count = len(election.server.requests)
    assert not eventually(first.elector.may_write, 0.5)
    assert len(first.lost) == 1
    assert len(election.server.requests) <= count + 1  # it does not take the lease again


def test_the_deadline_counts_from_when_a_renewal_was_sent() -> None:
    clock = FakeClock()

    class Slow:
        """Takes 7 s to answer anything."""

        def get(self, path: str) -> dict[str, Any]:
            return {"metadata": {"name": "slopewise", "resourceVersion": "1"}}

        def replace(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
            clock.seconds += 7
            return body

    elector = Elector(Slow(), "n", "slopewise", "a", clock=clock.monotonic)  # type: ignore[arg-type]
    elector._attempt()
    assert elector.may_write()
    clock.seconds += 2.9
    assert elector.may_write()
    clock.seconds += 0.2
    assert not elector.may_write()


def test_short_troubles_are_survived(election: Election) -> None:
    election.server.fault(Reply(500, {}), method="POST")
    first = election.lead("a")
    for fault in (Drop(), Drop(after=True), Reply(500, {}), refusal(409, "Conflict", "modified")):
        election.server.fault(fault, method="PUT")
        assert election.makes_more_requests(3, "PUT")
    assert first.lost == []
    assert first.elector.may_write()
    assert election.spec["leaseTransitions"] == 0


def test_another_holder_ends_leading_at_once(election: Election) -> None:
    first = election.lead("a", terms=Terms(3600, 1800, 0.1))
    election.put_foreign()
    assert eventually(lambda: first.lost)
    assert first.lost == ["other holds the lease slopewise now"]
    assert not first.elector.may_write()
    first.elector.stop()
    assert election.spec["holderIdentity"] == "other"


def test_never_two_may_write_while_the_server_comes_and_goes(election: Election) -> None:
    entered = [election.enter(name) for name in "abc"]
    both = [0]
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.005):
            both[0] += [each.elector.may_write() for each in entered].count(True) > 1

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    assert eventually(lambda: any(each.elector.may_write() for each in entered))
    election.server.freeze()
    assert eventually(lambda: not any(each.elector.may_write() for each in entered))
    election.server.thaw()
    assert eventually(lambda: any(each.elector.may_write() for each in entered))
    ended.set()
    watcher.join()
    assert both == [0]


@pytest.mark.parametrize("rubbish", [None, {"holderIdentity": None, "leaseTransitions": None}])
def test_a_lease_without_contents_is_free(election: Election, rubbish: object) -> None:
    election.server.put(LEASES, {"metadata": {"name": "slopewise"}, "spec": rubbish})
    assert election.lead("a").elector.is_leader


@pytest.mark.parametrize(("fault", "expected"), [(True, "leases is forbidden"), (False, "TypeError")])
def test_an_unreadable_lease_is_reported_and_not_taken(election: Election, fault: bool, expected: str) -> None:
    election.put_foreign(leaseTransitions="many", leaseDurationSeconds="long")
    if fault:
        election.server.fault(refusal(403, "Forbidden", "leases is forbidden"), times=10_000)
    clock = FakeClock()
    waiting = election.enter("a", clock=clock.monotonic)
    assert eventually(lambda: fault or waiting.elector.holder == "other")
    clock.seconds += 5
    assert eventually(lambda: waiting.elector.failure)
    assert expected in str(waiting.elector.failure)
    assert not waiting.elector.is_leader


def test_stopping_while_the_server_hangs_takes_no_longer_than_a_request(election: Election) -> None:
    first = election.lead("a")
    election.server.freeze()
    stopped = threading.Event()

    def stop() -> None:
        first.elector.stop()
        stopped.set()

    threading.Thread(target=stop, daemon=True).start()
    assert stopped.wait(20)
    assert not first.elector.may_write()
    assert first.lost == []


def test_the_beginning_may_take_its_time_without_costing_the_lease(election: Election) -> None:
    finish = threading.Event()
    clock = FakeClock()
    slow = election.enter("a", on_started=finish.wait, clock=clock.monotonic)
    assert eventually(slow.elector.may_write)
    for _ in range(4):  # longer than the deadline altogether
        clock.seconds += 1
        assert election.makes_more_requests(2, "PUT")
    assert slow.elector.may_write()
    finish.set()
