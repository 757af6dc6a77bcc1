"""From lines to steps, epochs and a plan: what counts mean, restarts and ends."""

from __future__ import annotations

import json

import pytest
from support.following import Kept, read

from slopewise_exporter.logs import Found, LineParser, Tracker


def bar(batch: int, batches: int, loss: float | None = None, about: str = "") -> str:
    tail = "" if loss is None else f", loss={loss}"
    return f"{about}{100 * batch // batches:3d}%|███| {batch}/{batches} [00:01<00:12, 7.5it/s{tail}]"


def keras(epochs: int, batches: int) -> list[str]:
    lines = []
    for epoch in range(1, epochs + 1):
        lines += [
            f"Epoch {epoch}/{epochs}",
            *(f"{n}/{batches} ━━━ 5s 4ms/step - loss: 0.{n}" for n in range(1, batches + 1)),
        ]
    return lines


@pytest.mark.parametrize(
    ("lines", "steps", "planned", "epochs"),
    [
        pytest.param([f"step {n}/1000 loss=0.5" for n in (100, 200, 300)], 300, 1000, 0, id="steps of all"),
        pytest.param(keras(epochs=3, batches=7), 21, 21, 3, id="bars below an epoch count within it"),
        pytest.param(keras(epochs=60, batches=5)[:2], 1, 300, 0, id="the plan is there from the first bar on"),
        pytest.param(
            [*keras(epochs=2, batches=5), "3/3 ━━━ 0s 3ms/step - loss: 0.9"], 10, 10, 2, id="the bar of an evaluation"
        ),
        pytest.param(
            [f"epoch {epoch} step {step} loss 1" for epoch in (0, 1, 2) for step in (10, 20, 30)], 90, None, 2,
            id="steps that begin again with each epoch",
        ),
        pytest.param(
            [f"epoch {1 + step // 20}/3 step {step}/60 loss 1" for step in range(0, 60, 5)], 56, 60, 2,
            id="steps that go on with each epoch",
        ),
        pytest.param(["epoch 1/60 step 2/300 loss 1"], 2, None, 0, id="no plan while two are possible"),
        pytest.param(
            ["epoch 1/60 step 2/300 loss 1", "epoch 1/60 step 120/300 loss 1"], 120, 60 * 300, 0,
            id="a plan once one of two is left",
        ),
        pytest.param(
            [bar(n, 10, 0.5) for _ in range(3) for n in (1, 5, 9, 10)], 30, None, 0, id="bars without an epoch"
        ),
        pytest.param(["loss 1", "loss 0.9", "loss 0.8"], 3, None, 0, id="losses without any number are a step each"),
        pytest.param([f"epoch {n}/60 loss 0.5" for n in (1, 2)], 2, 60, 2, id="the second epoch has a plan"),
        pytest.param([f"epoch {n}/60 loss 0.5" for n in range(1, 61)], 60, 60, 60, id="one line an epoch"),
        pytest.param([f'{{"step": {n}, "loss": 0.5}}' for n in range(50)], 50, None, 0, id="a step number zero"),
        pytest.param(
            ["loaded the checkpoint of step 500", *["loss 0.5"] * 60], 500 + 60 - 20, None, 0, id="a step in a remark"
        ),
        pytest.param(
            ["  Total optimization steps = 1,000", bar(1, 100, 0.5), bar(2, 100, 0.5)], 2, 1000, 0,
            id="a plan of its own line",
        ),
        pytest.param(
            [f"step {step - rank % 2} loss 1" for step in range(100, 200) for rank in range(4)], 199, None, 0,
            id="another rank a little behind",
        ),
    ],
)  # fmt: skip
def test_what_lines_count_as(lines: list[str], steps: int, planned: float | None, epochs: int) -> None:
    kept = read(lines)
    assert (kept.steps, kept.planned, kept.epochs, kept.restarts) == (steps, planned, epochs, 0)


def test_a_bar_of_other_work_before_the_training_does_not_hide_it() -> None:
    kept = read([bar(500, 500), *(bar(number, 40) for number in range(41)), "{'loss': 1, 'epoch': 0.5}", bar(40, 40)])
    assert (kept.steps, kept.planned) == (40, 40)


def test_the_bar_of_transformers_is_of_the_whole_training() -> None:
    lines = []
    for number in range(2, 31, 2):
        lines += [bar(number, 30), f"{{'loss': 0.5, 'learning_rate': 5e-05, 'epoch': {number / 10}}}"]
        if number % 10 == 0:
            lines += [bar(1, 3), bar(3, 3), f"{{'eval_loss': 0.6, 'epoch': {number / 10}}}"]
    kept = read([*lines, "{'train_runtime': 1.0, 'train_loss': 0.7, 'epoch': 3.0}", bar(3, 3)])
    assert (kept.steps, kept.planned, kept.epochs, kept.ended, kept.restarts) == (30, 30, 3, "finished", 0)
    assert kept.losses == [0.5] * 15
    assert kept.evaluations == [0.6] * 3


def test_a_new_process_begins_again_at_once() -> None:
    kept = read(f"step {step} loss 1" for step in (100, 200, 300, 10, 20))
    assert (kept.steps, kept.restarts) == (20, 1)


def test_a_process_that_resumed_is_seen_after_three_lines() -> None:
    steps = (280, 290, 300, 250, 260)
    assert read(f"step {step} loss 1" for step in steps).steps == 300
    kept = read(f"step {step} loss 1" for step in (*steps, 270))
    assert (kept.steps, kept.restarts) == (270, 1)


def test_progress_after_the_end_is_another_training() -> None:
    kept = read(["step 10/10 loss 1", "training finished", "step 1/10 loss 3"])
    assert (kept.steps, kept.ended, kept.restarts) == (1, None, 1)


def test_the_plan_of_the_user_stays() -> None:
    kept = Kept()
    Tracker(kept, planned_steps=77).take(Found(loss=1.0, step=3, steps_planned=1000))
    assert kept.planned == 77


@pytest.mark.parametrize("cut", [1, 5, 17, 30])
def test_a_tracker_goes_on_where_another_one_was(cut: int) -> None:
    lines = keras(epochs=5, batches=7)
    parser, first, second = LineParser(), Kept(), Kept()
    tracker = Tracker(first)
    for line in lines[:cut]:
        tracker.take(parser.parse(line) or Found())
    kept = json.loads(json.dumps(tracker.kept))
    tracker = Tracker(second)
    tracker.restore(kept, at_seconds=1e9)
    for line in lines[cut:]:
        tracker.take(parser.parse(line) or Found())
    assert (second.steps, second.planned, second.epochs, second.restarts) == (35, 35, 5, 0)


def test_a_plan_that_the_user_gives_at_a_restart_replaces_the_one_of_before() -> None:
    first = Tracker(Kept(), planned_steps=77)
    first.take(Found(loss=1.0, step=3))
    kept = Kept()
    Tracker(kept, planned_steps=99).restore(first.kept, at_seconds=1e9)
    assert (kept.steps, kept.planned) == (3, 99)
