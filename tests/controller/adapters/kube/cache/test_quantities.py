"""Kubernetes' own notation of CPU and memory becomes whole numbers, rounded up as Kubernetes rounds them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slopewise.adapters.kube.cache.wire import LARGEST, cpu_millicores, memory_bytes
from slopewise.config.quantities import cpu_quantity


@pytest.mark.parametrize(
    ("quantity", "millicores"),
    [
        ("250m", 250),
        ("2", 2000),
        ("1.0005", 1001),
        ("100n", 1),
        (2, 2000),
        (0.1, 100),
    ],
)
def test_cpu_is_read_in_millicores_rounded_up(quantity: str | float, millicores: int) -> None:
    assert cpu_millicores(quantity) == millicores


@pytest.mark.parametrize(
    ("quantity", "size"),
    [
        ("64Mi", 64 * 2**20),
        ("1.5Gi", 3 * 2**29),
        ("1E", 10**18),
        ("1500m", 2),
        ("1e40", LARGEST),
    ],
)
def test_memory_is_read_in_bytes_with_every_suffix(quantity: str, size: int) -> None:
    assert memory_bytes(quantity) == size


@pytest.mark.parametrize("quantity", ["", "m", "1 Gi", "1gi", "1e", "1mm", "0x10", "nan", "inf", "1_000", "٣", "1e999"])
def test_what_is_no_quantity_is_named(quantity: str) -> None:
    with pytest.raises(ValueError, match="is not a Kubernetes quantity"):
        memory_bytes(quantity)


def test_a_negative_quantity_is_refused() -> None:
    with pytest.raises(ValueError, match="'-1' is a negative quantity"):
        cpu_millicores("-1")


@given(st.integers(0, 10**7))
def test_what_is_written_is_read_back(millicores: int) -> None:
    assert cpu_millicores(cpu_quantity(millicores)) == millicores
