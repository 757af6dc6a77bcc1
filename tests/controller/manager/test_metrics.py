"""What the process says of itself beside its passes."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from slopewise.manager.metrics import ClusterMetrics, of_moves, of_suspended

MOVES = (
    "slopewise_gated_pods",
    "slopewise_oldest_gate_seconds",
    "slopewise_moves_under_way",
    "slopewise_oldest_move_seconds",
)


def test_the_oldest_gate_and_the_oldest_move_are_reported_at_each_scrape() -> None:
    registry, gated, moving = CollectorRegistry(), [7.0, 31.0], [2.5]
    ClusterMetrics(registry).follow(lambda: of_moves(gated, moving))
    assert [registry.get_sample_value(name) for name in MOVES] == [2.0, 31.0, 1.0, 2.5]
    gated.clear()
    moving.clear()
    assert [registry.get_sample_value(name) for name in MOVES] == [0.0, 0.0, 0.0, 0.0]


def test_jobs_that_a_move_leaves_suspended_are_counted_at_each_scrape() -> None:
    registry, waited = CollectorRegistry(), [4.0, 75.0]
    ClusterMetrics(registry).follow(lambda: of_suspended(waited))
    names = ("slopewise_suspended_jobs", "slopewise_oldest_suspended_seconds")
    assert [registry.get_sample_value(name) for name in names] == [2.0, 75.0]
    waited.clear()
    assert [registry.get_sample_value(name) for name in names] == [0.0, 0.0]
