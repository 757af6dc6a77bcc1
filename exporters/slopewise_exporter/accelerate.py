"""Loss and progress of a loop with Accelerate, as a tracker.

    accelerator = Accelerator(log_with=SlopewiseTracker())
    accelerator.init_trackers("my-job", config={"max_train_steps": STEPS})
    accelerator.log({"train_loss": loss}, step=step)

A log entry is a step, or all steps since the one before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accelerate.state import PartialState
from accelerate.tracking import GeneralTracker

from slopewise_exporter.fit_report import FitReport, harmless, loss_among
from slopewise_exporter.reporter import Reporter

_PLANS = ("max_train_steps", "max_steps", "num_training_steps", "total_steps", "num_train_steps", "train_steps")


class SlopewiseTracker(GeneralTracker):  # type: ignore[misc] # of a package that is not installed here
    """Reports what the main process logs: `loss` or `train_loss`, `eval_loss` or `val_loss`, and `step`.

    Args:
        reporter: None: the one of this process.
        planned_steps: None: `max_train_steps` (or `max_steps`, `num_training_steps`, `total_steps`) of the `config`
            that `init_trackers` is given.
    """

    name = "slopewise"
    requires_logging_directory = False
    main_process_only = True

    def __init__(self, reporter: Reporter | None = None, *, planned_steps: int | None = None) -> None:
        super().__init__()
        self._report = FitReport(reporter, "accelerate")
        self._planned_steps = planned_steps
        self._begun = False

    @property
    def tracker(self) -> FitReport:
        """What it reports through."""
        return self._report

    @harmless
    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """The plan, where the configuration has one."""
        given = (values.get(name) for name in _PLANS)
        self._begin(self._planned_steps or next((plan for plan in given if isinstance(plan, int)), None))

    @harmless
    def log(self, values: Mapping[str, Any], step: int | None = None, **_: Any) -> None:
        """A step, or all steps since the last one that was logged."""
        if not self._begun:
            self._begin(self._planned_steps)
        loss = loss_among(values)
        if step is not None:
            self._report.reach(step, loss)
        elif loss is not None:
            self._report.step(loss)
        self._report.evaluate(loss_among(values, "evaluation"))

    @harmless
    def finish(self) -> None:
        """The training is over."""
        self._report.end()
        self._begun = False

    def _begin(self, planned: int | None) -> None:
        self._begun = True
        self._report.begin(planned, first_rank=PartialState().is_main_process)
