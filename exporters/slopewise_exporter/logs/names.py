"""Which names mean the loss, the step and so on: one table for log lines, JSON keys, CSV columns, tags and metrics.

A name is compared in lower case, with `_` for every run of other characters: `Loss/train` is `loss_train`. Of several
names in one line the one that stands first in the table counts: `loss` before `total_loss`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

_TRAIN = ("train", "training", "tr")
_EVALUATION = ("eval", "val", "valid", "validation", "evaluation", "dev")

TRAIN_LOSSES = (
    "loss",
    *(f"{stage}_loss" for stage in _TRAIN),
    *(f"loss_{stage}" for stage in _TRAIN),
    "running_loss",
)
EVALUATION_LOSSES = (
    *(f"{stage}_loss" for stage in _EVALUATION),
    *(f"loss_{stage}" for stage in _EVALUATION),
    *("test_loss", "holdout_loss", "loss_test"),
)
"""Plain losses."""

_HELD_OUT = frozenset((*_EVALUATION, "test", "holdout"))

_LOSS_FUNCTIONS: Mapping[str, Sequence[str]] = {
    "logloss": ("logloss", "log_loss"),
    "nll": ("nll", "nll_loss"),
    "cross_entropy": ("cross_entropy", "crossentropy"),
    "mse": ("mse", "mse_loss"),
}
"""Kind of loss: its names. One run may print several, in units of their own: `tracker` follows one of them."""


def _of_stages(stages: Iterable[str]) -> dict[str, str]:
    """The names of all kinds for these stages, and the kind of each."""
    return {
        name: kind
        for kind, metrics in _LOSS_FUNCTIONS.items()
        for metric in metrics
        for stage in stages
        for name in (f"{stage}_{metric}", f"{metric}_{stage}")
    }


_TRAIN_KINDS = {**{each: kind for kind, names in _LOSS_FUNCTIONS.items() for each in names}, **_of_stages(_TRAIN)}
_EVALUATION_KINDS = _of_stages((*_EVALUATION, "test", "holdout"))
_KINDS = {**_TRAIN_KINDS, **_EVALUATION_KINDS}

DEFAULT_NAMES: Mapping[str, Sequence[str]] = {
    "loss": (
        *TRAIN_LOSSES,
        *("train_loss_step", "loss_step", "train_step_loss", "batch_loss", "total_loss", "train_total_loss"),
        *("lm_loss", "avg_loss", "mean_loss", "train_avg_loss", "train_loss_epoch", "loss_epoch", "epoch_loss"),
        "losses_train",
        *_TRAIN_KINDS,
    ),
    "evaluation": (
        *EVALUATION_LOSSES,
        *(f"{stage}_loss_epoch" for stage in _EVALUATION),
        "epoch_loss_validation",
        "evaluation_loss_vs_iterations",
        *_EVALUATION_KINDS,
    ),
    "step": (
        *("global_step", "train_global_step", "trainer_global_step", "step", "train_step", "training_step"),
        *("optimizer_step", "optimizer_steps", "steps", "iteration", "iter", "iters", "train_iter", "update"),
        *("num_updates", "_step"),
    ),
    "steps_planned": (
        *("max_steps", "total_steps", "num_steps", "train_steps", "num_train_steps", "num_training_steps"),
        *("max_train_steps", "total_optimization_steps", "total_train_steps", "total_training_steps", "max_iters"),
        *("max_iterations", "total_iterations", "num_iterations", "steps_planned", "planned_steps"),
    ),
    "epoch": ("epoch", "train_epoch", "training_epoch", "current_epoch", "ep"),
    "epochs_planned": (
        *("epochs", "max_epochs", "num_epochs", "total_epochs", "num_train_epochs"),
        *("n_epochs", "epochs_planned"),
    ),
    "batch": ("batch", "batch_idx", "batch_index"),
    "batches": ("batches", "num_batches", "total_batches", "steps_per_epoch"),
}
"""Field of `Found`: its names, the one that counts first at the front."""

OTHER_QUANTITIES = frozenset(
    (
        *("aux", "auxiliary", "best", "box", "class", "cls", "delta", "early", "every", "final", "initial", "kl"),
        *("last", "log", "logging", "lowest", "max", "min", "minimum", "patience", "per", "prev", "previous", "reg"),
        *("save", "warm", "warmup"),
    )
)
"""Words before a name that make it another quantity: `best loss`, `warmup steps`."""

_SUMMARIES = frozenset({"train_train_loss"})
"""Names that are written once at the end: Transformers' mean over the whole training."""

_MAX_CACHED = 4096
"""Names remembered; a log that makes up new ones for ever takes no more memory than this."""


class Meaning(NamedTuple):
    """What a name stands for: a field of `Found`, its place among the names of that field, and the kind of loss."""

    field: str
    rank: int
    kind: str = ""


class Names:
    """Looks names up. `own`: names of the user's by field, which replace those of the table for that field."""

    def __init__(self, own: Mapping[str, Sequence[str]] | None = None) -> None:
        self.own = [name for names in (own or {}).values() for name in names]
        table = {**DEFAULT_NAMES, **{field: names for field, names in (own or {}).items() if names}}
        self._meanings: dict[str, Meaning] = {}
        for field, names in table.items():
            for rank, name in enumerate(names):
                self._meanings.setdefault(normalised(name), Meaning(field, rank, _KINDS.get(name, "")))
        for field, names in (own or {}).items():
            for rank, name in enumerate(names):
                self._meanings[normalised(name)] = Meaning(field, rank)
        self._cache: dict[str, Meaning | None] = {}
        self._has_own_evaluation = bool((own or {}).get("evaluation"))

    def meaning(self, name: str) -> Meaning | None:
        """Of a name as it stands in a log; None: of no interest."""
        try:
            return self._cache[name]
        except KeyError:
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            found = self._cache[name] = self._look_up(name)
            return found

    def meaning_of_path(self, name: str) -> Meaning | None:
        """Of a tag, a column or a metric, such as `group/train_loss`, where its last part may be what is known."""
        if normalised(name) in _SUMMARIES:
            return None
        return self.meaning(name) or self.meaning(name.rpartition("/")[2])

    def held_out(self, meaning: Meaning) -> Meaning | None:
        """Of a name that stands for a training loss, in the results of a held-out set. None: the user names another."""
        return None if self._has_own_evaluation else meaning._replace(field="evaluation")

    def _look_up(self, name: str) -> Meaning | None:
        words = name.split()
        for start in range(len(words)):
            if start and words[start - 1].lower() in OTHER_QUANTITIES:
                return None
            found = self._meanings.get(normalised(" ".join(words[start:])))
            if found is not None:
                is_held_out = found.field == "loss" and not _HELD_OUT.isdisjoint(map(str.lower, words[:start]))
                return self.held_out(found) if is_held_out else found
        return None


def normalised(name: str) -> str:
    """`Loss/train` is `loss_train`; a leading underscore stays, as in `_step` of Weights & Biases."""
    return re.sub(r"[^a-z0-9]+", "_", name.strip().lower()).rstrip("_")
