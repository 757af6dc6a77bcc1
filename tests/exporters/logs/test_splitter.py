"""Lines out of blocks, however they are cut."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from slopewise_exporter.logs import LineSplitter

TEXT = st.text(alphabet=st.sampled_from("ab é✓\t=1"), max_size=12)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[start:end] for start, end in itertools.pairwise(ends)]


@given(st.lists(TEXT, max_size=8), st.lists(st.integers(0, 500), max_size=8), st.sampled_from(["\n", "\r", "\r\n"]))
def test_where_the_blocks_end_changes_nothing(lines: list[str], places: list[int], end: str) -> None:
    data = "".join(line + end for line in lines).encode()
    splitter = LineSplitter()
    found = [line for block in cut(data, places) for line in splitter.feed(block)]
    assert found == [line for line in lines if line]
    assert splitter.pending_bytes == 0


def test_half_a_line_waits_for_its_end() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"loss=0.1") == []
    assert splitter.pending_bytes == 8
    assert splitter.feed(b"23\nnext") == ["loss=0.123"]
    assert splitter.flush() == ["next"]
    assert splitter.flush() == []


def test_bytes_that_are_no_utf8_and_nul_bytes() -> None:
    assert LineSplitter().feed(b"\xff\xfeloss=1\x00\x00\nloss=2\n") == ["\ufffd\ufffdloss=1", "loss=2"]


def test_a_log_without_line_ends_takes_no_memory() -> None:
    splitter = LineSplitter(max_line_bytes=1000)
    for _ in range(1000):
        assert splitter.feed(b"x" * 5000) == []
        assert splitter.pending_bytes <= 1000
    assert splitter.feed(b"the rest\nloss=1\n") == ["x" * 1000, "loss=1"]
