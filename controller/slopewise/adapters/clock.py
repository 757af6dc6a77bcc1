"""The Clock port of a real system."""

from __future__ import annotations

import time


class SystemClock:
    """Wall-clock and monotonic time of this machine."""

    def now(self) -> float:
        """Unix time in seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()
