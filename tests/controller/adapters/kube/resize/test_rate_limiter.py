"""Writes go out at bounded rates, and no namespace uses up another's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.worlds import FakeClock

from slopewise.adapters.kube.resize.rate_limiter import Rate, RateLimiter


def buckets(clock: FakeClock, node: int = 100, namespace: int = 100, cluster: int = 100) -> RateLimiter:
    return RateLimiter(node=Rate(node), namespace=Rate(namespace), cluster=Rate(cluster), clock=clock.monotonic)


def test_a_burst_is_let_through_and_then_it_says_when_the_next_may_go() -> None:
    clock = FakeClock()
    limited = buckets(clock, node=3)
    assert [limited.take("n1", "a") for _ in range(3)] == [None] * 3
    assert limited.take("n1", "a") == "3 resizes in 60 s are allowed on node n1; the next in 20 s"
    clock.seconds += 20
    assert limited.take("n1", "a") is None
    assert limited.take("n1", "a") is not None


def test_each_node_and_namespace_has_its_own_and_the_cluster_one_for_all() -> None:
    limited = buckets(FakeClock(), node=1, namespace=2, cluster=3)
    assert limited.take("n1", "a") is None
    assert limited.take("n2", "a") is None
    assert limited.take("n3", "a") == "2 resizes in 60 s are allowed in namespace a; the next in 30 s"
    assert limited.take("n3", "b") is None
    assert limited.take("n4", "c") == "3 resizes in 60 s are allowed in the cluster; the next in 20 s"


def test_what_one_bucket_refuses_is_not_taken_from_the_others() -> None:
    clock = FakeClock()
    limited = buckets(clock, node=1, cluster=2)
    assert limited.take("n1", "a") is None
    assert limited.take("n1", "a") is not None
    assert limited.take("n2", "a") is None


@given(st.lists(st.floats(0, 30), min_size=1, max_size=200), st.integers(1, 5))
def test_no_minute_sees_more_than_a_burst_and_a_refill(pauses: list[float], tokens: int) -> None:
    clock, taken = FakeClock(), list[float]()
    limited = buckets(clock, node=tokens)
    for pause in pauses:
        clock.seconds += pause
        if limited.take("n1", "a") is None:
            taken.append(clock.seconds)
    for end in taken:
        assert sum(end - 60 < at <= end for at in taken) <= 2 * tokens


def test_buckets_of_nodes_that_are_gone_are_forgotten() -> None:
    clock = FakeClock()
    limited = buckets(clock, cluster=100_000)
    for number in range(5000):
        clock.seconds += 1
        limited.take(f"n{number}", f"team-{number}")
    assert len(limited._buckets) <= 1001 + 2
