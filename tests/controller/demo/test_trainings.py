from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pytest
from threadpoolctl import threadpool_limits

from slopewise.demo.trainings import _loop
from slopewise.demo.trainings._loop import EVALUATIONS, Learner
from slopewise.demo.trainings.catalogue import TRAININGS, demo_jobs
from slopewise_exporter import Checkpoints

NAMES = sorted(TRAININGS)
LIGHT = "stdlib-chars"
"""Whose process imports no scikit-learn, which takes 1.5 s of CPU. The short demo runs all of them as processes."""
train: Callable[..., None] = _loop.train  # fakes have the shape of the exporter's classes


class Recorder:
    """Keeps what a reporter receives; nothing scrapes it unless it is given a port."""

    port: int | None = None

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.evaluations: list[float] = []
        self.samples = 0
        self.epochs = 0

    def step(self, *, loss: float, samples: int) -> None:
        self.losses.append(loss)
        self.samples += samples

    def epoch(self) -> None:
        self.epochs += 1

    def evaluate(self, value: float) -> None:
        self.evaluations.append(value)


class CountingLearner:
    """A learner whose loss is the number of steps that are still to do."""

    samples_per_step = 32
    steps_per_epoch = 10
    learnt: tuple[str, ...] = ("left",)

    def __init__(self, steps: int) -> None:
        self.left = steps

    def step(self) -> float:
        self.left -= 1
        return float(self.left)

    def evaluate(self) -> float:
        return self.left + 0.5


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """As in the processes of the demo: the bits of a matrix product may depend on the number of threads."""
    with threadpool_limits(1):
        yield


def _run(learner: Learner, steps: int) -> Recorder:
    recorder = Recorder()
    train(learner, steps, recorder, Checkpoints(), log=lambda _: None)
    return recorder


def _train(name: str, steps: int, seed: int = 0) -> Recorder:
    return _run(TRAININGS[name].learner(seed, steps), steps)


def _process(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "slopewise.demo.trainings", *arguments],
        env={**os.environ, "SLOPEWISE_EXPORTER_PORT": "0", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# --- the loop ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("port", "waited"), [(9464, [1.2]), (None, [])])
def test_the_first_value_stands_still_for_a_scrape_where_somebody_may_scrape_it(
    port: int | None, waited: list[float]
) -> None:
    recorder = Recorder()
    waits: list[float] = []
    recorder.port = port
    train(CountingLearner(3), 3, recorder, Checkpoints(), lambda _: None, waits.append)
    assert waits == waited


def test_a_run_is_evaluated_before_its_first_step_and_after_its_last() -> None:
    recorder = _run(CountingLearner(7), 7)

    assert recorder.evaluations[0] == 7.5
    assert recorder.evaluations[-1] == 0.5
    assert recorder.losses == [6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0]


@pytest.mark.parametrize("steps", [1000, 1099])
def test_a_long_run_is_evaluated_about_a_hundred_times(steps: int) -> None:
    recorder = _run(CountingLearner(steps), steps)

    assert EVALUATIONS <= len(recorder.evaluations) - 1 <= EVALUATIONS * 1.1 + 1
    assert recorder.evaluations[-1] == 0.5


def test_samples_and_whole_epochs_are_counted() -> None:
    recorder = _run(CountingLearner(25), 25)

    assert recorder.samples == 25 * 32
    assert recorder.epochs == 2


# --- every training ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_gives_the_same_losses_every_time_and_another_seed_gives_others(name: str) -> None:
    first, again, other = _train(name, 3), _train(name, 3), _train(name, 3, seed=1)

    assert (first.losses, first.evaluations) == (again.losses, again.evaluations)
    assert first.losses != other.losses
    assert all(math.isfinite(loss) for loss in first.losses + first.evaluations)


@pytest.mark.processes
def test_a_training_serves_its_progress_and_its_held_out_loss(tmp_path: Path) -> None:
    port_file = tmp_path / "port"
    process = _process(LIGHT, "--steps", "1600", SLOPEWISE_EXPORTER_PORT_FILE=str(port_file))
    try:
        assert process.stdout is not None
        process.stdout.readline()  # the first evaluation after a step
        metrics = _scrape(int(port_file.read_text(encoding="ascii")))
    finally:
        process.kill()
        process.communicate()

    assert "training_steps_planned 1600.0" in metrics
    assert 'training_loss{stage="eval"}' in metrics
    assert 'framework="numpy",model="n-gram",objective="min"' in metrics


def _scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
    return text


# --- signalled to end, and started again ------------------------------------------------------------------------


@pytest.mark.parametrize(("steps_before", "steps_after"), [(1, 24), (13, 12), (25, 0)])
def test_a_resumed_loop_does_the_steps_that_are_left_and_evaluates_where_it_would_have(
    tmp_path: Path, steps_before: int, steps_after: int
) -> None:
    whole, first, second = Recorder(), Recorder(), Recorder()
    train(CountingLearner(25), 25, whole, Checkpoints(), log=lambda _: None)
    with Checkpoints(tmp_path) as checkpoints:
        _stopped_after(CountingLearner(25), steps_before, 25, first, checkpoints)
    with Checkpoints(tmp_path) as checkpoints:
        train(CountingLearner(25), 25, second, checkpoints, log=lambda _: None)

    assert (len(first.losses), len(second.losses)) == (steps_before, steps_after)
    assert first.losses + second.losses == whole.losses
    assert first.epochs + second.epochs == whole.epochs
    at_resuming, later = second.evaluations[0], second.evaluations[1:]
    assert at_resuming == 25 - steps_before + 0.5
    assert first.evaluations + later == whole.evaluations


@pytest.mark.parametrize("name", NAMES)
def test_a_training_that_was_saved_and_resumed_gives_the_losses_of_one_that_was_not(name: str, tmp_path: Path) -> None:
    """To the bit, and across ends of epochs: those of the tables are 1 to 16 steps long."""
    steps = 24
    whole, moved = _train(name, steps), Recorder()
    for steps_of_life in (1, 7, 8, None):
        with Checkpoints(tmp_path) as checkpoints:
            learner = TRAININGS[name].learner(0, steps)
            _stopped_after(learner, steps_of_life, steps, moved, checkpoints)

    assert moved.losses == whole.losses
    assert moved.evaluations[-1] == whole.evaluations[-1]


class Stopping:
    """Checkpoints of a life that ends after some steps, as SIGTERM ends one: the step is saved, and no other begun."""

    def __init__(self, checkpoints: Checkpoints, steps: int) -> None:
        self.checkpoints, self.left = checkpoints, steps

    @property
    def steps(self) -> int:
        return self.checkpoints.steps

    def resume(self) -> Any | None:
        return self.checkpoints.resume()

    def save(self, state: Callable[[], Any]) -> bool:
        return self.checkpoints.save(state)

    def step(self, state: Callable[[], Any]) -> None:
        self.checkpoints.step(state)
        self.left -= 1
        if self.left == 0:
            assert self.checkpoints.save(state)
            raise SystemExit(143)


def _stopped_after(
    learner: Learner, steps_of_life: int | None, steps: int, recorder: Recorder, checkpoints: Checkpoints
) -> None:
    if steps_of_life is None:
        train(learner, steps, recorder, checkpoints, log=lambda _: None)
        return
    with pytest.raises(SystemExit):
        train(learner, steps, recorder, Stopping(checkpoints, steps_of_life), log=lambda _: None)


@pytest.mark.processes
def test_a_process_that_is_signalled_to_end_again_and_again_writes_what_a_training_here_writes(
    tmp_path: Path,
) -> None:
    steps = (LIGHT, "--steps", "150")
    here: list[str] = []
    train(TRAININGS[LIGHT].learner(0, 150), 150, Recorder(), Checkpoints(), log=here.append)
    complaints = ""
    lines: list[str] = []
    statuses: list[int] = []
    while not statuses or statuses[-1] != 0:
        process = _process(*steps, SLOPEWISE_CHECKPOINT_FOLDER=str(tmp_path), SLOPEWISE_EXPORTER_DISABLED="1")
        assert process.stdout is not None
        lines += [line for line in (process.stdout.readline() for _ in range(40)) if line]
        process.send_signal(signal.SIGTERM)
        rest, reported = process.communicate(timeout=300)
        complaints += reported
        lines += rest.splitlines(keepends=True)
        statuses.append(process.returncode)
        assert len(statuses) <= 6

    assert "".join(lines).splitlines() == here
    assert set(statuses[:-1]) == {143}
    assert len(statuses) >= 3
    assert complaints == ""


@pytest.mark.processes
def test_a_training_without_a_folder_for_checkpoints_ends_as_any_process_does() -> None:
    process = _process(LIGHT, SLOPEWISE_CHECKPOINT_FOLDER="")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=300)

    assert process.returncode == -signal.SIGTERM


# --- the shapes of the curves, on runs that are cut short --------------------------------------------------


@pytest.mark.long
def test_digits_mlp_falls_fast() -> None:
    evaluations = _train("digits-mlp", 200).evaluations

    assert evaluations[0] == pytest.approx(math.log(10))
    assert evaluations[-1] < 0.2 * evaluations[0]


@pytest.mark.long
def test_digits_deep_sigmoid_stays_on_a_plateau_and_then_drops() -> None:
    evaluations = _train("digits-deep-sigmoid", 1250).evaluations
    halfway = len(evaluations) // 2

    assert min(evaluations[:halfway]) > 2.2
    assert evaluations[-1] < 1.9


@pytest.mark.long
def test_digits_lr_drop_gets_calmer_and_better_when_the_learning_rate_drops() -> None:
    evaluations = _train("digits-lr-drop", 800).evaluations
    before, after = evaluations[30:50], evaluations[80:]

    assert fmean(after) < 0.9 * fmean(before)
    assert pstdev(after) < 0.5 * pstdev(before)


@pytest.mark.long
def test_diabetes_overfit_turns_before_its_end_while_its_training_loss_falls() -> None:
    run = _train("diabetes-overfit", 900)
    best = min(run.evaluations)

    assert run.evaluations.index(best) < len(run.evaluations) / 2
    assert run.evaluations[-1] > 1.05 * best
    assert fmean(run.losses[-50:]) < 0.5 * fmean(run.losses[100:150])


@pytest.mark.parametrize(("name", "steps"), [("digits-field", 100), ("stdlib-chars", 100), ("cancer-boosting", 50)])
def test_a_slow_tail_falls_ever_more_slowly_and_still_at_the_end(name: str, steps: int) -> None:
    evaluations = _train(name, steps).evaluations
    halfway = len(evaluations) // 2
    start, end = evaluations[0], fmean(evaluations[-10:])
    middle = fmean(evaluations[halfway - 5 : halfway + 5])

    assert end < middle
    assert start - middle > 2 * (middle - end)


# --- the catalogue and the command ------------------------------------------------------------------------


def test_the_demo_runs_each_training_once_six_seconds_apart() -> None:
    jobs = demo_jobs()

    assert sorted(job.name for job in jobs) == NAMES
    assert [job.arrive_seconds for job in jobs] == [0, 6, 12, 18, 24, 30, 36, 42]
    assert jobs == demo_jobs()


def test_a_scaled_demo_shrinks_the_work_and_the_arrivals_alike() -> None:
    whole, small = demo_jobs(), demo_jobs(scale=0.1)

    assert [job.arrive_seconds for job in small] == pytest.approx([0.1 * job.arrive_seconds for job in whole])
    assert [int(job.command[-1]) for job in small] == [round(0.1 * int(job.command[-1])) for job in whole]
    assert all(int(job.command[-1]) == 1 for job in demo_jobs(scale=1e-9))


@pytest.mark.processes
def test_numpy_is_not_imported_before_its_threads_are_set() -> None:
    script = "import sys, slopewise.demo.trainings.__main__; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=180)

    assert done.stdout == "False\n"


@pytest.mark.processes
def test_ctrl_c_ends_a_training_quietly() -> None:
    process = _process(LIGHT)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(2)
    _, complaints = process.communicate(timeout=300)

    assert (process.returncode, complaints) == (130, "")
