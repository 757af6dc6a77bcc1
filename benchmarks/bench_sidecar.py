"""How fast `slopewise-exporter tail` reads logs, and how much memory it takes.

For each kind of log a file of some megabytes is written, and a fresh process follows it to its end with all that a
sidecar does: blocks, lines, numbers, a tracker and a served `Reporter`. Speed is megabytes a second of CPU time:
other work on the machine does not count. Beside it stands that of a loop that does nothing with the lines, in the
same process. Two gates are speeds (JSON lines, patterns of the user by RE2), one is the resident set of every process.

    python benchmarks/bench_sidecar.py        # exit 1 beyond a gate
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from slopewise_exporter.logs import LineParser, Tracker
from slopewise_exporter.tail.followed_file import FollowedFile
from slopewise_exporter.tail.follower import FollowedTraining
from slopewise_exporter.tail.log_source import FileLog, LogLines
from slopewise_exporter.values import Checker

MEGABYTES = 12
ROUNDS = 2
"""The best of them counts: a core that is shared makes even CPU time longer."""

MIN_JSON_MEGABYTES = 30.0
MIN_PATTERN_MEGABYTES = 10.0
MAX_RESIDENT_MEGABYTES = 60.0

NAMED = r"step=(?P<step>\d+)/(?P<steps_planned>\d+) .*?loss=(?P<loss>\S+)"
KATIB = r"([\w|-]+)\s*=\s*([+-]?\d*(\.\d+)?([Ee][+-]?\d+)?)"
"""The default of Katib's metricsFormat: it matches each pair of a line, of which two are of interest."""


def json_line(step: int, loss: float) -> str:
    """As a structured logger writes a step."""
    return json.dumps(
        {
            "timestamp": f"2026-01-01T10:{step // 60 % 60:02d}:{step % 60:02d}.123Z",
            "level": "INFO",
            "logger": "trainer",
            "message": "step done",
            "step": step,
            "epoch": step / 1000,
            "loss": loss,
            "grad_norm": 2.0 * loss,
            "learning_rate": 5e-05,
        }
    )


def text_line(step: int, loss: float) -> str:
    """As a trainer prints a step."""
    return (
        f"2026-01-01 10:{step // 60 % 60:02d}:{step % 60:02d},123 INFO trainer.loop step={step}/1000000 "
        f"epoch={step // 1000} loss={loss:.6f} grad_norm={2 * loss:.4f} lr=5e-05 ms=12.5"
    )


def chatter(step: int, loss: float) -> str:
    """A text line after nine that say nothing of the training, as most lines of most logs."""
    other = "2026-01-01 10:00:00,123 INFO data.reader fetched shard 17 of 99 into the cache after 12.3 ms\n"
    return other * 9 + text_line(step, loss)


class Case(NamedTuple):
    """One kind of log, how it is read, and the least speed in megabytes a second; 0: no gate."""

    name: str
    line: Callable[[int, float], str]
    patterns: tuple[str, ...]
    without_re2: bool
    least: float


CASES = (
    Case("JSON lines", json_line, (), False, MIN_JSON_MEGABYTES),
    Case("pattern, RE2", text_line, (NAMED,), False, MIN_PATTERN_MEGABYTES),
    Case("pattern, re", text_line, (NAMED,), True, 0.0),
    Case("Katib's default, RE2", text_line, (KATIB,), False, 0.0),
    Case("common formats", text_line, (), False, 0.0),
    Case("common, 1 line of 10", chatter, (), False, 0.0),
)


def write_log(path: Path, line: Callable[[int, float], str]) -> None:
    """As many lines as fit."""
    draw = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        step = 0
        while file.tell() < MEGABYTES * 1e6:
            file.writelines(
                f"{line(step + number, 2.0 / (1 + step / 1e4) + draw.random() / 10)}\n" for number in range(1000)
            )
            step += 1000


def follow(path: Path, case: Case) -> None:
    """In a process of its own: megabytes a second, those of the bare loop, and the peak of memory, to the output."""
    if case.without_re2:
        sys.modules["re2"] = None  # type: ignore[assignment]
    size = path.stat().st_size / 1e6
    training = FollowedTraining(port=0, address="127.0.0.1", linger_seconds=0)
    with training:
        seconds = min(seconds_to_follow(path, case, training) for _ in range(ROUNDS))
        bare = min(seconds_to_read(path) for _ in range(ROUNDS))
        peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1000
        print(json.dumps([size / seconds, size / bare, peak, training.steps]))


def seconds_to_follow(path: Path, case: Case, training: FollowedTraining) -> float:
    """CPU time from the first block to the last."""
    check = Checker()
    lines = LogLines(LineParser(case.patterns, may_use_signals=True), Tracker(training).take)
    source = FileLog(FollowedFile(path, check, whole=False), lines)
    started = time.process_time()
    while source.poll():
        pass
    return time.process_time() - started


def seconds_to_read(path: Path) -> float:
    """CPU time of a loop over the lines as text."""
    started = time.process_time()
    with path.open(encoding="utf-8") as file:
        for _ in file:
            pass
    return time.process_time() - started


def measured() -> Iterator[tuple[Case, float, float, float]]:
    """Each case in its process."""
    with tempfile.TemporaryDirectory(prefix="slopewise-bench-") as folder:
        for number, case in enumerate(CASES):
            path = Path(folder, f"{number}.log")
            write_log(path, case.line)
            command = [sys.executable, __file__, str(path), str(number)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            speed, bare, peak, steps = json.loads(done.stdout)
            if not steps:
                raise RuntimeError(f"{case.name}: no step was found")
            path.unlink()
            yield case, speed, bare, peak


def main() -> int:
    """Print each case; 1 when a gate is missed."""
    missed = False
    print(f"{'log':<22}{'MB/s a core':>12}{'bare loop':>12}{'ratio':>8}{'peak RSS':>12}  gate")
    for case, speed, bare, peak in measured():
        too_slow, too_large = speed < case.least, peak > MAX_RESIDENT_MEGABYTES
        missed = missed or too_slow or too_large
        gate = f"at least {case.least:g} MB/s: {'MISSED' if too_slow else 'kept'}" if case.least else ""
        large = f" over {MAX_RESIDENT_MEGABYTES:g} MB: MISSED" if too_large else ""
        print(f"{case.name:<22}{speed:>12.1f}{bare:>12.1f}{bare / speed:>7.1f}x{peak:>9.1f} MB  {gate}{large}")
    print(f"gate: at most {MAX_RESIDENT_MEGABYTES:g} MB resident, see each line")
    return int(missed)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        follow(Path(sys.argv[1]), CASES[int(sys.argv[2])])
        sys.exit(0)
    sys.exit(main())
