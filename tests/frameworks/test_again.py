"""Trainings that go on after something that was not theirs: one that failed, a torn save, another's checkpoint."""

from __future__ import annotations

import pytest

from slopewise_exporter.checkpoint_files import CheckpointFolder


def said(training, word: str) -> list[str]:
    """What a training has printed after this word, once."""
    (line,) = [line for line in training.stdout.splitlines() if line.startswith(f"{word} ")]
    return line.split()[1:]


@pytest.mark.parametrize("resume", ["by_path", "by_itself"])
def test_transformers_keeps_its_last_whole_checkpoint_through_two_kills_in_a_save(tmp_path, run_training, resume):
    run_training("transformers_torn", tmp_path, "by_path", "in_save")
    second = run_training("transformers_torn", tmp_path, resume, "after_rotation")
    third = run_training("transformers_torn", tmp_path, "by_path", "none")
    assert (said(second, "resumed"), said(third, "resumed")) == (["4"], ["4"]), second.stderr + third.stderr
    assert third.returncode == 0, third.stderr


def test_transformers_trains_again_after_a_training_that_failed(tmp_path, run_training):
    training = run_training("transformers_again", tmp_path)
    assert said(training, "handler") == ["SIG_DFL"], training.stderr
    assert (training.returncode, said(training, "planned")) == (143, ["7"]), training.stderr
    assert said(training, "newest") == [str(tmp_path / "checkpoint-2")]


def test_lightning_trains_again_after_a_training_that_failed_and_from_the_checkpoint_of_somebody_else(
    tmp_path, run_training
):
    training = run_training("lightning_again", tmp_path)
    assert said(training, "failed") == ["SIG_DFL", "2", "9", "None"], training.stderr
    assert said(training, "foreign") == ["SIG_DFL", "25", "25", "25"], training.stderr
    assert training.returncode == 143, training.stderr
    assert said(training, "again")[2:] == ["7", "2"]


def test_keras_trains_again_after_a_training_that_failed(tmp_path, run_training):
    training = run_training("keras_again", tmp_path)
    assert said(training, "failed") == ["SIG_DFL", "3", "3"], training.stderr
    assert said(training, "ended") == ["SIG_DFL", "11", "11"], training.stderr
    assert training.returncode == 143, training.stderr
    assert CheckpointFolder(tmp_path, ".weights.h5", keep=2).newest(lambda *_: None).progress.steps == 13


def test_no_rank_of_lightning_waits_for_one_that_could_not_save(tmp_path, start_ranks):
    ranks = start_ranks("lightning_ranks", tmp_path)
    outputs = [rank.communicate(timeout=600)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    assert [output.splitlines()[-1] for output in outputs] == ["done 5", "done 5"]
    assert CheckpointFolder(tmp_path, ".ckpt", keep=2).newest(lambda *_: None).progress.steps == 5
