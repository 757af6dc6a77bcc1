"""Container logs as the kubelet keeps them: /var/log/pods/NAMESPACE_POD_UID/CONTAINER/0.log."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from support.following import Kept

from slopewise_exporter.logs import LineParser, Tracker
from slopewise_exporter.tail.followed_file import Block
from slopewise_exporter.tail.log_source import CriReader, LogLines, is_cri, seconds_of
from slopewise_exporter.tail.opening import Opening
from slopewise_exporter.values import Checker


def entry(content: str, *, tag: str = "F", stream: str = "stdout", second: int = 0, zone: str = "Z") -> bytes:
    return f"2026-01-01T10:00:{second:02d}.123456789{zone} {stream} {tag} {content}\n".encode()


def read(data: bytes, size: int = 10_000) -> Kept:
    kept = Kept()
    lines = LogLines(LineParser(), Tracker(kept).take)
    for start in range(0, len(data), size):
        lines.feed(Block(data[start : start + size], start == 0, 1.0))
    return kept


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_entries_are_read_wherever_the_blocks_end(size: int) -> None:
    kept = read(b"".join(entry(f"step {step}/30 loss=0.5", second=step) for step in (10, 20, 30)), size)
    assert (kept.steps, kept.planned, kept.losses) == (30, 30, [0.5] * 3)


def test_parts_of_a_long_line_are_put_together_for_each_stream() -> None:
    kept = read(
        entry('{"step": 3, "lo', tag="P")
        + entry("step 1", tag="P", stream="stderr")
        + entry('ss": 0.25}')
        + entry("2 loss=7", stream="stderr")
    )
    assert (kept.steps, kept.losses) == (12, [0.25, 7])


def test_the_updates_of_a_progress_bar_are_one_entry() -> None:
    bar = "\r".join(f" {n}0%|█| {n}/10 [00:01<00:09, 1.0it/s, loss=0.{n}]" for n in range(1, 6))
    kept = read(entry(bar, stream="stderr"))
    assert (kept.steps, kept.losses) == (5, [0.1, 0.2, 0.3, 0.4, 0.5])


def test_the_time_of_what_is_of_the_past_is_that_of_its_entry() -> None:
    assert read(entry("step 1 loss=1", second=5)).times == [1767261605.0]
    (found,) = CriReader().feed(entry("x", second=5, zone="+02:00"))
    assert seconds_of(found) == 1767261605.0 - 2 * 3600


def test_a_log_of_the_training_itself_is_none() -> None:
    assert is_cri(entry("loss=1"))
    assert not is_cri(b"2026-01-01T10:00:00Z loss=1\n")
    assert not is_cri(b"loss=1\n")


def test_the_log_of_a_restarted_container_is_the_next_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count(step=10.0)
    monkeypatch.setattr("slopewise_exporter.tail.opening.time.monotonic", lambda: next(ticks))
    kept = Kept()
    source = Opening(LineParser(), Tracker(kept).take, Checker()).open(str(tmp_path))
    (tmp_path / "0.log").write_bytes(entry("step 100 loss=1") + entry("step 200 loss=1"))
    while source.poll():
        pass
    assert kept.steps == 200
    (tmp_path / "1.log").write_bytes(entry("step 10 loss=1"))
    while source.poll():
        pass
    assert (kept.steps, kept.restarts) == (10, 1)
    source.close()
