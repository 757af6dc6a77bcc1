"""The built-in models are what was published of them, where something was."""

from __future__ import annotations

import pytest

from slopewise.simulator.scenario.builtin_models import BUILT_IN


@pytest.mark.parametrize(
    ("model", "done", "improvement"),
    [
        ("vae-pytorch", 0.2, 0.65),
        ("vae-tensorflow", 0.2, 0.65),
        ("birnn", 0.2, 0.98),
        ("gru", 0.2, 0.9),
        ("gru", 0.27, 0.99),
    ],
)
def test_built_in_models_improve_as_the_published_curves_do(model: str, done: float, improvement: float) -> None:
    curve = BUILT_IN[model].curve
    assert curve is not None
    assert 1 - curve.build().at(done) == pytest.approx(improvement, abs=1e-4)


def test_every_built_in_work_is_the_published_or_chosen_one() -> None:
    works = {name: model.work_cpu_seconds[0] for name, model in BUILT_IN.items() if model.work_cpu_seconds}
    assert works == {
        "vae-pytorch": 260, "vae-tensorflow": 200, "mnist-pytorch": 106, "mnist-tensorflow": 28, "gru": 150,
        "birnn": 120, "lstm-crf": 180, "rnn": 90, "dynamic-rnn": 140,
    }  # fmt: skip
    assert BUILT_IN["lstm-crf"].parallelism == 0.19
