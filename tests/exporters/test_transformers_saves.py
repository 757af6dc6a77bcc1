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
from support.training_fixtures import StandIn

from slopewise_exporter import CheckpointError
from slopewise_exporter.record import Progress


class Base:
    """What the callback overrides."""

    def on_init_end(self, *_: object, **__: object) -> None:
        pass


class Listener:
    """A reporter that notes what it is told, in order."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.saves_on_sigterm: bool | None = None
        self.planned_steps: float | None = None
        self.steps = 0
        self.resumed: list[int] = []

    def plan(self, steps: float | None, *, upper_bound: bool = False) -> None:
        self.planned_steps = steps

    def step(self, loss: object = None, steps: int = 1) -> None:
        self.told.append("step")

    def epoch(self) -> None:
        self.told.append("epoch")

    def evaluate(self, value: float, *, within_step: bool = False) -> None:
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
        self.steps = progress.steps

    def leave(self) -> None:
        self.told.append("left")


class Training:
    """The calls of a trainer that keeps two checkpoints around its saves, and what a manifest then says."""

    def __init__(self, folder: Path, make_callback: Callable[..., Any]) -> None:
        self._folder = folder
        self._make_callback = make_callback
        self.listener = Listener()
        self.callback = make_callback(folder, every_seconds=None, reporter=self.listener)
        self.state = SimpleNamespace(global_step=8, max_steps=100, is_world_process_zero=True, epoch=None)
        self._control = SimpleNamespace(should_save=False, should_evaluate=False, should_training_stop=False)
        self._arguments = SimpleNamespace(output_dir=str(folder))

    def next_life(self) -> Training:
        """Another process on the same folder."""
        return Training(self._folder, self._make_callback)

    @property
    def there(self) -> list[str]:
        """What is in the folder."""
        return sorted(path.name for path in self._folder.iterdir())

    @property
    def saves(self) -> list[str]:
        """What the reporter was told, but for steps and epochs."""
        return [told for told in self.listener.told if told not in ("step", "epoch")]

    def tell(self, event: str, metrics: dict[str, float] | None = None, **control: Any) -> None:
        self._control.__dict__.update(control)
        getattr(self.callback, event)(self._arguments, self.state, self._control, metrics=metrics)

    def evaluate(self) -> None:
        self.tell("on_evaluate", {"eval_loss": 0.5}, should_evaluate=False)

    def begin(self, loaded_steps: int = 0) -> None:
        self.state.global_step = 0
        self.tell("on_init_end")
        self.state.global_step = loaded_steps
        self.tell("on_train_begin")

    def step_to(self, step: int, **control: Any) -> None:
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


class Group:
    """Of `torch`, the ranks that train together; none, unless a test says so. The others agree with this one."""

    ReduceOp = SimpleNamespace(MAX="max")

    def __init__(self) -> None:
        self.together = False
        self.meetings: list[list[str]] = []
        """For each time that the ranks waited for each other, what was in `folder` when they had."""
        self.folder: Path | None = None

    def is_available(self) -> bool:
        return self.together

    def is_initialized(self) -> bool:
        return self.together

    def get_backend(self) -> str:
        return "gloo"

    def all_reduce(self, _answer: Any, op: str) -> None:
        assert op == self.ReduceOp.MAX
        assert self.folder is not None
        self.meetings.append(sorted(path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*")))


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def make_callback(stand_in: StandIn, group: Group) -> Iterator[Callable[..., Any]]:
    def tensor(value: int, device: str) -> SimpleNamespace:
        return SimpleNamespace(item=lambda: value, device=device)

    torch = {"distributed": group, "tensor": tensor}
    stand_in("transformers", torch=torch, transformers={"TrainerCallback": Base})
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
def test_a_save_begins_where_a_step_or_an_epoch_ends(training: Training, event: str) -> None:
    training.tell(event, should_save=True)
    assert training.saves == ["saving"]
    assert training.save() is not None
    assert training.saves == ["saving", "saved"]


@pytest.mark.parametrize("event", ["on_step_end", "on_epoch_end"])
def test_an_evaluation_before_a_save_is_no_part_of_it(training: Training, event: str) -> None:
    training.begin()
    training.tell(event, should_save=True, should_evaluate=True)
    training.evaluate()
    assert training.save() is not None
    assert training.saves == ["evaluated", "saving", "saved"]


def test_an_evaluation_of_two_data_sets_is_no_part_of_the_one_save_after_it(training: Training) -> None:
    training.begin()
    training.tell("on_step_end", should_save=True, should_evaluate=True)
    training.evaluate()
    training.evaluate()
    training.save()
    assert training.saves == ["evaluated", "saving", "evaluated", "not saved", "saving", "saved"]


def test_an_evaluation_without_a_save_begins_none(training: Training) -> None:
    training.begin()
    training.tell("on_step_end", should_evaluate=True)
    training.evaluate()
    assert training.saves == ["evaluated"]


def test_a_save_that_nobody_saw_begin_has_no_duration(training: Training) -> None:
    assert training.save() is None


def test_a_checkpoint_that_cannot_be_read_is_an_error_where_no_other_is_whole(
    training: Training, tmp_path: Path
) -> None:
    (tmp_path / "checkpoint-8" / "slopewise.json").mkdir(parents=True)
    with pytest.raises(CheckpointError, match="cannot be read"):
        _ = training.callback.resume_path


def test_folders_of_a_trainer_without_this_callback_are_passed_over(
    training: Training, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "checkpoint-8").mkdir()
    assert training.callback.resume_path is None
    assert "it has no manifest" in caplog.text


def cut_short(training: Training, step: int) -> None:
    """One checkpoint that is whole, of step 8, and a save that a kill ends in the middle."""
    training.begin()
    training.step_to(8, should_save=True)
    training.save()
    training.step_to(step, should_save=True)
    training.write("wei")


def saved_again(training: Training) -> Training:
    """The life after one that was cut short at step 13, which has saved step 11."""
    cut_short(training, 13)
    second = training.next_life()
    second.begin(loaded_steps=8)
    second.step_to(11, should_save=True)
    second.save()
    return second


def test_a_save_that_was_cut_short_does_not_make_the_trainer_remove_the_last_one_that_is_whole(
    training: Training,
) -> None:
    cut_short(training, 13)
    second = training.next_life()
    second.begin(loaded_steps=8)
    second.step_to(11, should_save=True)
    second.write()
    second.rotate()
    # Killed here, after the trainer has removed what it does not keep, and before the new one is marked as whole.
    assert training.next_life().resumes_at == "checkpoint-8"


def test_a_trainer_that_takes_the_newest_by_itself_finds_no_torn_one(
    training: Training, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cut_short(training, 13)
    training.next_life().tell("on_init_end")
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-8"]
    assert (tmp_path / "_torn-checkpoint-13" / "model").read_text() == "wei"
    assert "a save was cut short in a former life" in caplog.text


def test_only_what_the_last_life_has_torn_is_kept(training: Training) -> None:
    cut_short(training, 13)
    second = training.next_life()
    second.begin(loaded_steps=8)
    second.step_to(15, should_save=True)
    second.write("wei")
    training.next_life().begin(loaded_steps=8)
    assert training.there == ["_torn-checkpoint-15", "checkpoint-8"]


def test_a_checkpoint_that_was_torn_while_it_was_overwritten_is_set_aside_although_it_has_a_manifest(
    training: Training,
) -> None:
    second = saved_again(training)
    second.step_to(11, should_save=True)
    second.write("wei")
    third = training.next_life()
    third.begin()
    assert training.there == ["_torn-checkpoint-11", "checkpoint-8"]
    assert third.resumes_at == "checkpoint-8"


def test_a_whole_checkpoint_stays_where_only_the_end_of_its_save_was_not_noted(
    training: Training, tmp_path: Path
) -> None:
    cut_short(training, 13)
    (tmp_path / "checkpoint-8.saving").touch()
    second = training.next_life()
    second.begin(loaded_steps=8)
    assert second.resumes_at == "checkpoint-8"


def test_a_torn_checkpoint_that_somebody_has_loaded_all_the_same_stays(training: Training, tmp_path: Path) -> None:
    cut_short(training, 13)
    later = training.next_life()
    later.state.global_step = 13
    later.tell("on_train_begin")  # of a callback that was added to a trainer that there was: no `on_init_end`
    assert (tmp_path / "checkpoint-13").exists()


def test_what_is_torn_is_set_aside_before_the_first_one_is_whole_and_goes_with_it(training: Training) -> None:
    training.begin()
    training.step_to(13, should_save=True)
    training.write("wei")
    second = training.next_life()
    second.begin()
    assert training.there == ["_torn-checkpoint-13"]
    second.step_to(8, should_save=True)
    second.save()
    assert training.there == ["checkpoint-8"]


def test_a_checkpoint_that_is_torn_twice_is_set_aside_twice(training: Training, tmp_path: Path) -> None:
    cut_short(training, 13)
    second = training.next_life()
    second.begin(loaded_steps=8)
    second.step_to(13, should_save=True)
    second.write("we")
    training.next_life().begin(loaded_steps=8)
    assert (tmp_path / "_torn-checkpoint-13" / "model").read_text() == "we"


def seal_fails(training: Training, step: int) -> Path:
    """A save that the trainer completes, of which our manifest cannot be written; where the checkpoint is."""
    training.step_to(step, should_save=True)
    checkpoint = training.write()
    (checkpoint / "slopewise.json" / "in the way").mkdir(parents=True)
    training.tell("on_save", should_save=False)
    return checkpoint


def test_what_the_trainer_has_saved_to_the_end_is_not_taken_for_torn_where_it_could_not_be_sealed(
    training: Training,
) -> None:
    training.begin()
    training.step_to(8, should_save=True)
    training.save()
    checkpoint = seal_fails(training, 13)
    assert training.listener.saves_on_sigterm is False
    second = training.next_life()
    second.begin(loaded_steps=8)
    second.step_to(11, should_save=True)
    second.save()
    assert (checkpoint / "model").read_text() == "weights"
    assert training.there == ["checkpoint-11", "checkpoint-13"]


def test_what_was_set_aside_stays_where_the_process_is_about_to_end(training: Training, tmp_path: Path) -> None:
    cut_short(training, 13)
    second = training.next_life()
    second.begin(loaded_steps=8)
    second.step_to(10)
    signal.raise_signal(signal.SIGTERM)
    second.step_to(11)
    with pytest.raises(SystemExit):
        second.save()
    assert (tmp_path / "_torn-checkpoint-13").exists()
    assert second.resumes_at == "checkpoint-11"


def test_sigterm_in_a_save_of_what_is_saved_already_waits_for_its_end(training: Training) -> None:
    training.begin()
    training.step_to(8, should_save=True)
    training.save()
    training.tell("on_epoch_end", should_save=True)
    signal.raise_signal(signal.SIGTERM)
    training.save()
    assert training.resumes_at == "checkpoint-8"
    assert training.saves == ["saving", "saved", "saving", "saved"]


def test_every_rank_waits_until_what_is_torn_has_another_name(training: Training, group: Group, tmp_path: Path) -> None:
    cut_short(training, 13)
    group.together, group.folder = True, tmp_path
    training.next_life().tell("on_init_end")
    other = training.next_life()
    other.state.is_world_process_zero = False
    other.tell("on_init_end")
    assert ["checkpoint-13" in there for there in group.meetings] == [False, False]


def test_a_rank_that_cannot_set_aside_keeps_the_others_waiting_no_longer(
    training: Training,
    group: Group,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cut_short(training, 13)
    (tmp_path / "_torn-checkpoint-13").write_text("in the way")
    group.together, group.folder = True, tmp_path
    training.next_life().tell("on_init_end")
    assert len(group.meetings) == 1
    assert "cannot be set aside" in caplog.text


def test_a_checkpoint_is_only_sealed_once_every_rank_has_written_its_part(
    training: Training, group: Group, tmp_path: Path
) -> None:
    training.begin()
    group.together, group.folder = True, tmp_path
    training.step_to(8, should_save=True)
    group.meetings.clear()
    training.save()
    assert group.meetings == [["checkpoint-8", "checkpoint-8.saving", "checkpoint-8/model"]]


def test_other_ranks_leave_what_is_torn_to_the_first_one(training: Training, tmp_path: Path) -> None:
    cut_short(training, 13)
    second = training.next_life()
    second.state.is_world_process_zero = False
    second.begin(loaded_steps=8)
    assert (tmp_path / "checkpoint-13").exists()


def test_a_second_training_hears_sigterm_again_and_saves(training: Training) -> None:
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


def test_what_a_training_that_raised_has_left_is_not_counted_in_the_second_one(training: Training) -> None:
    training.begin()
    training.step_to(8, should_save=True)  # and the save raises
    training.listener.told.clear()
    training.begin()
    training.step_to(1, should_save=False)
    assert training.listener.told == ["not saved", "step"]


def test_after_a_training_that_raised_sigterm_is_given_back(training: Training) -> None:
    def life() -> None:
        with training.callback:
            training.begin()
            training.step_to(1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        life()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert training.listener.saves_on_sigterm is False


def test_the_folder_may_be_in_the_home_of_the_user_as_for_the_trainer(
    make_callback: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    first = Training(tmp_path / "run", make_callback)
    first.step_to(8, should_save=True)
    first.save()
    assert make_callback("~/run").resume_path == str(tmp_path / "run" / "checkpoint-8")


def test_the_steps_of_a_checkpoint_of_somebody_else_are_counted_all_the_same(training: Training) -> None:
    training.begin(loaded_steps=500)
    assert training.listener.resumed == [500]


def test_the_trainer_plans_each_training_unless_somebody_has_planned(
    training: Training, make_callback: Callable[..., Any], tmp_path: Path
) -> None:
    training.begin()
    training.state.max_steps = 300
    training.begin()
    assert training.listener.planned_steps == 300
    planned = Listener()
    planned.planned_steps = 77
    callback = make_callback(tmp_path, reporter=planned)
    callback.on_train_begin(None, training.state, None)
    assert planned.planned_steps == 77
