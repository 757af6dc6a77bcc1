"""The class that a training script uses.

A call never raises into the training, and costs next to nothing (benchmarks/bench_reporter.py in the Slopewise
repository): it can stand in the innermost loop.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, SupportsFloat, TypeVar

from slopewise_exporter import lifecycle
from slopewise_exporter.device_losses import DeviceLosses
from slopewise_exporter.environment import (
    DEFAULT_LINGER_SECONDS,
    DEFAULT_PORT,
    STUDY_VARIABLE,
    EndpointSettings,
    endpoint_settings,
    listening_advice,
    reports_here,
    write_file,
)
from slopewise_exporter.push import Push, pushes
from slopewise_exporter.record import FAILED, FINISHED, Facts, Progress, TrainingRecord, checked_facts
from slopewise_exporter.threads.following import following
from slopewise_exporter.timed_batches import TimedBatches
from slopewise_exporter.values import (
    Checker,
    parse_amount,
    parse_ema_decay,
    parse_number,
    parse_planned_steps,
    parse_steps,
)

if TYPE_CHECKING:
    from prometheus_client.registry import Collector, CollectorRegistry

    from slopewise_exporter.endpoint import MetricsEndpoint

Batch = TypeVar("Batch")

DEFAULT_EMA_DECAY = 0.98
"""About the last 1 / (1 - 0.98) = 50 steps. The loss of a single batch is noise late in a training: its change
over 10 s has the wrong sign about half of the time."""


class Reporter:
    """Reports the progress of a training to Prometheus. Use it as a context manager, or call `close` at the end.

    Reports in global rank 0 only; in other ranks, in forked children, after `close` and where the endpoint cannot be
    opened, every method does nothing. What cannot be used is logged once (logger `slopewise_exporter`) and otherwise
    ignored: no argument makes a method raise. The port of an earlier reporter of this process is taken over.

    Args:
        port: TCP port of the endpoint; 0 takes a free one. `SLOPEWISE_EXPORTER_PORT` overrides it.
        planned_steps: how many steps the whole training will take, if that is known.
        objective: `min` when a lower evaluation value is better, `max` when a higher one is.
        framework: e.g. `pytorch`; a label of `training_info`, like `model`.
        model: the model's name.
        address: where to listen: an address or a name of this machine. `SLOPEWISE_EXPORTER_ADDRESS` overrides it.
        ema_decay: weight of the past in the moving average of the training loss, 0 up to below 1.
        linger_seconds: how long `close` waits for a last scrape; `SLOPEWISE_EXPORTER_LINGER_SECONDS`
            overrides it. At a prompt and in a notebook at most 0.5 s.
        study: the study of which this training is a trial; `OPTUNA_STUDY` where it is not given.
    """

    def __init__(
        self,
        port: int = DEFAULT_PORT,
        *,
        planned_steps: SupportsFloat | None = None,
        objective: str = "min",
        framework: str = "",
        model: str = "",
        address: str = "0.0.0.0",  # noqa: S104 - a pod is scraped from outside; nothing can be changed through it
        ema_decay: float = DEFAULT_EMA_DECAY,
        linger_seconds: float = DEFAULT_LINGER_SECONDS,
        study: str = "",
    ) -> None:
        self._check = Checker()
        self._closing = threading.RLock()
        self._ended = False
        self._device_losses = DeviceLosses()
        self._endpoint: MetricsEndpoint | None = None
        self._pushes: list[Push] = []
        self._settings: EndpointSettings | None = None
        wanted = "a number from 0 up to below 1"
        decay = self._check.read("ema_decay", ema_decay, parse_ema_decay, DEFAULT_EMA_DECAY, wanted)
        self._record = TrainingRecord(decay)
        self.planned_steps = planned_steps
        if reports_here(os.environ, self._check):
            settings = endpoint_settings(
                os.environ, self._check, port=port, address=address, linger_seconds=linger_seconds
            )
            study = study or os.environ.get(STUDY_VARIABLE, "")
            self._open(settings, checked_facts(self._check, framework, model, objective, study))
        self._recording = self._endpoint is not None or bool(self._pushes)

    @property
    def port(self) -> int | None:
        """The TCP port that is being served; None where nothing is reported, and after `close`."""
        return self._endpoint.port if self._endpoint else None

    @property
    def planned_steps(self) -> float | None:
        """How many steps the whole training will take; may be set once it is known. None: not exported."""
        return self._record.steps_planned

    @planned_steps.setter
    def planned_steps(self, steps: SupportsFloat | None) -> None:
        self._record.steps_planned = self._check.read(
            "planned_steps", steps, parse_planned_steps, None, "a positive number of steps"
        )

    def plan(self, steps: SupportsFloat | None, *, upper_bound: bool = False) -> None:
        """The whole training will take `steps`; with `upper_bound`, fewer where it stops early. It may be corrected."""
        self.planned_steps = steps
        self._record.plan_is_upper_bound = bool(upper_bound)

    @property
    def steps(self) -> int:
        """Steps counted so far, those of former lives with them; 0 where nothing is reported."""
        return self._record.steps if self._recording else 0

    @property
    def timed_steps(self) -> tuple[int, float]:
        """Steps counted so far, and the seconds that they took, without evaluations and checkpoints between them."""
        now = self._record.snapshot()
        return now.steps, now.step_duration_sum_seconds

    @property
    def ended(self) -> bool:
        """Whether it was closed, or is the copy of a reporter in a forked child."""
        return self._ended

    @property
    def saves_on_sigterm(self) -> bool | None:
        """Whether SIGTERM makes this training save, as far as anybody has said; None: not exported.

        `Checkpoints` says so itself. A training with code of its own for that sets it to True.
        """
        return self._record.checkpoint_on_sigterm

    @saves_on_sigterm.setter
    def saves_on_sigterm(self, saves: bool | None) -> None:
        self._record.checkpoint_on_sigterm = saves

    def step(
        self, loss: SupportsFloat | None = None, samples: SupportsFloat | None = None, *, steps: SupportsFloat = 1
    ) -> None:
        """One optimiser step is done, with this training loss, on this many samples.

        `loss` may be whatever holds one number: a float, a numpy scalar, a tensor. A loss that is NaN or
        infinite is counted. A tensor on an accelerator is read about once a second, together with those before it.
        `steps`: where several have ended at once, and `loss` is that of the last.
        """
        if following.wanted != following.applied:
            following.apply()
        if not self._recording:
            return
        if loss is not None and type(loss) is not float:
            loss = self._number(loss)
        count = 0.0
        if samples is not None:
            count = self._check.read("samples", samples, parse_amount, 0.0, "a number, 0 or more")
        if type(steps) is not int or steps < 1:
            steps = self._check.read("steps", steps, parse_steps, 1, "a number of steps, 1 or more")
        self._record.step(loss, count, steps)

    def loss(self, loss: SupportsFloat) -> None:
        """The training loss of steps that were counted before, where it becomes known after them."""
        if self._recording:
            number = float(loss) if type(loss) is float else self._number(loss)
            if number is not None:
                self._record.late_loss(number)

    def waited(self, seconds: SupportsFloat) -> None:
        """A step waited `seconds` for its batch. `waits` measures that for any loader."""
        if self._recording:
            self._record.waited(self._check.read("waiting time", seconds, parse_amount, 0.0, "seconds, 0 or more"))

    def waits(self, batches: Iterable[Batch]) -> TimedBatches[Batch]:
        """The same `batches`, each of them timed: `for batch in reporter.waits(loader)`.

        It has the length of `batches` and their attributes, and can be gone through again where they can.
        """
        return TimedBatches(batches, self._count_wait)

    def _count_wait(self, seconds: float) -> None:
        """As `waited`, of a clock's own difference, which needs no check."""
        if self._recording:
            self._record.waited(seconds)

    def epochs(self, epochs: int, batches: Iterable[object] = (), *, first: int = 0) -> Iterator[int]:
        """`for epoch in reporter.epochs(EPOCHS, loader)`: plans `epochs` × len(loader) steps, and counts the epochs.

        The steps of an epoch that has ended are the plan of those that follow: with gradient accumulation, or with
        `batches` of no length, the plan is right from the second epoch on. `first`: of a training that was resumed.
        """
        from slopewise_exporter.fit_report import planned_epochs

        return planned_epochs(self, epochs, batches, first)

    def advance_to(
        self, steps: int, epochs: int, loss: float | None = None, *, at_seconds: float | None = None
    ) -> None:
        """`steps` and `epochs` are done in all: for a training that is read from a log with a line for each tenth step.

        `loss`: of the last one. `at_seconds`: when that was, where the log is of the past; then no step is timed.
        """
        if self._recording:
            self._record.advance_to(steps, epochs, loss, at_seconds)

    def begin_again(self) -> None:
        """The training that is read from a log has begun again, or another one has."""
        if self._recording:
            self._record.begin_again()

    def mark_ended(self, *, failed: bool) -> None:
        """The training that is read from a log has ended; this process goes on and serves its last values."""
        if self._recording:
            self._record.end(FAILED if failed else FINISHED)

    def epoch(self) -> None:
        """One pass over the training data is done."""
        if self._recording:
            self._record.epoch()

    def evaluate(self, value: SupportsFloat, *, within_step: bool = False) -> None:
        """An evaluation is done, with this value: a loss, or a score when the objective is `max`.

        `within_step`: each step has one, as each round of a boosting has, and its time is that of the step.
        """
        if not self._recording:
            return
        number = self._check.read("evaluation value", value, parse_number, None, "a number")
        if number is not None:
            self._record.evaluate(number, within_step=within_step)

    @contextmanager
    def checkpoint(self) -> Iterator[None]:
        """Put `with reporter.checkpoint():` around saving one. When saving raises, it does not count."""
        if not self._recording:
            yield
            return
        steps = self._record.begin_checkpoint()
        started = perf_counter()
        saved_steps = None
        try:
            yield
            saved_steps = steps
        finally:
            self._record.end_checkpoint(perf_counter() - started, saved_steps)

    def progress(self, steps: int) -> Progress:
        """What belongs into a checkpoint of `steps` steps, for the counters of the next life."""
        now = self._record.snapshot()
        return Progress(steps, now.samples, now.epochs)

    def resume(self, progress: Progress) -> None:
        """Count on from this checkpoint, whose state the training has just loaded."""
        # Also where the endpoint could not be opened: what this life saves is what the next one reports.
        if not self._ended:
            self._record.resume(self._checked(progress))

    def leave(self, *, linger: bool = False) -> None:
        """The process ends and the training does not: it goes on in another one. Waits for no scrape, or for a last."""
        self._end(None, linger=linger)

    def close(self) -> None:
        """The training finished. Returns after one more scrape, or `linger_seconds`; a second call at once.

        Where nothing has ever scraped there is nothing to wait for.
        """
        self.end(failed=False, linger=True)

    def end(self, *, failed: bool, linger: bool = True) -> None:
        """Like `close`, for callers that know how it ended: `failed`, and whether to wait for a last scrape."""
        self._end(FAILED if failed else FINISHED, linger=linger)

    def _end(self, state: str | None, *, linger: bool) -> None:
        with self._closing:
            if self._ended:
                return
            self._ended = True
        if state == FINISHED and self._recording:
            self._read_device_losses()  # of a training that failed, the device may have failed too
        settings, self._recording = self._settings, False
        self._record.end(state)
        if settings is None:
            return
        if state is not None:
            losses = "\n".join(f"{stage} {loss!r}" for stage, loss in self._record.snapshot().losses.items())
            write_file(settings.end_file, losses, "the last losses", self._check)
        linger_seconds = lifecycle.patience(settings.linger_seconds, pushes=bool(self._pushes)) if linger else 0.0
        try:
            for push in self._pushes:
                push.end()
            if self._endpoint is not None:
                self._endpoint.close(linger_seconds)
            for push in self._pushes:
                push.wait(hurried=not linger or lifecycle.is_interactive())
        finally:
            self._endpoint, self._pushes = None, []
            lifecycle.closed(self)

    def __enter__(self) -> Reporter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Ctrl-C and sys.exit() (often: from a SIGTERM handler) mean that somebody wants the process gone.
        told_to_leave = isinstance(error, (KeyboardInterrupt, SystemExit))
        failed = error.code not in (None, 0) if isinstance(error, SystemExit) else error is not None
        self.end(failed=failed, linger=not told_to_leave)

    def abandon_after_fork(self) -> None:
        """In a forked child, called by `lifecycle`: report nothing, hold no port, wait for no lock."""
        self._recording = False
        self._ended = True
        self._closing = threading.RLock()
        self._device_losses = DeviceLosses()
        self._record.renew_lock()
        self._pushes = []  # their threads exist in the parent only
        if self._endpoint is not None:
            self._endpoint.abandon_after_fork()
            self._endpoint = None

    def _open(self, settings: EndpointSettings, facts: Facts) -> None:
        self._settings = settings
        try:
            lifecycle.opening()
            # Before the endpoint: a push works where the port is taken, and the log line about that says so.
            self._pushes.extend(pushes(os.environ, self._check, self._record, facts, self._process_metrics))
        except Exception as error:
            self._check.warn("pushes", f"nothing can be pushed ({error})")
        try:
            from slopewise_exporter.endpoint import MetricsEndpoint

            def registry() -> CollectorRegistry:
                from slopewise_exporter.exposition import build_registry

                return build_registry(self._record, facts, self._process_metrics())

            self._endpoint = lifecycle.taking_over(MetricsEndpoint, settings, registry, self._check)
        except Exception as error:
            result = "Metrics are pushed and not scraped" if self._pushes else "Training goes on without metrics"
            self._check.warn("endpoint", f"{listening_advice(settings, error)}. {result}")
        if self._endpoint is not None or self._pushes:
            lifecycle.opened(self)
        if self._endpoint is not None:
            self._check.inform(f"metrics on {self._endpoint.url}")
            write_file(settings.port_file, str(self.port), f"the port {self.port}", self._check)

    def _number(self, loss: SupportsFloat) -> float | None:
        """The loss; None where it is of no use, or is still on its device."""
        try:
            if not self._device_losses.hold(loss):
                return self._check.read("loss", loss, parse_number, None, "a number")
        except Exception:  # of an object that is no tensor after all
            return self._check.read("loss", loss, parse_number, None, "a number")
        if self._device_losses.due:
            self._read_device_losses()
        return None

    def _read_device_losses(self) -> None:
        try:
            losses = self._device_losses.take()
        except Exception as error:
            self._check.warn("device", f"losses cannot be read from their device ({error}); they are left out")
            return
        for loss in losses:
            number = self._check.read("loss", loss, parse_number, None, "a number")
            if number is not None:
                self._record.late_loss(number)

    def _process_metrics(self) -> Collector | None:
        """What describes the training's process; None: this process is the training's."""
        return None

    def _checked(self, progress: Progress) -> Progress:
        def amount(name: str) -> float:
            return self._check.read(name, getattr(progress, name), parse_amount, 0.0, "a number, 0 or more")

        return progress._replace(
            steps=int(amount("steps")),
            samples=amount("samples"),
            epochs=int(amount("epochs")),
            saved_at_seconds=amount("saved_at_seconds"),
        )
