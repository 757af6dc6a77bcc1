"""Virtual clusters under fair sharing: against a plain simulation, and across arrivals, ends and lost nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.searching import examples
from support.worlds import START, a_job, a_snapshot

from slopewise.estimators import virtual_shares
from slopewise.estimators.virtual_shares import CLUSTERS, Clusters, gathered
from slopewise.model import DEPARTED_KEPT, MEMORY_JSON, Departed, JobMemory, MemoryState, VirtualShare


def new(work: float, cores: float = 1.0, at: float = 0.0) -> VirtualShare:
    return VirtualShare(at, b"", b"", work, cores)


def clusters(jobs: Mapping[str, tuple[float, float]], nodes: Mapping[str, float]) -> Clusters:
    """Jobs that all come at 0, of this work and parallelism."""
    return gathered(nodes, {}, [(uid, new(work, cores), None) for uid, (work, cores) in jobs.items()])


def due(found: Clusters) -> dict[str, float]:
    return dict(zip(found.uids, found.due.tolist(), strict=True))


class TestFairSharing:
    def test_two_jobs_share_a_core_until_the_shorter_one_has_ended(self) -> None:
        found = clusters({"a": (50.0, 1.0), "b": (100.0, 1.0)}, {"n": 1.0})
        found.refresh(0.0)
        assert due(found) == pytest.approx({"a": 100.0, "b": 150.0})

    def test_a_job_that_uses_little_leaves_the_rest_to_the_others(self) -> None:
        found = clusters({"small": (19.0, 0.19), "big": (81.0, 1.0)}, {"n": 1.0})
        found.refresh(0.0)
        assert due(found) == pytest.approx({"small": 100.0, "big": 100.0})

    def test_the_last_one_has_the_node_to_itself(self) -> None:
        found = clusters({"only": (100.0, 1.0)}, {"n": 4.0})
        found.refresh(0.0)
        assert due(found) == pytest.approx({"only": 100.0})

    def test_an_arrival_delays_those_that_are_there(self) -> None:
        found = clusters({"a": (100.0, 1.0), "b": (100.0, 1.0)}, {"n": 1.0})
        found.advance(50.0)
        shares = {uid: found.share_of(at) for uid, at in found.index.items()}
        later = gathered({"n": 1.0}, shares, [("c", new(300.0, at=50.0), None)])
        later.advance(50.0)
        later.refresh(50.0)
        assert later.mean_service()[later.index["a"]] == pytest.approx(25.0)
        assert due(later)["a"] == pytest.approx(275.0)

    def test_jobs_that_were_stored_earlier_than_others_catch_up(self) -> None:
        """At 50 s one was stored, with 25 core-seconds, and at 80 s the other, with 40; at 100 s both have had 50."""
        service = {"early": 25.0, "late": 40.0}
        shares = {
            uid: msgspec.structs.replace(
                gathered({"n": 1.0}, {}, [(uid, new(100.0, at=at), None)]).share_of(0),
                service=np.full(CLUSTERS, service[uid], "<f4").tobytes(),
            )
            for uid, at in (("early", 50.0), ("late", 80.0))
        }
        found = gathered({"n": 1.0}, shares, [])
        found.advance(100.0)
        assert dict(zip(found.uids, found.mean_service().tolist(), strict=True)) == pytest.approx(
            {"early": 50.0, "late": 50.0}
        )

    def test_a_job_that_has_only_come_takes_nothing_of_the_time_before(self) -> None:
        found = clusters({"here": (100.0, 1.0)}, {"n": 1.0})
        shares = {"here": found.share_of(0)}
        later = gathered({"n": 1.0}, shares, [("new", new(100.0, at=10.0), None)])
        later.advance(10.0)
        assert later.mean_service().tolist() == [10.0, 0.0]

    def test_stored_times_without_number_are_grouped(self) -> None:
        nodes = {"n": 100.0}
        shares = {
            f"{number:03}": gathered(nodes, {}, [("", new(1e6, at=float(number)), None)]).share_of(0)
            for number in range(100)
        }
        found = gathered(nodes, shares, [])
        found.advance(100.0)
        assert found.mean_service() == pytest.approx(100.0 - np.arange(100), abs=100 / virtual_shares.MAX_STOPS)

    def test_an_arrival_goes_where_the_fewest_are_and_ties_differ_from_cluster_to_cluster(self) -> None:
        found = clusters({f"job-{n}": (100.0, 1.0) for n in range(4)}, {"n1": 1.0, "n2": 1.0})
        assert all((found.nodes[:, cluster] == 0).sum() == 2 for cluster in range(CLUSTERS))
        assert len({tuple(found.nodes[:, cluster]) for cluster in range(CLUSTERS)}) > 1

    def test_jobs_of_a_node_that_has_left_go_on_elsewhere(self) -> None:
        found = clusters({f"job-{n}": (100.0, 1.0) for n in range(6)}, {"n1": 1.0, "n2": 1.0})
        found.advance(10.0)
        shares = {uid: found.share_of(at) for uid, at in found.index.items()}
        later = gathered({"n2": 1.0}, shares, [])
        later.refresh(10.0)
        assert max(due(later).values()) == pytest.approx(10.0 + 600.0 - 2 * 10.0)

    def test_jobs_of_a_node_that_has_left_spread_over_those_that_are_left(self) -> None:
        found = clusters({f"job-{n}": (100.0, 1.0) for n in range(6)}, {"n1": 1.0, "n2": 1.0, "n3": 1.0})
        shares = {uid: found.share_of(at) for uid, at in found.index.items()}
        later = gathered({"n2": 1.0, "n3": 1.0}, shares, [])
        assert all((later.nodes[:, cluster] == 0).sum() == 3 for cluster in range(CLUSTERS))

    def test_nothing_is_put_on_a_node_that_no_job_uses(self) -> None:
        """It may be full or tainted: an end there would never come, or would come too soon."""
        nodes = {"large-but-tainted": 64.0, "ours": 1.0}
        found = gathered(nodes, {}, [(uid, new(100.0), None) for uid in ("a", "b")], in_use={"ours"})
        found.refresh(0.0)
        assert due(found) == pytest.approx({"a": 200.0, "b": 200.0})

    @examples(60)
    @given(
        jobs=st.lists(st.tuples(st.floats(0.1, 1e4), st.floats(0.05, 8.0)), min_size=1, max_size=9),
        cores=st.floats(0.2, 8.0),
    )
    def test_is_that_of_a_plain_simulation_in_any_world(self, jobs: list[tuple[float, float]], cores: float) -> None:
        named = {f"job-{n}": job for n, job in enumerate(jobs)}
        found = clusters(named, {"n": cores})
        found.refresh(0.0)
        assert due(found) == pytest.approx(plainly(named, cores), rel=1e-6, abs=1e-3)

    @examples(40)
    @given(
        jobs=st.lists(st.tuples(st.floats(1.0, 1e3), st.floats(0.05, 4.0)), min_size=1, max_size=9),
        steps=st.lists(st.floats(0.0, 300.0), min_size=1, max_size=5),
    )
    def test_advancing_in_steps_or_at_once_is_the_same(
        self, jobs: list[tuple[float, float]], steps: list[float]
    ) -> None:
        named = {f"job-{n}": job for n, job in enumerate(jobs)}
        at_once, in_steps = (clusters(named, {"n1": 1.5, "n2": 1.0}) for _ in range(2))
        at_once.advance(float(np.sum(steps)))
        for until in np.cumsum(steps):
            in_steps.advance(float(until))
        assert in_steps.service == pytest.approx(at_once.service, rel=1e-6, abs=1e-3)


def plainly(jobs: Mapping[str, tuple[float, float]], cores: float) -> dict[str, float]:
    """The ends of jobs that share one node, one event after another."""
    left, now = {uid: work for uid, (work, _) in jobs.items()}, 0.0
    ends: dict[str, float] = {}
    while left:
        rates, spare, waiting = {}, cores, len(left)
        for uid in sorted(left, key=lambda each: jobs[each][1]):
            rates[uid] = min(jobs[uid][1], spare / waiting)
            spare, waiting = spare - rates[uid], waiting - 1
        step = min(left[uid] / rates[uid] for uid in left)
        now += step
        left = {uid: work - rates[uid] * step for uid, work in left.items()}
        ends |= {uid: now for uid, work in left.items() if work <= 1e-6}
        left = {uid: work for uid, work in left.items() if work > 1e-6}
    return ends


class TestRemembered:
    def test_a_share_is_the_same_after_a_restart_and_small(self) -> None:
        found = clusters({"a": (100.0, 1.0)}, {"n": 1.0})
        found.advance(30.0)
        text = MEMORY_JSON.encode(JobMemory(virtual=found.share_of(0)))
        assert msgspec.json.decode(text, type=JobMemory).virtual == found.share_of(0)
        assert len(text) < 250

    def share(self, due_in: float) -> VirtualShare:
        return VirtualShare(START, b"\0" * 32, b"\0" * 32, 100.0, 1.0, START + due_in, START)

    def departed(self, remembered: MemoryState, *here: str) -> tuple[Departed, ...]:
        snapshot = a_snapshot([a_job(uid) for uid in here])
        memory = replace(remembered, jobs={uid: remembered.jobs.get(uid, JobMemory()) for uid in here}, departed=())
        return virtual_shares.with_departed(snapshot, memory, remembered).departed

    def test_a_job_that_ends_early_goes_on_until_it_is_due(self) -> None:
        jobs = {"early": JobMemory(virtual=self.share(50.0)), "late": JobMemory(virtual=self.share(-1.0))}
        assert [each.job_uid for each in self.departed(MemoryState(jobs))] == ["early"]

    def test_a_job_that_never_reported_anything_holds_up_nothing_once_it_has_gone(self) -> None:
        """Its work was never known: as endless as it began it would share the node for ever."""
        endless = msgspec.structs.replace(self.share(50.0), work=1e12)
        (gone,) = self.departed(MemoryState({"phantom": JobMemory(virtual=endless)}))
        assert gone.share.work == 0.0

    def test_a_job_that_comes_back_has_its_own_share_again(self) -> None:
        remembered = MemoryState({"moved": JobMemory()}, departed=(Departed("moved", self.share(50.0)),))
        snapshot = a_snapshot([a_job("moved")])
        after = virtual_shares.with_departed(snapshot, MemoryState({"moved": JobMemory()}), remembered)
        assert after.departed == ()
        assert after.jobs["moved"].virtual == self.share(50.0)

    def test_no_more_are_kept_than_fit_a_status(self) -> None:
        jobs = {f"job-{n}": JobMemory(virtual=self.share(50.0)) for n in range(DEPARTED_KEPT + 9)}
        kept = self.departed(MemoryState(jobs))
        assert len(kept) == DEPARTED_KEPT
        assert len(MEMORY_JSON.encode(kept)) < 32_000

    def test_other_policies_jobs_are_left_as_they_are(self) -> None:
        memory = MemoryState({"job": JobMemory()})
        assert virtual_shares.with_departed(a_snapshot([a_job("job")]), memory, memory) is memory
