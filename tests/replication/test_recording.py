"""`make record` without the frameworks: its data, its files, and what it found of trainings that share a core."""

from __future__ import annotations

import csv
from pathlib import Path

from replication.recording import trainings
from replication.recording.__main__ import PAIRED
from replication.recording.catalogue import PAIRS, STEPS
from replication.recording.training import record, text_of
from slopewise.simulator.scenario.curve_settings import recorded_loss, shipped


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


def test_trainings_that_share_a_core_reported_the_same_losses_as_alone() -> None:
    with PAIRED.open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert {(row["training"], row["beside"]) for row in rows} == {pair[::step] for pair in PAIRS for step in (1, -1)}
    assert {row["same_losses"] for row in rows} == {"yes"}
    dearer = [float(row["cpu_seconds_per_step_beside"]) / float(row["cpu_seconds_per_step_alone"]) - 1 for row in rows]
    sentence = f"took {100 * min(dearer):.0f} to {100 * max(dearer):.0f} % more CPU"
    page = (Path(__file__).parents[2] / "replication/marginal_figures/tables.md").read_text(encoding="utf-8")
    assert sentence in " ".join(page.split())
