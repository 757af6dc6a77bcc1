"""When a save by the Transformers `Trainer` begins: after the evaluation of its step, not before it.

The framework is not installed here (tests/frameworks runs it): the callback is called as the trainer calls it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from slopewise_exporter import CheckpointError
from slopewise_exporter.checkpoint_files import Progress

OURS = ("slopewise_exporter.pytorch", "slopewise_exporter.transformers")


class Listener:
    """A reporter that notes what it is told, in order."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.saves_on_sigterm: bool | None = None

    def step(self, loss: object = None) -> None:
        self.told.append("step")

    def epoch(self) -> None:
        self.told.append("epoch")

    def evaluate(self, value: float) -> None:
        self.told.append("evaluated")

    @contextmanager
    def checkpoint(self) -> Iterator[None]:
        self.told.append("saving")
        try:
            yield
            self.told.append("saved")
        except Exception:
            self.told.append("not saved")
            raise

    def progress(self, steps: int) -> Progress:
        return Progress(steps)


class Training:
    """The calls of a trainer around one save, and what the manifest then says."""

    def __init__(self, folder: Path, make_callback: Callable[..., Any]) -> None:
        self._folder = folder
        self._listener = Listener()
        self.callback = make_callback(folder, every_seconds=None, reporter=self._listener)
        self._state = SimpleNamespace(global_step=8, is_world_process_zero=True)
        self._control = SimpleNamespace(should_save=False, should_evaluate=False, should_training_stop=False)
        self._arguments = SimpleNamespace(output_dir=str(folder))

    @property
    def saves(self) -> list[str]:
        """What the reporter was told, but for steps and epochs."""
        return [told for told in self._listener.told if told not in ("step", "epoch")]

    def tell(self, event: str, metrics: dict[str, float] | None = None, **control: bool) -> None:
        self._control.__dict__.update(control)
        getattr(self.callback, event)(self._arguments, self._state, self._control, metrics=metrics)

    def evaluate(self) -> None:
        self.tell("on_evaluate", {"eval_loss": 0.5}, should_evaluate=False)

    def save(self) -> float | None:
        checkpoint = self._folder / "checkpoint-8"
        checkpoint.mkdir()
        (checkpoint / "model").write_text("weights")
        self.tell("on_save", should_save=False)
        duration: float | None = json.loads((checkpoint / "slopewise.json").read_text())["progress"]["duration_seconds"]
        return duration


@pytest.fixture
def make_callback(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    frameworks = {"torch": ModuleType("torch"), "transformers": ModuleType("transformers")}
    frameworks["torch"].__dict__["distributed"] = SimpleNamespace(is_available=lambda: False)
    frameworks["transformers"].__dict__["TrainerCallback"] = object
    for name, module in frameworks.items():
        monkeypatch.setitem(sys.modules, name, module)
    from slopewise_exporter.transformers import SlopewiseCallback

    made: list[Any] = []

    def make(*arguments: Any, **named: Any) -> Any:
        made.append(SlopewiseCallback(*arguments, **named))
        return made[-1]

    yield make
    for callback in made:
        callback.on_train_end(None, None, None)
    for name in OURS:
        del sys.modules[name]  # they hold on to what stood in for the frameworks


@pytest.fixture
def training(tmp_path: Path, make_callback: Callable[..., Any]) -> Training:
    return Training(tmp_path, make_callback)


@pytest.mark.parametrize("event", ["on_step_end", "on_epoch_end"])
def test_a_save_begins_where_a_step_or_an_epoch_ends(training, event):
    training.tell(event, should_save=True)
    assert training.saves == ["saving"]
    assert training.save() is not None
    assert training.saves == ["saving", "saved"]


@pytest.mark.parametrize("event", ["on_step_end", "on_epoch_end"])
def test_an_evaluation_before_a_save_is_no_part_of_it(training, event):
    training.tell(event, should_save=True, should_evaluate=True)
    training.evaluate()
    assert training.save() is not None
    assert training.saves == ["evaluated", "saving", "saved"]


def test_an_evaluation_of_two_data_sets_is_no_part_of_the_one_save_after_it(training):
    training.tell("on_step_end", should_save=True, should_evaluate=True)
    training.evaluate()
    training.evaluate()
    training.save()
    assert training.saves == ["evaluated", "saving", "evaluated", "not saved", "saving", "saved"]


def test_an_evaluation_without_a_save_begins_none(training):
    training.tell("on_step_end", should_evaluate=True)
    training.evaluate()
    assert training.saves == ["evaluated"]


def test_a_save_that_nobody_saw_begin_has_no_duration(training):
    assert training.save() is None


def test_a_checkpoint_that_cannot_be_read_is_an_error_where_no_other_is_whole(training, tmp_path):
    (tmp_path / "checkpoint-8" / "slopewise.json").mkdir(parents=True)
    with pytest.raises(CheckpointError, match="cannot be read"):
        _ = training.callback.resume_path


def test_folders_of_a_trainer_without_this_callback_are_passed_over(training, tmp_path, caplog):
    (tmp_path / "checkpoint-8").mkdir()
    assert training.callback.resume_path is None
    assert "it has no manifest" in caplog.text
