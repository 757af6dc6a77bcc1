"""What is counted while a run goes on: overlap, balance, jitter."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slopewise.simulator.world.tallies import AllocatedCpu, ClusterTally, CpuIntervals, TimeMean


class TestTimeMean:
    def test_counts_each_value_for_as_long_as_it_stood_and_leaves_out_what_was_unknown(self) -> None:
        mean = TimeMean()
        for seconds, value in ((5.0, 4.0), (15.0, None), (20.0, 1.0), (25.0, 1.0)):
            mean.change(seconds, value)
        assert mean.until(40.0) == pytest.approx(2.0)
        never, no_time = TimeMean(), TimeMean()
        no_time.change(3.0, 7.0)
        assert (never.until(10.0), no_time.until(3.0)) == (0.0, 0.0)


class TestClusterTally:
    def test_shows_for_how_long_exactly_so_many_jobs_ran(self) -> None:
        tally = ClusterTally()
        for seconds, counts in ((0, [1, 0]), (10, [1, 1]), (15, [0, 1]), (35, [0, 0]), (50, [1, 0]), (51, [0, 0])):
            tally.recount(seconds, counts)
        assert tally.overlap_seconds == {1: 31.0, 2: 5.0}

    def test_shows_how_uneven_the_nodes_were_while_any_job_ran(self) -> None:
        tally = ClusterTally()
        for seconds, counts in ((0, [3, 1]), (10, [2, 2]), (20, [0, 0]), (1000, [0, 0])):
            tally.recount(seconds, counts)
        assert tally.load_imbalance_ratio == pytest.approx(0.5)  # (3 - 1) / 2 for half of the time
        alone, idle = ClusterTally(), ClusterTally()
        alone.recount(0, [3])
        alone.recount(10, [0])
        assert (alone.load_imbalance_ratio, idle.load_imbalance_ratio) == (0.0, 0.0)


class TestCpuIntervals:
    @given(st.lists(st.tuples(st.integers(1, 100), st.floats(0.01, 4)), min_size=1, max_size=12))
    def test_is_the_same_as_of_every_second_written_down(self, pieces: list[tuple[int, float]]) -> None:
        intervals = CpuIntervals()
        for seconds, cores in pieces:
            intervals.add(float(seconds), cores)
        every_second = [cores for seconds, cores in pieces for _ in range(seconds)]
        whole = len(every_second) // 20
        used = [sum(every_second[20 * i : 20 * (i + 1)]) for i in range(whole)]
        expected = statistics.pstdev(used) / statistics.fmean(used) if whole > 1 else 0.0
        assert intervals.jitter_ratio == pytest.approx(expected, abs=1e-9)


def test_cpu_used_beyond_an_allocation_is_no_use_of_it() -> None:
    allocated = AllocatedCpu()
    allocated.add(10.0, allocated_cores=0.5, cores=1.0)
    allocated.add(10.0, allocated_cores=1.0, cores=0.2)
    assert (allocated.cpu_seconds, allocated.used_cpu_seconds) == pytest.approx((15.0, 7.0))
