"""Trainings in real frameworks, killed at random moments: the last life's result is that of one undisturbed."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest
from support.killing import Victim, check_lives, random_kills

from slopewise_exporter.checkpoint_files import CheckpointFolder

TRAININGS = Path(__file__).parent / "trainings"
EVERY_STEPS = 8


@pytest.mark.parametrize("name", ["plain_pytorch", "with_lightning", "with_transformers", "with_keras"])
def test_a_training_killed_at_random_moments_ends_with_the_same_result(tmp_path, python, environment, name):
    def victim(folder: str) -> Victim:
        return Victim(TRAININGS / f"{name}.py", str(tmp_path / folder), python=python, environment=environment)

    undisturbed = victim("undisturbed").live()
    assert undisturbed.result is not None, undisturbed.output
    lives = victim("disturbed").live_until_the_end(random_kills(6, most_steps=25, seed=4))
    assert check_lives(lives, EVERY_STEPS) >= 3, lives
    assert lives[-1].result == undisturbed.result


def test_lightning_that_is_told_while_it_still_loads_does_not_end_as_if_it_were_complete(tmp_path, python, environment):
    script, folder = TRAININGS / "with_lightning.py", str(tmp_path / "checkpoints")
    life = Victim(script, folder, "told while it loads", python=python, environment=environment).live()
    assert (life.exit_code, life.steps) == (143, None), life.output


@pytest.mark.parametrize("told", [0, 1])
def test_all_ranks_stop_at_one_step_when_only_one_of_them_is_told_to(tmp_path, start_ranks, told):
    ranks = start_ranks("distributed_pytorch", tmp_path / "checkpoints", 100_000)
    begun = [ranks[told].stdout.readline().rstrip("\n") for _ in range(20)]
    assert all(begun)
    ranks[told].send_signal(signal.SIGTERM)
    outputs = read_to_the_end(ranks)
    outputs[told] = begun + outputs[told]  # that of this step may be the last: it was just saving
    assert [rank.returncode for rank in ranks] == [143, 143], outputs
    last = {output[-1] for output in outputs}
    assert len(last) == 1, last
    found = CheckpointFolder(tmp_path / "checkpoints", ".pt", keep=2).newest(lambda *_: None)
    assert f"step {found.progress.steps}" in last
    again = start_ranks("distributed_pytorch", tmp_path / "checkpoints", found.progress.steps + 3)
    outputs = read_to_the_end(again)
    assert [rank.returncode for rank in again] == [0, 0], outputs
    assert [output[0] for output in outputs] == [f"resumed {found.progress.steps}"] * 2
    assert outputs[0][-1] == outputs[1][-1]


def read_to_the_end(ranks: list[subprocess.Popen[str]]) -> list[list[str]]:
    """What is left of each rank's output, by lines; all have ended."""
    outputs = [rank.stdout.read().splitlines() for rank in ranks]
    for rank in ranks:
        rank.communicate(timeout=60)
    return outputs
