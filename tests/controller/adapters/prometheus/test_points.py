"""Raw points of two processes that were sampled at the same moment."""

from __future__ import annotations

from slopewise.adapters.prometheus.client import RangeRow
from slopewise.adapters.prometheus.evaluations import JobKey
from slopewise.adapters.prometheus.points import points_by_job
from slopewise.model import RawPoint


def test_equal_losses_of_one_moment_are_kept_also_where_only_one_process_counts_steps() -> None:
    one, other = (
        {"__name__": "training_loss", "namespace": "n", "pod": "a", "instance": instance} for instance in ("1:1", "2:1")
    )
    rows = [RangeRow(labels, [(1.0, 0.5)]) for labels in (one, other)]
    rows.append(RangeRow({**one, "__name__": "training_steps_total"}, [(1.0, 10.0)]))
    found = points_by_job(rows, lambda key: {}, {JobKey("n", "a"): "training_loss"})
    assert found == {JobKey("n", "a"): (RawPoint(1.0, 0.5, 10.0), RawPoint(1.0, 0.5, None))}
