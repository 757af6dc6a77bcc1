"""Two lines in a training script: loss and progress as Prometheus metrics.

    from slopewise_exporter import Reporter

    with Reporter(planned_steps=10_000) as reporter:
        for batch in loader:
            reporter.step(loss=train_on(batch), samples=len(batch))

The flow: `reporter` takes what the training says (checked by `values`, configured by `environment`), `record`
keeps it as plain numbers, `endpoint` serves them over HTTP through `exposition`, and `lifecycle` looks after
forks and the end of the process. Prometheus is what comes after. Beside it, `checkpoints` saves the training itself,
on SIGTERM and from time to time (`termination`, `checkpoint_files`); frameworks have modules of their own,
which are loaded only where they are imported by name. `instrument` reports a training that has neither line.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slopewise_exporter.checkpoints import CheckpointError, Checkpoints, Ranks
    from slopewise_exporter.reporter import Reporter

__version__ = "0.1.0"
__all__ = ["CheckpointError", "Checkpoints", "Ranks", "Reporter"]


def __getattr__(name: str) -> object:
    """Loaded when it is first used: with SLOPEWISE_EXPORTER=1 each Python process of a training imports this."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{'reporter' if name == 'Reporter' else 'checkpoints'}"), name)
    globals()[name] = found
    return found
