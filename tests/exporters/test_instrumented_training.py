"""What a process reports by: its output, a framework's callback, or its own `Reporter`."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import ModuleType

import pytest
from support.training_fixtures import MakeReporter, Scrape

from slopewise_exporter import lifecycle
from slopewise_exporter.instrument.frameworks import hooks
from slopewise_exporter.instrument.training import Training

Make = Callable[[], Training]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Processes of one training, as far as they can be in one process."""
    for name, value in {"PORT": "0", "ADDRESS": "127.0.0.1", "LINGER_SECONDS": "0"}.items():
        monkeypatch.setenv(f"SLOPEWISE_EXPORTER_{name}", value)
    monkeypatch.setattr(lifecycle, "before_opening", [])
    environ: dict[str, str] = {}
    made: list[Training] = []

    def make() -> Training:
        made.append(Training(environ))
        return made[-1]

    yield make
    for training in made:
        training._close()
        if training._claim is not None:
            training._claim.release()


def test_a_fit_replaces_the_reporter_of_the_output_and_its_counters(make: Make, scrape: Scrape) -> None:
    training = make()
    printed = training.by_output()
    assert printed is not None
    assert (training.by_output(), training.follows_output) == (printed, True)
    printed.step(loss=9.0)
    with training.fit("keras") as reporter:
        assert reporter is not None
        assert reporter is not printed
        reporter.step(loss=0.5)
        assert scrape(reporter.port)["training_steps_total"] == 1
        assert printed.port is None
    assert not training.follows_output
    assert training.by_output() is None


def test_fits_one_after_another_share_a_reporter_and_one_within_another_has_none(make: Make) -> None:
    training = make()
    with training.fit("lightning") as first:
        assert first is not None
        with training.fit("keras") as inner:
            assert inner is None
    with suppress(ValueError), training.fit("lightning") as second:
        assert second is first
        raise ValueError("of the training")
    with training.fit("xgboost") as third:
        assert third is first


def test_a_fit_beside_another_one_on_another_thread_has_none(make: Make) -> None:
    training = make()
    seen: list[object] = []

    def other() -> None:
        with training.fit("xgboost") as reporter:
            seen.append(reporter)

    with training.fit("xgboost") as reporter:
        assert reporter is not None
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert seen == [None]


def test_output_of_a_second_process_is_left_out_and_its_fit_is_not(make: Make) -> None:
    first, second = make(), make()
    assert first.by_output()
    assert second.by_output() is None
    assert not second.follows_output
    with second.fit("keras") as reporter:
        assert reporter is not None
    assert first.by_output() is None
    with first.fit("keras") as late:
        assert late is None


def test_a_process_whose_output_gave_way_fits_when_the_other_one_has_ended(make: Make) -> None:
    first, second = make(), make()
    assert first.by_output()
    with second.fit("keras"):
        pass
    assert second._claim is not None
    second._claim.release()
    second._claim = None
    with first.fit("keras") as reporter:
        assert reporter is not None


def test_the_trainings_own_reporter_ends_all_others_for_good(make: Make, make_reporter: MakeReporter) -> None:
    first, second = make(), make()
    with first.fit("keras") as reporter:
        assert reporter is not None
        lifecycle.before_opening.append(second.step_aside)
        make_reporter().step(loss=1.0)
        assert reporter.port is None
    for training in (first, second):
        with training.fit("keras") as later:
            assert later is None
        assert training.by_output() is None


def test_another_rank_has_steps_for_its_threads_and_opens_nothing(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = make(), make()
    monkeypatch.setenv("SLOPEWISE_THREADS", "follow")
    monkeypatch.setenv("RANK", "1")
    with second.fit("keras") as reporter:
        assert reporter is not None
        assert reporter.port is None
    monkeypatch.delenv("RANK")
    with first.fit("keras") as reporter:
        assert reporter is not None
        assert reporter.port is not None


@pytest.mark.parametrize("variable", ["RANK", "SLOPEWISE_EXPORTER_DISABLED"])
def test_a_process_that_does_not_report_takes_the_right_from_no_other(
    make: Make, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    first, second = make(), make()
    assert first.by_output()
    with monkeypatch.context() as other_rank:
        other_rank.setenv(variable, "1")
        with second.fit("keras") as reporter:
            assert reporter is None
    assert first.by_output()


def test_a_forked_child_neither_reports_nor_holds_the_right(make: Make) -> None:
    training = make()
    assert training.by_output()
    child = os.fork()
    if child == 0:
        training.abandon_after_fork()
        with training.fit("keras") as reporter:
            os._exit(0 if reporter is None and training.by_output() is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert training.by_output()


@pytest.mark.parametrize(("task_type", "callbacks"), [("GPU", 0), ("CPU", 1), (None, 1)])
def test_a_fit_of_catboost_gets_a_callback_where_it_takes_one(
    make: Make, task_type: str | None, callbacks: int
) -> None:
    class CatBoost:
        """CatBoost 1.2 raises on a GPU: `User defined callbacks are not supported for GPU`."""

        def get_param(self, name: str) -> str | None:
            return {"task_type": task_type}.get(name)

        def _fit(self, X: object, callbacks: list[object] | None = None) -> int:  # noqa: N803 - theirs
            return len(callbacks or ())

    module = ModuleType("catboost.core")
    module.CatBoost = CatBoost  # type: ignore[attr-defined]
    hooks(make())["catboost.core"](module)
    assert CatBoost()._fit([]) == callbacks
