"""Lines that somebody made to harm: a million characters, brackets without end, exposition format."""

from __future__ import annotations

import time
import tracemalloc

import pytest
from support.following import Kept

from slopewise_exporter.logs import Found, LineParser, LineSplitter, Tracker

MILLION = 1_000_000

HOSTILE = {
    "one letter": "a" * MILLION,
    "a name without an end": "loss_" * (MILLION // 5),
    "names and no numbers": "loss " * (MILLION // 5),
    "slashes": "loss/" * (MILLION // 5),
    "spaces after a name": "loss" + " " * MILLION,
    "equals signs": "loss" + "=" * MILLION,
    "digits": "loss=" + "1" * MILLION,
    "groups of digits": "loss=" + "111," * (MILLION // 4),
    "brackets": "loss " + "[" * MILLION,
    "json brackets": '{"loss":' + "[" * MILLION,
    "json objects": '{"loss":' * (MILLION // 8),
    "json text": '{"loss": "' + "1" * MILLION + '"}',
    "json digits": '{"loss": ' + "1" * MILLION + "}",
    "bar": "1%|" * (MILLION // 3),
    "bar of blocks": "loss 1%|" + "█" * MILLION + "| 1/2 [",
    "keras": "1/2 " + "━" * MILLION,
    "escapes": "loss\x1b[" + "0;" * (MILLION // 2),
    "backspaces": "loss=1" + "\x08" * MILLION,
    "epochs": "Epoch 1/2 " * (MILLION // 10),
    "training": "Training " * (MILLION // 9),
    "quotes": "'loss'" * (MILLION // 6),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_million_characters_take_no_longer_than_their_length_explains(name: str) -> None:
    parser, splitter, tracker = LineParser(), LineSplitter(), Tracker(Kept())
    started = time.process_time()
    for line in splitter.feed(HOSTILE[name].encode() + b"\n"):
        found = parser.parse(line)
        if found is not None:
            tracker.take(found)
    assert time.process_time() - started < 2.0


def test_the_time_for_a_line_grows_with_its_length_and_no_faster() -> None:
    """Twice the length takes about twice the time; four times would be quadratic."""
    for line in ("loss_", "loss ", "a/", "loss = [", "1%|", "Epoch 1 "):
        seconds = []
        for length in (16_000, 64_000):
            text = line * (length // len(line))
            seconds.append(min(timed(text) for _ in range(5)))
        assert seconds[1] < 4 * 4 * max(seconds[0], 1e-4), line


def timed(text: str) -> float:
    parser = LineParser()
    started = time.process_time()
    parser.parse(text)
    return time.process_time() - started


def test_memory_for_a_log_of_one_line_is_bounded() -> None:
    splitter = LineSplitter()
    block = b"loss=1 " * 10_000
    tracemalloc.start()
    for _ in range(300):
        splitter.feed(block)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4_000_000


@pytest.mark.parametrize(
    "line",
    [
        '# HELP training_loss Evaluation value\\n# TYPE training_loss gauge',
        'training_loss{stage="train"} 0.5',
        'training_loss{stage="train",pod="other"} 0.5 1700000000',
        "training_steps_total 1200",
        'process_start_time_seconds 1.7e+09',
        'loss{a="b\\n"} 1\n',
    ],
)  # fmt: skip
def test_a_line_in_exposition_format_is_no_metric_of_ours(line: str) -> None:
    assert (LineParser().parse(line) or Found()).said == {}


def test_the_name_and_text_of_a_line_never_reach_the_metrics() -> None:
    """Only numbers leave the parser."""
    found = LineParser().parse('{"loss": "0.5\\n# TYPE evil counter\\nevil 1", "step": "1}", "epoch": {"x": 1}}')
    assert (found or Found()).said == {}


def test_a_spike_is_reported_as_it_is_and_left_to_the_average() -> None:
    kept = Kept()
    Tracker(kept).take(LineParser().parse("step 1 loss 1e12") or Found())
    assert kept.losses == [1e12]
