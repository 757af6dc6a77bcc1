"""The memory of a pod as text: small for workloads of many pods, the same when read again, refused when damaged."""

from __future__ import annotations

import base64
import zlib

import msgspec
import numpy as np
import pytest

from slopewise.adapters.kube.state.job_growth_object import COMPRESSED, MAX_JSON_BYTES, memory_text, read_memory
from slopewise.estimators.raw_points import KEPT, unpacked
from slopewise.model import Anchor, Ends, Growth, JobMemory, Levels, MemoryResizes, Pace, Points, PolicyMemory, Usage

NOW = 1_700_000_000.123456


def a_memory(points: int = KEPT) -> JobMemory:
    """With figures of all digits in all that a pass fills in."""
    luck = np.random.default_rng(7)
    pairs = np.stack([np.linspace(1, 200, points), luck.random(points)], axis=1).astype(np.float32)
    growth = Growth(NOW, 20.000001, luck.random(), luck.random(), {"cpu": luck.random(), "memory": luck.random()})
    state = msgspec.json.encode([luck.random() for _ in range(8)]).decode()
    paces = tuple(Pace(NOW + each, luck.random(), luck.random()) for each in range(12))
    anchor = Anchor(NOW, luck.random(), Usage(NOW, luck.random(), luck.random()))
    return JobMemory(
        levels=Levels("loss", luck.random(), luck.random(), anchor), growth=growth, previous_growth=growth, paces=paces,
        points=Points("steps", "loss", pairs.tobytes(), NOW, 200.0, cpu_seconds=200.0, workload_class="0a1b2c3d4e5f"),
        decided=PolicyMemory(state=state, ends=Ends(NOW, NOW - 1, NOW + 1)),
    )  # fmt: skip


@pytest.mark.parametrize("pods", [1, 5, 24])
def test_the_memory_of_all_pods_of_a_workload_is_below_what_a_jobgrowth_may_be(pods: int) -> None:
    stored = memory_text(a_memory(), pods)
    assert pods * (len(stored) + 250) < 32 * 1024  # 250 bytes: slot, names, node, original


def test_what_is_stored_is_read_again() -> None:
    whole = a_memory(points=50)
    assert [read_memory(memory_text(whole, pods)) for pods in (1, 5)] == [whole] * 2
    assert read_memory("") == JobMemory()
    known = JobMemory(memory_resizes=MemoryResizes(980.0, None, 1024))
    for text in (memory_text(known, 1), memory_text(known, 5)):
        assert read_memory(text) == known


def test_each_of_many_pods_keeps_fewer_points_evenly_spread() -> None:
    known = a_memory()
    kept = read_memory(memory_text(known, 10)).points
    assert kept is not None
    assert known.points is not None
    assert kept.count == 100
    assert unpacked(kept)[0].tolist() == unpacked(known.points)[0].tolist()
    assert unpacked(kept)[-1].tolist() == unpacked(known.points)[-1].tolist()
    assert max(np.diff(unpacked(kept)[:, 0])) < 4 * min(np.diff(unpacked(kept)[:, 0]))
    above_a_dozen = known.altered(decided=known.decided.altered(state="", ends=None), points=None)
    assert read_memory(memory_text(known, 13)) == above_a_dozen, "what is decided on, without points"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        memory_text(a_memory(), 5)[:-40],
        COMPRESSED + base64.b85encode(zlib.compress(b" " * (2 * MAX_JSON_BYTES))).decode(),
    ],
)
def test_damaged_memory_is_an_error_and_no_crash(text: str) -> None:
    with pytest.raises((msgspec.DecodeError, ValueError, zlib.error)):
        read_memory(text)
