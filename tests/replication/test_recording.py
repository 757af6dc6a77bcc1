"""`make record` without the frameworks: its data, its files, and what it found of trainings that share a core."""

from __future__ import annotations

import csv
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from replication.recording import trainings
from replication.recording.__main__ import DIGITS, PAIRED, Cores, each, main
from replication.recording.catalogue import PAIRS, STEPS
from replication.recording.data import TAGS, WORDS, Sequences, digits, ramps, sentences, waves
from replication.recording.training import record, text_of
from slopewise.simulator.scenario.recorded_losses import recorded_loss, shipped


class Halving:
    """A training whose loss halves at every step."""

    samples_per_step = 8

    def __init__(self) -> None:
        self.loss = 8.0

    def step(self) -> float:
        self.loss /= 2
        return self.loss


def test_every_training_has_its_file_and_its_recording() -> None:
    found = {path.stem.replace("_", "-") for path in Path(trainings.__file__).parent.glob("[a-z]*.py")}
    assert found == set(STEPS)
    assert set(shipped()) == set(STEPS)


def test_a_scrape_after_each_kept_step_is_what_is_recorded(tmp_path: Path) -> None:
    points = record(Halving(), "halving", 4).points
    assert [(x, loss) for x, loss, _ in points] == [(0.25, 4.0), (0.5, 2.0), (0.75, 1.0), (1.0, 0.5)]
    assert [average for _, _, average in points] == sorted((each[2] for each in points), reverse=True)
    (tmp_path / "halving.csv").write_text(text_of({"model": "halving"}, points))
    curve = recorded_loss(str(tmp_path / "halving.csv"), "train")
    assert (curve.first, curve.best, curve.xs) == (4.0, 0.5, (0.25, 0.5, 0.75, 1.0))


class TestTheData:
    def test_digits_are_images_of_28_pixels_a_side(self) -> None:
        images, labels = digits(DIGITS)
        assert (images.shape, labels.shape) == ((1797, 28, 28), (1797,))
        assert (float(images.min()), float(images.max())) == (0.0, 1.0)
        assert not images[:, :2].any()

    def test_ramps_of_class_0_rise_until_they_end(self) -> None:
        inputs, labels = ramps(1, rows=100)
        for row in inputs[labels == 0][:, :, 0]:
            values = row[row > 0]
            assert len(values) >= 5
            assert (np.diff(values) > 0).all()

    def test_sentences_have_known_words_and_tags(self) -> None:
        words, tags = sentences(1, rows=100)
        assert words.shape == tags.shape == (100, 16)
        assert set(np.unique(words)) <= set(range(WORDS))
        assert set(np.unique(tags)) <= set(range(TAGS))

    @pytest.mark.parametrize("make", [waves, ramps, sentences])
    def test_the_same_seed_makes_the_same(self, make: Callable[[int], Sequences]) -> None:
        one, again, other = make(1), make(1), make(2)
        assert (one.inputs == again.inputs).all()
        assert (one.inputs != other.inputs).any()


def test_no_core_is_lent_twice_at_a_time() -> None:
    cores, lent = Cores(), threading.Lock()
    held: set[int] = set()
    twice: list[int] = []

    def use(_task: int) -> int:
        with cores.one() as core:
            with lent:
                twice.extend({core} & held)
                held.add(core)
            time.sleep(0.001)
            with lent:
                held.discard(core)
            return core

    assert set(each(use, range(50), len(cores) + 3)) <= os.sched_getaffinity(0)
    assert not twice


def test_an_unknown_training_is_answered_with_all_there_are() -> None:
    app = typer.Typer()
    app.command()(main)
    answer = CliRunner().invoke(app, ["--only", "resnet"])
    assert answer.exit_code == 2
    assert f"--only resnet: there is no such training; use one of {', '.join(STEPS)}." in " ".join(
        answer.output.split()
    )


def test_trainings_that_share_a_core_reported_the_same_losses_as_alone() -> None:
    with PAIRED.open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert {(row["training"], row["beside"]) for row in rows} == {pair[::step] for pair in PAIRS for step in (1, -1)}
    assert {row["same_losses"] for row in rows} == {"yes"}
    dearer = [float(row["cpu_seconds_per_step_beside"]) / float(row["cpu_seconds_per_step_alone"]) - 1 for row in rows]
    sentence = f"took {100 * min(dearer):.0f} to {100 * max(dearer):.0f} % more CPU"
    page = (Path(__file__).parents[2] / "replication/marginal_figures/tables.md").read_text(encoding="utf-8")
    assert sentence in " ".join(page.split())
