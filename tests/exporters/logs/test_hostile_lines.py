"""Lines that somebody made to harm: a million characters, brackets without end, exposition format."""

from __future__ import annotations

import time

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


@pytest.mark.parametrize(
    "line",
    [
        '# HELP training_loss Evaluation value\\n# TYPE training_loss gauge',
        'training_loss{stage="train"} 0.5',
        'training_loss{stage="train",pod="other"} 0.5 1700000000',
        "training_steps_total 1200",
        'process_start_time_seconds 1.7e+09',
        'loss{a="b\\n"} 1\n',
        '{"loss": "0.5\\n# TYPE evil counter\\nevil 1", "step": "1}", "epoch": {"x": 1}}',
    ],
)  # fmt: skip
def test_only_numbers_leave_the_parser(line: str) -> None:
    assert (LineParser().parse(line) or Found()).said == {}
