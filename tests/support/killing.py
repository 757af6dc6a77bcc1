"""Trainings that are killed at random moments until one life reaches the end."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from itertools import cycle, islice, pairwise
from pathlib import Path

GIVEN_UP_AFTER_SECONDS = 120.0

REPORTING = {
    "SLOPEWISE_EXPORTER_PORT": "0",
    "SLOPEWISE_EXPORTER_ADDRESS": "127.0.0.1",
    "SLOPEWISE_EXPORTER_LINGER_SECONDS": "0",
}


@dataclass(frozen=True)
class Kill:
    """How a life is ended: so many seconds after so many of its steps, or after its start."""

    signal: signal.Signals
    after_steps: int
    then_seconds: float


@dataclass(frozen=True)
class Life:
    """One process of a training: what it said, and how it ended."""

    resumed_at: int | None
    """Steps that its checkpoint had; None: it was ended before it knew."""
    steps: int | None
    """Steps that were done when it ended."""
    result: str | None
    """What it has trained, once it reached the end."""
    exit_code: int
    output: str


class Victim:
    """Starts one script again and again; it prints `resumed N`, then `step N` at each step, then `result TEXT`."""

    def __init__(
        self, script: Path, *arguments: str, python: str = sys.executable, environment: dict[str, str] | None = None
    ) -> None:
        self._command = [python, str(script), *arguments]
        self._environment = {**os.environ, **REPORTING, **(environment or {})}

    def live(self, kill: Kill | None = None) -> Life:
        """One life, to its own end or to that of `kill`."""
        process = subprocess.Popen(
            self._command, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        give_up = threading.Timer(GIVEN_UP_AFTER_SECONDS, process.kill)
        give_up.start()
        try:
            lines = _read(process, kill)
            return _life(lines, process.wait(GIVEN_UP_AFTER_SECONDS))
        finally:
            give_up.cancel()
            process.kill()
            process.communicate()

    def live_until_the_end(self, kills: list[Kill]) -> list[Life]:
        """One life for each kill, and one that is let be; a life that reaches its end before is the last."""
        lives: list[Life] = []
        for kill in [*kills, None]:
            lives.append(self.live(kill))
            if lives[-1].result is not None and lives[-1].exit_code == 0:
                break  # else it was killed after its last line: the next one has nothing left to do
        return lives


def random_kills(number: int, most_steps: int, seed: int) -> list[Kill]:
    """SIGTERM and SIGKILL in turn, most in the middle of the work, every fifth while the process starts."""
    moments = random.Random(seed)
    return [
        Kill(killer, 0, moments.uniform(0.0, 0.5))
        if number % 5 == 4
        else Kill(killer, moments.randint(1, most_steps), moments.uniform(0.0, 0.01))
        for number, killer in enumerate(islice(cycle((signal.SIGTERM, signal.SIGKILL)), number))
    ]


def _read(process: subprocess.Popen[str], kill: Kill | None) -> list[str]:
    """All lines up to the end, which `kill` brings about on the way."""
    assert process.stdout is not None
    lines: list[str] = []
    steps = 0
    if kill is not None and kill.after_steps == 0:
        _kill(process, kill)
    for line in process.stdout:
        lines.append(line)
        steps += line.startswith("step ")
        if kill is not None and steps == kill.after_steps and line.startswith("step "):
            _kill(process, kill)
    return lines


def _kill(process: subprocess.Popen[str], kill: Kill) -> None:
    time.sleep(kill.then_seconds)
    process.send_signal(kill.signal)


def _life(lines: list[str], exit_code: int) -> Life:
    resumed_at = steps = result = None
    for line in lines:
        word, _, rest = line.rstrip("\n").partition(" ")
        if not line.endswith("\n"):
            continue  # killed in the middle of it
        if word == "resumed":
            resumed_at = steps = int(rest)
        elif word == "step":
            steps = int(rest)
        elif word == "result":
            result = rest
    return Life(resumed_at, steps, result, exit_code, "".join(lines))


def check_lives(lives: list[Life], every_steps: int) -> int:
    """That no life ended with 0 or crashed, and none lost more than it may; how many were killed at work.

    After SIGTERM the next life begins at the very step at which the last one ended. After SIGKILL it begins at most
    `every_steps` before, and one more: a step's line is printed before its checkpoint is written.
    """
    killed_at_work = 0
    for life, following in pairwise(lives):
        assert life.exit_code in (143, -signal.SIGTERM, -signal.SIGKILL), life
        assert "Traceback" not in life.output, life.output
        if life.steps is None or life.resumed_at is None or following.resumed_at is None:
            continue
        killed_at_work += life.steps > life.resumed_at
        most_lost = 0 if life.exit_code == 143 else every_steps + 1
        assert 0 <= life.steps - following.resumed_at <= most_lost, (life, following)
    assert lives[-1].exit_code == 0, lives[-1]
    return killed_at_work
