"""Prints what is decided on this processor: a digest of each run of the gate, unrounded, and how a record replays.

Usage: digests.py RECORD. `test_processors.py` compares what it prints with other kernels.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

from regression import gate

from slopewise.decision_record.reader import read
from slopewise.decision_record.replay import replay
from slopewise.simulator.engine import run
from slopewise.simulator.workload import draw


def digests() -> dict[str, str]:
    """Of each case of the gate, by its name."""
    return {
        name: digest(repr(run(draw(scenario, gate.SEED), policy, trace=True)))
        for name, (scenario, policy) in gate.cases().items()
    }


def differences_of(record: Path) -> list[str]:
    """What the passes of a record give otherwise here."""
    return [f"{each.where}: {difference}" for each in replay(read(record, print)) for difference in each.differences]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


if __name__ == "__main__":
    print(json.dumps({"digests": digests(), "differences": differences_of(Path(sys.argv[1]))}))
