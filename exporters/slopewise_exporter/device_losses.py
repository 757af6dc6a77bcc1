"""Losses that are still on an accelerator: kept there and read together, so that no step waits for its own.

`loss.item()` waits until the device has done all the work that is queued, so a read at each step takes away the lead
that the training has over its device. These are read about once a second, in the thread of the training: a read in
the thread of a scrape could fall into the capture of a CUDA graph, which it would break.
"""

from __future__ import annotations

import sys
import threading
from time import monotonic
from typing import Any

READ_EVERY_SECONDS = 1.0

MAX_HELD = 1024
"""Read earlier than that where steps are faster: 1024 scalars take 512 KiB of a CUDA device."""


class DeviceLosses:
    """The losses that were not read yet. Several threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: list[Any] = []
        self._due_at_seconds = 0.0  # the first one is read at once, and is seen by the first scrape

    def hold(self, loss: Any) -> bool:
        """Keep `loss` where it is; False where reading it waits for nothing."""
        kept = _kept(loss)
        if kept is None:
            return False
        with self._lock:
            self._held.append(kept)
        return True

    @property
    def due(self) -> bool:
        """Whether it is time to read them."""
        return monotonic() >= self._due_at_seconds or len(self._held) >= MAX_HELD

    def take(self) -> list[Any]:
        """All that are held, oldest first, as Python's own numbers where their framework can read them at once."""
        with self._lock:
            held, self._held = self._held, []
            self._due_at_seconds = monotonic() + READ_EVERY_SECONDS
        return _read_together(held)


def _kept(loss: Any) -> Any | None:
    """What stays as it is until it is read; None for what is at hand already, or is no single number."""
    kind = getattr(getattr(loss, "device", None), "type", None)
    if kind in ("cpu", "meta"):  # first, because a tensor takes 0.7 µs to say that it has no attribute
        return None
    is_ready = getattr(loss, "is_ready", None)
    if is_ready is not None:  # JAX, whose arrays never change
        return None if loss.size != 1 or is_ready() else loss
    if kind is None or loss.numel() != 1:
        return None
    # A copy: a CUDA graph writes the loss of each of its runs to the same place.
    return loss.detach().reshape(()).clone()


def _read_together(held: list[Any]) -> list[Any]:
    torch = sys.modules.get("torch")
    if torch is not None and held and all(isinstance(each, torch.Tensor) for each in held):
        if len({(each.dtype, each.device) for each in held}) == 1:
            numbers: list[Any] = torch.stack(held).tolist()
            return numbers
    elif held and "jax" in sys.modules:
        return list(sys.modules["jax"].device_get(held))
    return held
