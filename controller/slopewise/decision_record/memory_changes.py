"""The memory of a pass as differences to that of the pass before, and back. Most passes begin with what was saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from slopewise.decision_record.lines import MemoryChange
from slopewise.model import JobMemory, MemoryState

PARTS = ("nodes", "placement_nodes", "arriving", "classes")


def change_of(before: MemoryState | None, now: MemoryState) -> MemoryChange:
    """What turns `before` into `now`; all of `now` where there is no `before`."""
    base = MemoryState() if before is None else before
    return MemoryChange(
        whole=before is None,
        jobs={uid: known for uid, known in now.jobs.items() if base.jobs.get(uid) != known},
        gone=tuple(uid for uid in base.jobs if uid not in now.jobs),
        order=tuple(now.jobs) if list(_merged(base.jobs, now.jobs)) != list(now.jobs) else None,
        departed=now.departed if now.departed != base.departed else None,
        **{part: dict(getattr(now, part)) for part in PARTS if not _same(getattr(base, part), getattr(now, part))},
    )


def changed(before: MemoryState | None, change: MemoryChange) -> MemoryState:
    """The memory that a pass began with."""
    base = MemoryState() if before is None or change.whole else before
    jobs = {uid: known for uid, known in base.jobs.items() if uid not in change.gone} | change.jobs
    if change.order is not None:
        jobs = {uid: jobs[uid] for uid in change.order}
    parts: dict[str, Any] = {part: value for part in PARTS if (value := getattr(change, part)) is not None}
    if change.departed is not None:
        parts["departed"] = change.departed
    return replace(base, jobs=jobs, **parts)


def _merged(before: Mapping[str, JobMemory], now: Mapping[str, JobMemory]) -> dict[str, object]:
    """The uids of `now` in the order that `changed` gives them."""
    return {uid: None for uid in before if uid in now} | dict.fromkeys(now)


def _same(before: Mapping[str, object], now: Mapping[str, object]) -> bool:
    """Equal, in the same order: the class that was seen last is the last one."""
    return before == now and list(before) == list(now)
