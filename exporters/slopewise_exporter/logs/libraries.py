r"""Lines of libraries with a form of their own: rounds of XGBoost and LightGBM, trials of Optuna, the table of YOLO.

[10]\ttrain-logloss:0.35\teval-logloss:0.46
[10]\ttraining's binary_logloss: 0.35\tvalid_0's binary_logloss: 0.46
[I 2026-01-01 10:00:00,000] Trial 3 finished with value: 0.34 and parameters: {'x': 1}. Best is trial 2 with ...
      1/100      2.5G      1.234      2.345      1.123         12        640: 100%|███| 8/8 [00:02<00:00, 3.5it/s]
"""

from __future__ import annotations

import math
import re
from typing import Any

from slopewise_exporter.logs.text import NUMBER, number_of

_ROUND = re.compile(r"\[(?P<step>\d{1,15})\]\t")
_CELL = re.compile(
    rf"(?P<data>[^\t:]{{1,80}})(?:'s |-)(?P<metric>[\w@.]{{1,40}}): ?(?P<number>{NUMBER})(?: ?\+ ?[\d.e-]{{1,20}})?"
)
_LOSSES = re.compile(
    r"(?:loss|loglik|rmsl?e|ma[ep]|mape|mphe|mse|error|l[12]|entropy|deviance|huber|fair|poisson|quantile|tweedie|gamma)$"
)
"""How the names of their metrics end that are losses. Scores (auc, ndcg, map) are none."""

_TRIAL = re.compile(rf"\bTrial \d{{1,15}} finished with value: (?P<number>{NUMBER})(?= |\.|$)")

_YOLO = re.compile(
    r"\s{0,12}(?P<epoch>\d{1,9})/(?P<epochs>\d{1,9})\s{1,12}[\d.]{1,9}G"
    r"(?P<columns>(?:\s{1,12}(?:[\d.e+-]{1,12}|nan|inf)){2,10}):\s{1,4}\d{1,3}%"
    r"[^/]{0,400}?(?P<batch>\d{1,15})/(?P<batches>\d{1,15})"
)
_COUNTS = 2
"""The last columns of YOLO's table: instances in the batch, and the size of images."""


def read_library(text: str) -> dict[str, Any] | None:
    """Field of `Found`: number; None: no line of these libraries."""
    if "]\t" in text:
        return _read_round(text)
    if "finished with value" in text:
        match = _TRIAL.search(text)
        # Each trial is a step: their numbers are no count, since several run at once.
        return None if match is None else {"loss": number_of(match["number"]), "loss_kind": "trial"}
    match = _YOLO.match(text)
    return None if match is None else _row(match)


def _read_round(text: str) -> dict[str, Any] | None:
    """The first metric of each data set that is a loss; of several data sets besides the training's the last."""
    begin = _ROUND.search(text)
    if begin is None:
        return None
    values: dict[str, Any] = {}
    metric_of: dict[str, str] = {}
    for cell in text[begin.end() :].rstrip().split("\t"):
        match = _CELL.fullmatch(cell)
        if match is None:
            return None
        data, metric = match["data"], match["metric"]
        if not _LOSSES.search(metric) or metric_of.setdefault(data, metric) != metric:
            continue
        field = "loss" if "train" in data.lower() else "evaluation"
        values[field], values[f"{field}_kind"] = number_of(match["number"]), metric
    return {"step": int(begin["step"]), **values} if values else None


def _row(match: re.Match[str]) -> dict[str, Any]:
    """The loss is the sum of the columns for boxes, classes and so on, which is what YOLO minimises."""
    losses = [number_of(column) for column in match["columns"].split()][:-_COUNTS]
    values = {
        "epoch": int(match["epoch"]),
        "epochs_planned": int(match["epochs"]),
        "batch": float(match["batch"]),
        "batches": float(match["batches"]),
    }
    return {**values, "loss": math.fsum(loss for loss in losses if loss is not None)} if losses else values
