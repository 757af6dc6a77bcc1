"""Reads and writes the memory as JSON, also that of versions before November 2026."""

from __future__ import annotations

from collections.abc import Mapping
from operator import methodcaller
from typing import Any

import msgspec

from slopewise.model.memory import JobMemory, MemoryState, PolicyMemory

MEMORY_JSON = msgspec.json.Encoder(enc_hook=methodcaller("item"))
"""Encodes memory for storage; values of numpy are converted."""

_GROUPED: Mapping[str, Mapping[str, str]] = {
    "levels": {
        **{name: name for name in ("series", "anchor", "doubts", "silent_since_seconds")},
        "first_level": "first",
        "best_level": "best",
    },
    "timing": {
        **{name: name for name in ("answering", "least_step_cpu_seconds")},
        "pace_anchor": "anchor",
    },
    "gpu": {"learned_cores": "learned", "gpu_seconds_won": "seconds_won"},
    "objectives": {"targets": "targets", "objective_missed": "missed", "hopeless": "hopeless"},
    "decided": {name: name for name in PolicyMemory.__struct_fields__},
    "backoff": {"backoff_until_seconds": "until_seconds", "backoff_reason": "reason"},
    "memory_resizes": {
        "memory_resized_at_seconds": "at_seconds",
        "memory_refused_at_seconds": "refused_at_seconds",
        "written_limit_bytes": "written_limit_bytes",
    },
}
"""By record: fields that `JobMemory` itself had until November 2026, and their names now."""


def regrouped(stored: dict[str, Any]) -> dict[str, Any]:
    """The fields of a stored `JobMemory` in the records that have them now; what is so already stays."""
    grouped = dict(stored)
    for record, names in _GROUPED.items():
        moved = {name: grouped.pop(former) for former, name in names.items() if former in grouped}
        if moved:
            grouped.setdefault(record, moved)
    return grouped


def read_job_memory(encoded: bytes | str) -> JobMemory:
    """A stored `JobMemory`, also one of an earlier version; msgspec.DecodeError where it is damaged."""
    return msgspec.convert(regrouped(msgspec.json.decode(encoded, type=dict[str, Any])), JobMemory)


def read_memory_state(encoded: bytes) -> MemoryState:
    """A stored `MemoryState`, also one of an earlier version; msgspec.DecodeError where it is damaged."""
    stored = msgspec.json.decode(encoded, type=dict[str, Any])
    jobs = msgspec.convert(stored.get("jobs", {}), dict[str, dict[str, Any]])
    return msgspec.convert(stored | {"jobs": {uid: regrouped(known) for uid, known in jobs.items()}}, MemoryState)
