"""Saves by the Transformers `Trainer`: when one begins, what a kill in the middle of one leaves, and a second training.

The framework is not installed here (tests/frameworks runs it): the callback is called as the trainer calls it.
"""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slopewise_exporter import CheckpointError
from slopewise_exporter.checkpoint_files import Progress


class Base:
    """What the callback overrides."""

    def on_init_end(self, *_: object, **__: object) -> None:
        pass


class Listener:
    """A reporter that notes what it is told, in order."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.saves_on_sigterm: bool | None = None
        self.planned_steps: int | None = None
        self.resumed: list[int] = []

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

    def resume(self, progress: Progress) -> None:
        self.resumed.append(progress.steps)

    def leave(self) -> None:
        self.told.append("left")


class Training:
    """The calls of a trainer that keeps two checkpoints around its saves, and what a manifest then says."""

    def __init__(self, folder: Path, make_callback: Callable[..., Any]) -> None:
        self._folder = folder
        self.listener = Listener()
        self.callback = make_callback(folder, every_seconds=None, reporter=self.listener)
        self.state = SimpleNamespace(global_step=8, max_steps=100, is_world_process_zero=True)
        self._control = SimpleNamespace(should_save=False, should_evaluate=False, should_training_stop=False)
        self._arguments = SimpleNamespace(output_dir=str(folder))

    @property
    def saves(self) -> list[str]:
        """What the reporter was told, but for steps and epochs."""
        return [told for told in self.listener.told if told not in ("step", "epoch")]

    def tell(self, event: str, metrics: dict[str, float] | None = None, **control: bool) -> None:
        self._control.__dict__.update(control)
        getattr(self.callback, event)(self._arguments, self.state, self._control, metrics=metrics)

    def evaluate(self) -> None:
        self.tell("on_evaluate", {"eval_loss": 0.5}, should_evaluate=False)

    def begin(self, loaded_steps: int = 0) -> None:
        self.state.global_step = 0
        self.tell("on_init_end")
        self.state.global_step = loaded_steps
        self.tell("on_train_begin")

    def step_to(self, step: int, **control: bool) -> None:
        self.state.global_step = step
        self.tell("on_step_end", **control)

    def write(self, contents: str = "weights") -> Path:
        checkpoint = self._folder / f"checkpoint-{self.state.global_step}"
        checkpoint.mkdir(exist_ok=True)
        (checkpoint / "model").write_text(contents)
        return checkpoint

    def rotate(self) -> None:
        counted = [path for path in self._folder.glob("checkpoint-*") if path.is_dir()]
        for checkpoint in sorted(counted, key=lambda path: int(path.name.partition("-")[2]))[:-2]:
            shutil.rmtree(checkpoint)

    def save(self) -> float | None:
        checkpoint = self.write()
        self.rotate()
        self.tell("on_save", should_save=False)
        duration: float | None = json.loads((checkpoint / "slopewise.json").read_text())["progress"]["duration_seconds"]
        return duration

    @property
    def resumes_at(self) -> str | None:
        """The checkpoint from which the next life would go on."""
        path = self.callback.resume_path
        return None if path is None else Path(path).name


@pytest.fixture
def make_callback(stand_in: Callable[..., None]) -> Iterator[Callable[..., Any]]:
    distributed = SimpleNamespace(is_available=lambda: False)
    stand_in("transformers", torch={"distributed": distributed}, transformers={"TrainerCallback": Base})
    from slopewise_exporter.transformers import SlopewiseCallback

    made: list[Any] = []

    def make(*arguments: Any, **named: Any) -> Any:
        made.append(SlopewiseCallback(*arguments, **named))
        return made[-1]

    yield make
    for callback in made:
        callback.on_train_end(None, None, None)


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


@pytest.fixture
def next_life(tmp_path: Path, make_callback: Callable[..., Any]) -> Callable[[], Training]:
    """Another process on the same folder."""
    return lambda: Training(tmp_path, make_callback)


def cut_short(training: Training, step: int) -> None:
    """One checkpoint that is whole, of step 8, and a save that a kill ends in the middle."""
    training.begin()
    training.step_to(8, should_save=True)
    training.save()
    training.step_to(step, should_save=True)
    training.write("wei")


def test_a_save_that_was_cut_short_does_not_make_the_trainer_remove_the_last_one_that_is_whole(training, next_life):
    cut_short(training, 13)
    second = next_life()
    second.begin(loaded_steps=8)
    second.step_to(11, should_save=True)
    second.write()
    second.rotate()
    # Killed here, after the trainer has removed what it does not keep, and before the new one is marked as whole.
    assert next_life().resumes_at == "checkpoint-8"


def test_a_trainer_that_takes_the_newest_by_itself_finds_no_torn_one(training, next_life, tmp_path, caplog):
    cut_short(training, 13)
    next_life().tell("on_init_end")
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-8"]
    assert (tmp_path / "_torn-checkpoint-13" / "model").read_text() == "wei"
    assert "a save was cut short in a former life" in caplog.text


def test_what_was_torn_is_removed_once_another_one_is_whole(training, next_life, tmp_path):
    cut_short(training, 13)
    second = next_life()
    second.begin(loaded_steps=8)
    second.step_to(11, should_save=True)
    second.save()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-11", "checkpoint-8"]


def test_only_what_the_last_life_has_torn_is_kept(training, next_life, tmp_path):
    cut_short(training, 13)
    second = next_life()
    second.begin(loaded_steps=8)
    second.step_to(15, should_save=True)
    second.write("wei")
    next_life().begin(loaded_steps=8)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["_torn-checkpoint-15", "checkpoint-8"]


def test_a_checkpoint_that_was_torn_while_it_was_overwritten_is_set_aside_although_it_has_a_manifest(
    training, next_life, tmp_path
):
    cut_short(training, 8)
    next_life().begin()
    assert [path.name for path in tmp_path.iterdir()] == ["_torn-checkpoint-8"]


def test_a_whole_checkpoint_stays_where_only_the_end_of_its_save_was_not_noted(training, next_life, tmp_path):
    cut_short(training, 13)
    (tmp_path / "checkpoint-8.saving").touch()
    second = next_life()
    second.begin(loaded_steps=8)
    assert second.resumes_at == "checkpoint-8"


def test_a_torn_checkpoint_that_somebody_has_loaded_all_the_same_stays(training, next_life, tmp_path):
    cut_short(training, 13)
    later = next_life()
    later.state.global_step = 13
    later.tell("on_train_begin")  # of a callback that was added to a trainer that there was: no `on_init_end`
    assert (tmp_path / "checkpoint-13").exists()


def test_other_ranks_leave_what_is_torn_to_the_first_one(training, next_life, tmp_path):
    cut_short(training, 13)
    second = next_life()
    second.state.is_world_process_zero = False
    second.begin(loaded_steps=8)
    assert (tmp_path / "checkpoint-13").exists()


def test_a_second_training_hears_sigterm_again_and_saves(training):
    training.begin()
    training.step_to(8)
    training.tell("on_train_end")
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    training.begin()
    training.step_to(1)
    signal.raise_signal(signal.SIGTERM)
    training.step_to(2)
    with pytest.raises(SystemExit) as left:
        training.save()
    assert (left.value.code, training.resumes_at) == (143, "checkpoint-2")


def test_what_a_training_that_raised_has_left_is_not_counted_in_the_second_one(training):
    training.begin()
    training.step_to(8, should_save=True)  # and the save raises
    training.listener.told.clear()
    training.begin()
    training.step_to(1, should_save=False)
    assert training.listener.told == ["not saved"]
    training.tell("on_train_end")
    assert training.listener.told == ["not saved", "step"]


def test_after_a_training_that_raised_sigterm_is_given_back(training):
    def life() -> None:
        with training.callback:
            training.begin()
            training.step_to(1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        life()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_the_steps_of_a_checkpoint_of_somebody_else_are_counted_all_the_same(training):
    training.begin(loaded_steps=500)
    assert training.listener.resumed == [500]


def test_the_trainer_plans_each_training_unless_somebody_has_planned(training, make_callback, tmp_path):
    training.begin()
    training.state.max_steps = 300
    training.begin()
    assert training.listener.planned_steps == 300
    planned = Listener()
    planned.planned_steps = 77
    callback = make_callback(tmp_path, reporter=planned)
    callback.on_train_begin(None, training.state, None)
    assert planned.planned_steps == 77
