"""Real processes, killed at random moments: the last life's result is that of a training that nobody disturbed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.killing import Life, Victim, check_lives, random_kills
from support.pipes import piped
from support.training_fixtures import Scrape, StartTraining

from slopewise_exporter import Checkpoints

pytestmark = pytest.mark.processes

EVERY_STEPS = 8

PLAIN = """
import random, sys, time
from slopewise_exporter import Checkpoints, Reporter

STEPS = 400

class Learner:
    def __init__(self):
        self.random = random.Random(1)
        self.weights = [0.0] * 20_000
    def step(self):
        for _ in range(200):
            self.weights[self.random.randrange(20_000)] += self.random.random()
        time.sleep(0.002)
        return sum(self.weights)

with Reporter() as reporter, Checkpoints(sys.argv[1], reporter=reporter, every_steps=8) as checkpoints:
    learner = checkpoints.resume() or Learner()
    print("resumed", checkpoints.steps, flush=True)
    for step in range(checkpoints.steps, STEPS):
        loss = learner.step()
        reporter.step(loss=loss)
        print("step", step + 1, flush=True)
        checkpoints.step(lambda: learner)
print("result", sum(learner.weights), hash(tuple(learner.weights)), learner.random.random(), flush=True)
"""


def victim(folder: Path, script: str, checkpoints: str) -> Victim:
    path = folder / "training.py"
    path.write_text(script)
    # Hashes of text would differ from life to life, and a mistake in the test look like one of the checkpoints.
    return Victim(path, str(folder / checkpoints), environment={"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"})


def undisturbed(folder: Path, script: str) -> Life:
    life = victim(folder, script, "undisturbed").live()
    assert life.result is not None, life.output
    return life


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_plain_training_killed_dozens_of_times_ends_with_the_same_result(tmp_path: Path, seed: int) -> None:
    lives = victim(tmp_path, PLAIN, "disturbed").live_until_the_end(random_kills(24, most_steps=25, seed=seed))
    assert check_lives(lives, EVERY_STEPS) >= 10
    assert lives[-1].result == undisturbed(tmp_path, PLAIN).result


def test_a_second_sigterm_in_the_middle_of_a_save_does_no_harm(start_training: StartTraining, tmp_path: Path) -> None:
    training = start_training("""
import os, time
from slopewise_exporter import Checkpoints

def save(path, state):
    print("saving", flush=True)
    time.sleep(0.5)
    path.write_text(state)

with Checkpoints(os.environ["FOLDER"], save=save, every_seconds=None) as checkpoints:
    while True:
        print("step", checkpoints.steps + 1, flush=True)
        time.sleep(0.05)
        checkpoints.step(lambda: "x" * checkpoints.steps)
""", FOLDER=str(tmp_path / "folder"))  # fmt: skip
    lines = [piped(training.stdout).readline() for _ in range(3)]
    training.send_signal(signal.SIGTERM)
    while (line := piped(training.stdout).readline()) != "saving\n":
        lines.append(line)
    training.send_signal(signal.SIGTERM)
    assert training.wait(60) == 143
    with Checkpoints(tmp_path / "folder", load=Path.read_text) as checkpoints:
        assert checkpoints.resume() == "x" * len(lines)


def test_sigterm_ends_a_forked_child_however_soon_it_comes(tmp_path: Path) -> None:
    script = """
import os, signal, sys, time
from slopewise_exporter import Checkpoints

def ended_by(child):
    os.kill(child, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

with Checkpoints(sys.argv[1]) as checkpoints:
    checkpoints.step(lambda: None)
    codes = set()
    for _ in range(50):
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        codes.add(ended_by(child))
    print("result", *codes, checkpoints.stopping, flush=True)
"""
    life = victim(tmp_path, script, "folder").live()
    assert (life.result, life.exit_code) == (f"{-signal.SIGTERM} False", 0), life.output


def test_a_reporter_without_with_does_not_call_a_moved_training_finished_and_does_not_linger(
    start_training: StartTraining, scrape: Scrape, tmp_path: Path
) -> None:
    training = start_training("""
import os, sys
from slopewise_exporter import Checkpoints, Reporter
reporter = Reporter(linger_seconds=600)
checkpoints = Checkpoints(os.environ["FOLDER"], reporter=reporter)
checkpoints.resume()
print(reporter.port, flush=True)
while True:
    sys.stdin.readline()
    reporter.step(loss=1.0)
    checkpoints.step(lambda: None)
""", FOLDER=str(tmp_path / "checkpoints"))  # fmt: skip
    port = int(piped(training.stdout).readline())
    piped(training.stdin).write("\n")
    piped(training.stdin).flush()
    while scrape(port)["training_steps_total"] < 1:
        pass
    training.send_signal(signal.SIGTERM)
    piped(training.stdin).write("\n")
    piped(training.stdin).flush()
    assert training.wait(60) == 143
