"""Progress bars in a line of text: tqdm's (`50%|███  | 60/120 [00:05<00:05, 12.0it/s, loss=0.5]`) and those of Keras.

A bar of data being read, mapped or downloaded, or of a validation, is not the training's; its description or its unit
shows that.
"""

from __future__ import annotations

import re

_TQDM = re.compile(
    r"(?P<about>[^%|\r\n]{0,200}?)\d{1,3}%\|[^|\r\n]{0,400}\| {0,12}(?P<batch>\d{1,15})/(?P<batches>\d{1,15}) {0,4}"
    r"\[[^,\]]{0,60},? {0,12}[\d.?]{0,12}(?P<unit>[A-Za-z/ ]{0,20})"
)
_TRAINING_UNITS = frozenset(
    unit for each in ("it", "iter", "step", "steps", "batch", "batches", "ba") for unit in (f"{each}/s", f"s/{each}")
)
_OTHER_WORK = re.compile(
    "valid|eval|test|sanity|predict|infer|download|map|filter|load|token|generat|process|fetch|cache|extract|save|saving|writ"
    "|shard|convert",
    re.IGNORECASE,
)
_KERAS = re.compile(r"\s{0,8}(?P<batch>\d{1,15})/(?P<batches>\d{1,15}|Unknown|\?) {1,8}(?:[━\[=.>]|- \d)")


# Of Lightning where rich is installed. Its second number is that of the last epoch: `Epoch 0/2` is one of three.
_RICH = re.compile(
    r"\s{0,8}Epoch (?P<epoch>\d{1,15})/(?P<last>-?\d{1,15}) {1,8}[━╸╺ ]{0,400} "
    r"(?P<batch>\d{1,15})/(?P<batches>\d{1,15}) {0,8}\d{1,4}:\d\d:\d\d • [-:\d]{1,16} {0,8}[\d.]{1,16}it/s"
)

# The unit makes it one: `| epoch   1 |    25/  305 batches | loss  7.20 |`.
_FRACTION = re.compile(
    r"(?<![\d/.])(?P<batch>\d{1,15}) ?/ {0,12}(?P<batches>\d{1,15}) {0,2}(?:batches|steps|iters|iterations|it)\b"
)


def read_bar(text: str) -> tuple[dict[str, float], str] | None:
    """Position and length, and the rest of the line; None: there is no bar. Both empty: a bar of other work."""
    if "%|" in text:
        match = _TQDM.search(text)
        if match is None:
            return None
        if _OTHER_WORK.search(match["about"]) or match["unit"].strip() not in _TRAINING_UNITS:
            return {}, ""
        return _position(match), match["about"].rstrip(" :") + " " + text[match.end() :]
    match = _RICH.match(text)
    if match is not None:
        epochs = {"epochs_planned": int(match["last"]) + 1.0} if match["last"] != "-1" else {}
        return {**_position(match), "epoch": int(match["epoch"]), **epochs}, text[match.end() :]
    match = _KERAS.match(text)
    if match is not None:
        return _position(match), text[match.end() :]
    match = _FRACTION.search(text)
    return None if match is None else (_position(match), text)


def _position(match: re.Match[str]) -> dict[str, float]:
    values = {"batch": float(match["batch"])}
    if match["batches"].isdigit():
        values["batches"] = float(match["batches"])
    return values
