"""The helper of a plain training loop: what is saved when, what is found again, and what is told."""

from __future__ import annotations

import pickle
import signal
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.training_fixtures import InBackground, MakeReporter, Scrape, StartProcess

from slopewise_exporter import CheckpointError, Checkpoints, Ranks, Reporter
from slopewise_exporter.record import Progress


class Counter:
    """A training whose state is one number."""

    def __init__(self) -> None:
        self.value = 0


def train(folder: Path | None, steps: int, **arguments: Any) -> Counter:
    """One life: resumes, trains up to `steps`, ends well."""
    with Checkpoints(folder, **arguments) as checkpoints:
        counter = checkpoints.resume() or Counter()
        for _ in range(checkpoints.steps, steps):
            counter.value += 1
            checkpoints.step(lambda: counter)
    return counter


def saved_steps(folder: Path) -> int:
    with Checkpoints(folder) as checkpoints:
        checkpoints.resume()
        return checkpoints.steps


def test_the_next_life_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    train(tmp_path, 7)
    with Checkpoints(tmp_path) as checkpoints:
        counter = checkpoints.resume()
        assert counter is not None
        assert (checkpoints.steps, counter.value) == (7, 7)
    assert train(tmp_path, 7).value == 7, "one that is complete does nothing"


def test_without_a_folder_it_only_counts() -> None:
    with Checkpoints() as checkpoints:
        assert checkpoints.resume() is None
        checkpoints.step(Counter)
        assert checkpoints.steps == 1
        assert not checkpoints.save(Counter)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_the_variable_wins_over_the_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOPEWISE_CHECKPOINT_FOLDER", str(tmp_path / "variable"))
    train(tmp_path / "argument", 3)
    assert (tmp_path / "variable").exists()
    assert not (tmp_path / "argument").exists()


def test_neither_by_time_nor_by_steps_means_only_at_the_end(tmp_path: Path) -> None:
    with Checkpoints(tmp_path, every_seconds=None) as checkpoints:
        for _ in range(50):
            checkpoints.step(Counter)
        assert saved_steps(tmp_path) == 0
    assert saved_steps(tmp_path) == 50


def test_a_training_that_fails_is_not_saved_in_the_middle_of_its_step(tmp_path: Path) -> None:
    def life() -> None:
        with Checkpoints(tmp_path, every_steps=2) as checkpoints:
            for _ in range(3):
                checkpoints.step(Counter)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        life()
    assert saved_steps(tmp_path) == 2


def test_a_step_that_is_saved_is_not_saved_twice(tmp_path: Path) -> None:
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.step(Counter)
        assert checkpoints.save(Counter)
        before = sorted(path.name for path in tmp_path.iterdir())
        assert checkpoints.save(Counter)
        assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_state_may_be_saved_and_loaded_by_functions_of_ones_own(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {
        "save": lambda path, state: path.write_text(state),
        "load": Path.read_text,
        "suffix": ".txt",
    }
    with Checkpoints(tmp_path, **arguments) as checkpoints:
        checkpoints.step(lambda: "weights")
    assert [path.read_text() for path in tmp_path.glob("*.txt")] == ["weights"]
    with Checkpoints(tmp_path, **arguments) as checkpoints:
        assert checkpoints.resume() == "weights"


def test_a_torn_checkpoint_is_told_and_the_one_before_is_resumed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train(tmp_path, 6, every_steps=3)
    newest = max(tmp_path.glob("*.checkpoint"))
    newest.write_bytes(newest.read_bytes()[:-1])
    assert saved_steps(tmp_path) == 3
    assert "is passed over: 00000002.checkpoint has" in caplog.text


def test_one_that_is_whole_and_cannot_be_loaded_is_an_error_and_not_a_new_beginning(tmp_path: Path) -> None:
    train(tmp_path, 3)

    def load(_: Path) -> object:
        raise ModuleNotFoundError("No module named 'model_v2'")

    with Checkpoints(tmp_path, load=load) as checkpoints, pytest.raises(CheckpointError, match=r"model_v2.*another"):
        checkpoints.resume()
    assert saved_steps(tmp_path) == 3


@pytest.mark.parametrize("folder", ["a file", "a manifest that cannot be read"])
def test_what_cannot_be_read_is_an_error_and_not_a_new_beginning(tmp_path: Path, folder: str) -> None:
    if folder == "a file":
        (tmp_path / folder).write_text("no folder")
    else:
        (tmp_path / folder / "00000001.json").mkdir(parents=True)
    with Checkpoints(tmp_path / folder) as checkpoints, pytest.raises(CheckpointError, match="cannot be read"):
        checkpoints.resume()


def test_a_folder_that_cannot_be_written_is_told_once_and_used_as_soon_as_it_can_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, reporter: Reporter, scrape: Scrape
) -> None:
    blocked = tmp_path / "checkpoints"
    blocked.write_text("no folder yet")
    with Checkpoints(blocked, reporter=reporter, every_steps=1) as checkpoints:
        for _ in range(5):
            checkpoints.step(Counter)
        assert checkpoints.steps == 5
        assert scrape(reporter.port)["training_checkpoint_on_sigterm"] == 0
        assert [record.message.split(" (")[0] for record in caplog.records] == ["checkpoints cannot be written"]
        blocked.unlink()
        checkpoints.step(Counter)
        assert scrape(reporter.port)["training_checkpoint_on_sigterm"] == 1
    assert saved_steps(blocked) == 6


def test_a_save_that_fails_is_told_once_and_not_tried_at_every_step(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, reporter: Reporter, scrape: Scrape
) -> None:
    tried = []

    def save(_path: Path, state: int) -> None:
        tried.append(state)
        raise OSError(28, "No space left on device")

    with Checkpoints(tmp_path, reporter=reporter, save=save, every_steps=3, every_seconds=None) as checkpoints:
        for step in range(1, 8):
            checkpoints.step(partial(int, step))
        assert tried == [3, 6]
        now = scrape(reporter.port)
        assert now["training_checkpoint_on_sigterm"] == 0
        assert "training_checkpoint_timestamp_seconds" not in now
    assert caplog.text.count("No space left on device") == 1


def test_after_a_save_that_works_again_the_training_promises_it_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, reporter: Reporter, scrape: Scrape
) -> None:
    works = False

    def save(path: Path, state: object) -> None:
        if not works:
            raise OSError(28, "No space left on device")
        path.write_bytes(pickle.dumps(state))

    with Checkpoints(tmp_path, reporter=reporter, save=save, every_steps=1) as checkpoints:
        checkpoints.step(Counter)
        assert scrape(reporter.port)["training_checkpoint_on_sigterm"] == 0
        works = True
        checkpoints.step(Counter)
        assert scrape(reporter.port)["training_checkpoint_on_sigterm"] == 1
        works = False
        checkpoints.step(Counter)
    assert caplog.text.count("No space left on device") == 2  # told anew, after it was well


def test_the_counters_of_the_reporter_go_on_from_the_checkpoint(
    tmp_path: Path, make_reporter: MakeReporter, scrape: Scrape
) -> None:
    first = make_reporter()
    with Checkpoints(tmp_path, reporter=first) as checkpoints:
        for _ in range(4):
            first.step(loss=1.0, samples=8)
            checkpoints.step(Counter)
        first.epoch()
    saved = scrape(first.port)
    second = make_reporter()
    with Checkpoints(tmp_path, reporter=second) as checkpoints:
        checkpoints.resume()
        now = scrape(second.port)
        assert (now["training_steps_total"], now["training_samples_total"], now["training_epochs_total"]) == (4, 32, 1)
        assert now['training_state{state="starting"}'] == 1
        assert now["training_checkpoint_timestamp_seconds"] == pytest.approx(
            saved["training_checkpoint_timestamp_seconds"], abs=5
        )
        second.step(loss=0.5, samples=8)
        now = scrape(second.port)
        assert (now["training_steps_total"], now['training_state{state="training"}']) == (5, 1)


def test_a_life_that_cannot_report_hands_on_what_the_one_before_has_counted(
    tmp_path: Path, make_reporter: MakeReporter, scrape: Scrape
) -> None:
    first = make_reporter()
    with Checkpoints(tmp_path, reporter=first) as checkpoints:
        first.step(loss=1.0, samples=8)
        first.epoch()
        checkpoints.step(Counter)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        second = make_reporter(port=taken.getsockname()[1])
        with Checkpoints(tmp_path, reporter=second) as checkpoints:
            checkpoints.resume()
            second.step(loss=1.0, samples=8)
            checkpoints.step(Counter)
    third = make_reporter()
    with Checkpoints(tmp_path, reporter=third) as checkpoints:
        checkpoints.resume()
    now = scrape(third.port)
    assert second.port is None
    assert (now["training_steps_total"], now["training_samples_total"], now["training_epochs_total"]) == (2, 8, 1)


def test_forgetting_to_resume_is_told_before_the_old_work_is_overwritten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train(tmp_path, 3)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.step(Counter)
        checkpoints.save(Counter)
    assert "resume() was not called" in caplog.text


def test_other_ranks_resume_and_save_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(tmp_path, 5)
    before = sorted(path.name for path in tmp_path.iterdir())
    monkeypatch.setenv("RANK", "1")
    assert train(tmp_path, 9, every_steps=1).value == 9
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def exit_code_of(life: Callable[[], None]) -> object:
    """How a life ended that did not reach its end."""
    with pytest.raises(SystemExit) as left:
        life()
    return left.value.code


def told_to_end_at(step: int, checkpoints: Checkpoints, reporter: Reporter | None = None) -> object:
    """The exit code of a training that gets SIGTERM in the middle of this step."""

    def life() -> None:
        with checkpoints:
            for number in range(1, 9):
                if reporter is not None:
                    reporter.step(loss=1.0)
                if number == step:
                    signal.raise_signal(signal.SIGTERM)
                    assert checkpoints.stopping
                checkpoints.step(Counter)

    return exit_code_of(life)


def test_all_ranks_stop_at_the_step_at_which_one_was_told_to(tmp_path: Path) -> None:
    answers = iter([False, False, True, True])
    asked = []

    def agree(mine: bool) -> bool:
        asked.append(mine)
        return next(answers)

    def life() -> None:
        with Checkpoints(tmp_path, ranks=Ranks(first=True, agree=agree)) as checkpoints:
            for _ in range(10):
                checkpoints.step(Counter)

    assert exit_code_of(life) == 143
    assert saved_steps(tmp_path) == 3
    assert asked == [False, False, False, False]  # the last: the others wait for rank 0 to have saved


def test_a_save_that_one_rank_finds_due_is_made_by_all_and_nobody_leaves(tmp_path: Path) -> None:
    answers = iter([False, True, False, False])
    ranks = Ranks(first=True, agree=lambda _: next(answers))
    with Checkpoints(tmp_path, ranks=ranks, every_seconds=None) as checkpoints:
        for _ in range(3):
            checkpoints.step(Counter)
        assert saved_steps(tmp_path) == 2


def test_every_rank_takes_part_in_a_collective_save_and_only_the_first_one_counts(tmp_path: Path) -> None:
    taken_part = []

    def save(path: Path, state: object) -> None:
        path.write_text("not the first rank")
        taken_part.append(state)

    ranks = Ranks(first=False, agree=lambda mine: mine, save_together=True)
    with Checkpoints(tmp_path, save=save, ranks=ranks, every_steps=2, every_seconds=None) as checkpoints:
        for step in range(1, 5):
            checkpoints.step(partial(int, step))
    assert taken_part == [2, 4]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("step", [5, 1])
def test_sigterm_makes_the_step_that_runs_the_last_and_saves_it(tmp_path: Path, reporter: Reporter, step: int) -> None:
    """The first step may be done and not reported yet: it is waited for."""
    checkpoints = Checkpoints(tmp_path, reporter=reporter, every_seconds=None)
    assert told_to_end_at(step, checkpoints, reporter) == 143
    assert saved_steps(tmp_path) == step
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_before_the_first_step_there_is_nothing_to_lose_and_it_leaves_at_once(tmp_path: Path) -> None:
    def life() -> None:
        with Checkpoints(tmp_path) as checkpoints:
            checkpoints.resume()
            signal.raise_signal(signal.SIGTERM)
            pytest.fail("it went on")

    assert exit_code_of(life) == 143


def test_sigterm_leaves_with_143_also_where_nothing_can_be_saved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def save(_path: Path, _state: object) -> None:
        raise OSError(28, "No space left on device")

    assert told_to_end_at(2, Checkpoints(tmp_path, save=save, every_seconds=None)) == 143
    assert "step 2 was not saved" in caplog.text


@pytest.mark.parametrize("error", [None, SystemExit(0), ZeroDivisionError("theirs")])
def test_a_handler_that_was_there_before_is_called_after_the_save_and_changes_neither_exit_code_nor_end(
    tmp_path: Path, reporter: Reporter, error: BaseException | None
) -> None:
    seen = []

    def mine(number: int, _frame: object) -> None:
        seen.append((number, len(list(tmp_path.glob("*.checkpoint")))))
        if error is not None:
            raise error

    before = signal.signal(signal.SIGTERM, mine)
    try:
        assert told_to_end_at(2, Checkpoints(tmp_path, reporter=reporter), reporter) == 143
        assert seen == [(signal.SIGTERM, 1)]
        assert signal.getsignal(signal.SIGTERM) == mine
        assert reporter.port is None
    finally:
        signal.signal(signal.SIGTERM, before)


def test_in_another_thread_it_cannot_hear_sigterm_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, reporter: Reporter, scrape: Scrape
) -> None:
    def live() -> None:
        with Checkpoints(tmp_path, reporter=reporter, every_steps=1) as checkpoints:
            checkpoints.step(Counter)

    thread = threading.Thread(target=live)
    thread.start()
    thread.join()
    assert "not made in the main thread" in caplog.text
    assert saved_steps(tmp_path) == 1
    assert scrape(reporter.port)["training_checkpoint_on_sigterm"] == 0


def test_after_the_end_calls_change_nothing_and_raise_nothing(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.step(Counter)
    checkpoints.close()
    checkpoints.close()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert saved_steps(tmp_path) == 1


def test_after_the_end_nothing_is_saved_that_came_after_it(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, every_steps=1)
    checkpoints.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    checkpoints.step(Counter)
    checkpoints.check(Counter)
    assert saved_steps(tmp_path) == 0


def test_opened_again_it_counts_on_and_hears_sigterm_again(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, every_seconds=None)
    checkpoints.step(Counter)
    checkpoints.close()
    checkpoints.reopen()
    assert told_to_end_at(2, checkpoints) == 143
    assert saved_steps(tmp_path) == 3


def test_after_an_error_sigterm_is_not_promised_to_save_until_it_is_opened_again_where_it_can_be_heard(
    tmp_path: Path, reporter: Reporter, scrape: Scrape, in_background: InBackground
) -> None:
    def promised() -> float:
        return scrape(reporter.port)["training_checkpoint_on_sigterm"]

    checkpoints = Checkpoints(tmp_path, reporter=reporter)
    checkpoints.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    after_the_error = promised()
    in_background(checkpoints.reopen).join()
    in_another_thread = promised()
    checkpoints.close()
    checkpoints.reopen()
    assert (after_the_error, in_another_thread, promised()) == (0, 0, 1)
    checkpoints.close()


def test_several_steps_at_once_are_counted_and_saved_as_such(tmp_path: Path) -> None:
    with Checkpoints(tmp_path, every_steps=6, every_seconds=None) as checkpoints:
        checkpoints.step(Counter, steps=4)
        assert saved_steps(tmp_path) == 0
        checkpoints.step(Counter, steps=4)
        assert (checkpoints.steps, saved_steps(tmp_path)) == (8, 8)


def test_a_state_from_elsewhere_is_counted_and_not_taken_for_work_to_lose(
    tmp_path: Path, reporter: Reporter, scrape: Scrape
) -> None:
    def life() -> None:
        with Checkpoints(tmp_path, reporter=reporter) as checkpoints:
            checkpoints.count_from(Progress(500, epochs=3))
            now = scrape(reporter.port)
            assert (checkpoints.steps, now["training_steps_total"], now["training_epochs_total"]) == (500, 500, 3)
            signal.raise_signal(signal.SIGTERM)
            pytest.fail("it went on")

    assert exit_code_of(life) == 143


def test_a_training_on_another_thread_than_the_one_that_hears_sigterm_ends_well(tmp_path: Path) -> None:
    raised: list[BaseException] = []

    def train_and_end() -> None:
        try:
            checkpoints.step(Counter)
            checkpoints.close()
        except BaseException as error:
            raised.append(error)

    before = signal.getsignal(signal.SIGTERM)
    checkpoints = Checkpoints(tmp_path)
    try:
        thread = threading.Thread(target=train_and_end)
        thread.start()
        thread.join()
        assert raised == []
        assert saved_steps(tmp_path) == 1
    finally:
        signal.signal(signal.SIGTERM, before)


ON_A_THREAD = """
import sys, threading, time
from slopewise_exporter import Checkpoints

checkpoints = Checkpoints(sys.argv[1])

def train():
    with checkpoints:
        while True:
            checkpoints.step(lambda: "state")
            print("step", checkpoints.steps, flush=True)
            time.sleep(0.01)

thread = threading.Thread(target=train)
thread.start()
thread.join()
print("complete", flush=True)
"""


def test_sigterm_ends_the_process_of_a_training_on_another_thread_and_not_that_thread_alone(
    start_process: StartProcess, tmp_path: Path
) -> None:
    process = start_process([sys.executable, "-c", ON_A_THREAD, str(tmp_path)], {}, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "step 1\n"
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=180)
    assert "complete" not in output
    assert (process.returncode, errors) == (143, "")
    assert saved_steps(tmp_path) == 1 + output.count("step") + 1  # the last one is saved before it is printed
