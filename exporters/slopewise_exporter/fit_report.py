"""What the callbacks of all frameworks have in common: one fit after another, reported through one reporter.

A framework's own file translates its hooks into `begin`, `step`, `epoch`, `evaluate` and `end`. No hook raises into
the training: a framework of another version, whose attributes are others, costs its metrics and one line in the log.
"""

from __future__ import annotations

import inspect
import math
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import wraps
from time import perf_counter
from typing import Any, Callable, TypeVar
from weakref import WeakSet

from slopewise_exporter import lifecycle
from slopewise_exporter.logs.names import Names
from slopewise_exporter.record import Progress
from slopewise_exporter.reporter import Reporter
from slopewise_exporter.threads.following import following
from slopewise_exporter.values import Checker

Hook = TypeVar("Hook", bound=Callable[..., Any])

_planned_here: WeakSet[Reporter] = WeakSet()
"""Reporters whose plan a framework gave; the plan of any other is its script's, and stays."""

_making = threading.Lock()
_common: tuple[int, Reporter] | None = None
"""The process that made it, and the reporter of all callbacks that were given none."""

_names = Names()
_PART = re.compile(r"_(?:step|epoch)$")
"""What Lightning adds to a name."""

check = Checker()
"""What was logged once by a callback is not logged by its copies, of which a search makes many."""


class Waits:
    """The time from the end of a step to the begin of the next one, in which nothing but its batch was fetched."""

    def __init__(self, reporter: Reporter | None = None) -> None:
        self._reporter = reporter
        self._idle_since: float | None = None

    def idle(self) -> None:
        """A step has ended, or what came after it."""
        self._idle_since = perf_counter()

    def interrupt(self) -> None:
        """Something else happens before the next step, an evaluation or a save: this once, the time is not known."""
        self._idle_since = None

    def busy(self) -> None:
        """A step begins: its batch is here."""
        if self._reporter is not None and self._idle_since is not None:
            self._reporter.waited(perf_counter() - self._idle_since)
        self._idle_since = None


class FitReport:
    """One fit after another. After `begin` with `first_rank=False` nothing is reported."""

    def __init__(self, reporter: Reporter | None, framework: str, *, saves: bool = False) -> None:
        """`saves`: of a callback that saves: checkpoints set the counters, and without a reporter none is opened."""
        self._given = reporter
        self._framework = framework
        self._saves = saves
        self._reporter: Reporter | None = None
        self.waits = Waits()
        self._steps_before = self._reached = 0
        self._epochs_left = self._epoch_began_at = 0
        self._lower: int | None = None
        self._upper_bound = False

    def __reduce__(self) -> tuple[Any, ...]:
        # An estimator with callbacks is pickled with them; the reporter of another process is its own.
        return type(self), (None, self._framework), {"_saves": self._saves}

    def __deepcopy__(self, memo: dict[int, Any]) -> FitReport:
        return type(self)(self._given, self._framework, saves=self._saves)

    def begin(
        self,
        steps: float | None = None,
        *,
        done: int = 0,
        epochs_done: int = 0,
        upper_bound: bool = False,
        first_rank: bool = True,
    ) -> None:
        """A fit begins. It takes `steps` in all, `done` of them before: those of a checkpoint that was loaded."""
        self._reporter = self._given if first_rank else None
        if first_rank and not (self._given or self._saves):
            self._reporter = common_reporter(self._framework)
        self.waits = Waits(self._reporter)
        if self._reporter is None:
            return
        if done > 0 and self._reporter.steps == 0 and not self._saves:
            self._reporter.resume(Progress(done, epochs=epochs_done))
        self._steps_before = self._reporter.steps - done
        self._reached = done
        self._lower = None
        self._epochs_left = 0
        self._upper_bound = upper_bound
        if self._reporter.planned_steps is None:
            _planned_here.add(self._reporter)
        self.plan(steps)

    def begin_epochs(
        self,
        epochs: int,
        steps_an_epoch: int | None,
        *,
        first_epoch: int = 0,
        upper_bound: bool = False,
        first_rank: bool = True,
    ) -> None:
        """A fit of epochs of so many steps begins; None: not known before the first of them has ended."""
        steps = None if steps_an_epoch is None else epochs * steps_an_epoch
        done = first_epoch * (steps_an_epoch or 0)
        self.begin(steps, done=done, epochs_done=first_epoch, upper_bound=upper_bound, first_rank=first_rank)
        self._epochs_left = epochs - first_epoch
        self._epoch_began_at = done

    def plan(self, steps: float | None) -> None:
        """The fit that runs takes so many steps in all; None, infinite or negative: not known."""
        if self._reporter is not None and self._reporter in _planned_here:
            known = steps is not None and 0 < steps < math.inf
            planned = self._steps_before + steps if known else None  # type: ignore[operator]
            self._reporter.plan(planned, upper_bound=self._upper_bound)

    def step(self, loss: Any = None, steps: int = 1) -> None:
        """So many steps are done; `loss` is that of the last one."""
        if self._reporter is not None:
            self._reached += steps
            self._reporter.step(loss=loss, steps=steps)
        elif following.wanted != following.applied:  # of a rank that reports nothing
            following.apply()

    def reach(self, step: int, loss: Any = None) -> None:
        """The framework counts steps itself, and is at this one. A loss without a new step counts no step.

        One lower step is taken for something else, such as the number of an epoch: 100, 1, 120 are 120 steps. A second
        one that is higher than the first begins again: 100, 10, 20 are 110.
        """
        if step > self._reached:
            self._lower = None
            self.step(loss, step - self._reached)
        elif step == self._reached:
            self.loss(loss)
        elif step < self._reached:
            if self._lower is not None and step > self._lower:
                self._reached = self._lower
                self.reach(step, loss)
                return
            if self._lower is None:
                check.warn(
                    f"{self._framework} back",
                    f"{self._framework}: step {step} comes after step {self._reached}: it is not counted, nor is its "
                    "loss, unless higher ones follow it",
                )
            self._lower = step

    def epoch(self, *, whole: bool = True) -> None:
        """A pass over the data is done. Of `begin_epochs`, the epochs that are left are taken to be as long.

        `whole` is false where a former life may have done a part of it: the plan then stays.
        """
        if self._reporter is None:
            return
        self._reporter.epoch()
        if self._epochs_left > 0:
            done = self._reporter.steps - self._steps_before
            self._epochs_left -= 1
            if whole:
                self.plan(done + self._epochs_left * (done - self._epoch_began_at))
            self._epoch_began_at = done

    def loss(self, loss: Any) -> None:
        """The loss of steps that were counted before."""
        if self._reporter is not None and loss is not None:
            self._reporter.loss(loss)

    def evaluate(self, loss: Any, *, within_step: bool = False) -> None:
        """An evaluation is done; None: without a loss."""
        if self._reporter is not None and loss is not None:
            self._reporter.evaluate(loss, within_step=within_step)

    def end(self) -> None:
        """The fit is over, perhaps early: what was done is all that there is to do. The process may begin another."""
        if self._reporter is not None and self._reporter in _planned_here and self._reporter.steps > 0:
            self._reporter.plan(self._reporter.steps)


def common_reporter(framework: str) -> Reporter:
    """The reporter that this process has opened, or one that is made now and closed when the process ends."""
    global _common  # noqa: PLW0603 - one process, one port
    lifecycle.opening()  # the training's own line comes before what was found without it
    with _making:
        opened = lifecycle.newest()
        if isinstance(opened, Reporter):
            return opened
        # In a forked child it stays the parent's, which reports nothing there.
        if _common is None or (_common[1].ended and _common[0] == os.getpid()):
            _common = os.getpid(), Reporter(framework=framework)
        return _common[1]


def planned_epochs(reporter: Reporter, epochs: int, batches: Any, first: int) -> Iterator[int]:
    """The numbers of the epochs from `first` on; plans them in `reporter`, and counts each one that ends."""
    report = FitReport(reporter, "", saves=True)
    report.begin_epochs(epochs, length(batches) or None, first_epoch=first)
    resumed = reporter.steps > 0 and first > 0
    for epoch in range(first, epochs):
        yield epoch
        report.epoch(whole=not resumed or epoch > first)


def length(batches: Any) -> int:
    """How many there are; 0 where that is not known."""
    try:
        return len(batches)
    except Exception:  # of streams, in their several ways
        return 0


def harmless(hook: Hook) -> Hook:
    """`hook`, which returns None and logs one line where it would raise into the training."""

    @wraps(hook)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return hook(*arguments, **named)
        except Exception as error:
            name = f"{hook.__module__}.{hook.__qualname__}"
            check.warn(
                name,
                f"{name} has failed ({type(error).__name__}: {error}): what it would "
                "have reported is left out. Training goes on",
            )
            return None

    return call  # type: ignore[return-value]


def loss_among(values: Mapping[str, Any], field: str = "loss") -> Any | None:
    """The training loss among the values of a log entry, or its `evaluation`; None: it has none. Scores are none."""
    named = {str(name): value for name, value in values.items()}
    for among in (named, {_PART.sub("", name): value for name, value in named.items()}):
        meanings = ((_names.meaning(name), value) for name, value in among.items())
        found = [(meaning.rank, value) for meaning, value in meanings if meaning and meaning.field == field]
        if found:
            return min(found, key=lambda each: each[0])[1]
    return None


def running(module: str, name: str) -> Any:
    """The variable `name` of the innermost function of `module` that is running; None: there is none.

    For what no callback is given, such as the number of rounds, or the callbacks beside it.
    """
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == module and name in frame.f_locals:
            return frame.f_locals[name]
        frame = frame.f_back
    return None


def stops_early(names: Iterable[str]) -> bool:
    """Whether one of the callbacks of these names may end the training before its time."""
    return any("earlystop" in name.lower().replace("_", "") for name in names)


def names_of(callbacks: Iterable[Any] | None) -> list[str]:
    """The names of the callbacks' classes."""
    return [type(each).__name__ for each in callbacks or ()]
