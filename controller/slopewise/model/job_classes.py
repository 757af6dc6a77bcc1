"""What the classes that policies put jobs in mean, in words. A class that is a word already means itself."""

from __future__ import annotations

from collections.abc import Mapping

_LEARNING, _SLOWING, _CONVERGED = "still learning", "slowing down", "converged"

MEANINGS: Mapping[str, str] = {
    "NL": _LEARNING,
    "WL": _SLOWING,
    "CL": _CONVERGED,
    "PC": _LEARNING,
    "WC": _SLOWING,
    "CC": _CONVERGED,
}
"""FlowCon's new, watching and completing list; SpeCon's progressing, watching and converged category."""


RELEASES_MEMORY = frozenset({"CL", "released"})
"""Classes of jobs that need little: FlowCon's completing list, and TRADL's jobs that have reached their last target.
Their memory request may be lowered (`memory_sizing.py`)."""


def with_meaning(job_class: str) -> str:
    """`NL, still learning`; `urgent`."""
    meaning = MEANINGS.get(job_class)
    return job_class if meaning is None else f"{job_class}, {meaning}"
