"""What the pods of others leave of a node: worked examples, broken figures, and what holds for any."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slopewise.adapters.kube.capacity import Capacity, available, capacity_message


@pytest.mark.parametrize(
    ("requested", "used", "left"),
    [
        (1.0, None, 3.0),
        (1.0, 1.5, 2.5),
        (1.0, 3.0, 2.0),  # jobs request 2 cores: what others use beyond the rest is borrowed
        (5.0, 0.0, 0.0),
        (None, 1.5, 2.5),
    ],
)
def test_others_take_what_they_request_or_use_if_more(requested: float | None, used: float | None, left: float) -> None:
    assert available(4.0, 2.0, requested, used).available_cores == pytest.approx(left)


@pytest.mark.parametrize("used", [math.nan, math.inf, -1.0])
def test_a_figure_that_is_none_is_left_out_and_named(used: float) -> None:
    found = available(4.0, 2.0, 1.0, used)
    assert found.available_cores == 3.0
    assert found.note is not None
    assert "is reported as" in found.note
    assert available(4.0, 2.0, None, used).available_cores is None


@pytest.mark.parametrize(
    ("share", "left", "note"),
    [
        ((4.0, 1.0, 0.5, 70.0), 1.0, "other pods use 70 of 4 cores"),
        ((4.0, 1.0, 5.0, 0.5), 0.0, "other pods request 5 of 4 cores"),
        ((4.0, 1.0, None, 0.5), 3.5, "what other pods request is not known, so only their use counts"),
    ],
)
def test_figures_that_cannot_be_or_are_missing_are_named_and_take_no_more_than_jobs_leave(
    share: tuple[float, float, float | None, float], left: float, note: str
) -> None:
    assert available(*share) == Capacity(left, note)


_SOME = st.none() | st.floats(allow_nan=True, allow_infinity=True)


@given(st.floats(0.1, 256), st.floats(0, 512), st.none() | st.floats(0, 512), _SOME)
def test_it_is_never_beyond_the_node(whole: float, jobs: float, requested: float | None, used: float | None) -> None:
    found = available(whole, jobs, requested, used).available_cores
    assert found is None or 0 <= found <= whole


def test_nodes_with_the_same_trouble_are_named_together() -> None:
    nodes = {f"n{number}": Capacity(None, "unknown") for number in range(4)} | {"m": Capacity(1.0)}
    assert capacity_message(nodes) == "n0, n1, n2 and more: unknown"
    assert capacity_message({"m": Capacity(1.0)}) is None
