"""Collects the history of a run on the test-bed: cgroups each second, and the part of the audit log of that time."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from slopewise.errors import SlopewiseError
from testbed import audit, cgroups
from testbed.settings import Settings

INTERVAL_SECONDS = 1.0
_STOP_SECONDS = 10.0
_POD = re.compile(r"pod([0-9a-f-]{36})$")
_QUOTAS = ("cpu.max", "cpu.cfs_quota_us")


@contextmanager
def collecting(settings: Settings, folder: Path) -> Iterator[Callable[[], None]]:
    """Sample cgroups into the folder meanwhile. What it yields writes `audit.log` there, as it is by then."""
    folder.mkdir(parents=True, exist_ok=True)
    log, stopping = audit.log_path(settings), threading.Event()
    begun = log.stat()
    sampler = threading.Thread(target=_sample, args=(folder / "cgroups.jsonl", stopping), name="cgroups", daemon=True)
    sampler.start()

    def collect() -> None:
        with log.open("rb") as lines:
            if os.fstat(lines.fileno()).st_ino != begun.st_ino:
                raise SlopewiseError(f"{log}: the API server has begun another one, and the history has a gap.")
            lines.seek(begun.st_size)
            (folder / "audit.log").write_bytes(lines.read())

    try:
        yield collect
    finally:
        stopping.set()
        sampler.join(_STOP_SECONDS)


def _sample(path: Path, stopping: threading.Event) -> None:
    with path.open("w", encoding="utf-8") as file:
        while not stopping.wait(INTERVAL_SECONDS):
            now = time.time()
            for hierarchy in cgroups.hierarchies():
                for uid, limit in limits(hierarchy / cgroups.OURS).items():
                    file.write(json.dumps({"at": now, "pod": uid, "limitMillicores": limit}) + "\n")
            file.flush()


def limits(folder: Path) -> dict[str, int | None]:
    """The limits of the pods below a folder of one hierarchy, by uid; a pod that ends meanwhile is left out."""
    found = {}
    for path, _, files in os.walk(folder):  # Path.rglob raises where a folder goes meanwhile
        pod, names = _POD.search(path), set(_QUOTAS).intersection(files)
        if pod and names:
            with suppress(OSError):
                found[pod[1]] = _limit(Path(path) / names.pop())
    return found


def _limit(file: Path) -> int | None:
    """Of cgroup v2 `50000 100000` or `max 100000`; of v1 the quota alone, -1 without one."""
    quota, *period = file.read_text().split()
    period_us = int(period[0]) if period else int(file.with_name("cpu.cfs_period_us").read_text())
    return None if quota in ("max", "-1") else round(1000 * int(quota) / period_us)
