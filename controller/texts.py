"""Foreign text (a server's answer, a tenant's label) inside our sentences: on one line, and never longer than agreed.

Before it: whatever others wrote. After it: conditions, events, columns of `kubectl get` and error messages.
"""

from __future__ import annotations


def bounded(text: object, most_characters: int) -> str:
    """The text on one line, cut off with `…` where it is longer than `most_characters`."""
    line = " ".join(str(text).split())
    return line if len(line) <= most_characters else line[: most_characters - 1] + "…"
