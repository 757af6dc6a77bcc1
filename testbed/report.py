"""The report of `python -m testbed status`: each component with its process, its state and its memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import psutil
from rich.table import Table

from testbed.processes import Component, Life, Processes

_MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ComponentReport:
    """One component as it is now. `memory_bytes` is what it holds resident, 0 when it is dead."""

    name: str
    pid: int
    life: Life
    memory_bytes: int
    log: str


def look(processes: Processes) -> list[ComponentReport]:
    """All components, in the order in which they were started."""
    return [
        ComponentReport(component.name, component.pid, component.life(), _memory(component), str(processes.log(name)))
        for name, component in processes.state.components.items()
    ]


def as_json(reports: list[ComponentReport]) -> list[dict[str, object]]:
    """For `--output json`."""
    return [asdict(report) for report in reports]


def as_table(reports: list[ComponentReport]) -> Table:
    """For people. The last row is the memory of all of them."""
    table = Table("component", "pid", "life", "MiB", box=None)
    for report in reports:
        table.add_row(report.name, str(report.pid), report.life, f"{report.memory_bytes / _MEBIBYTE:.0f}")
    table.add_row("all", "", "", f"{sum(report.memory_bytes for report in reports) / _MEBIBYTE:.0f}")
    return table


def _memory(component: Component) -> int:
    if component.life() == "dead":
        return 0
    try:
        return int(psutil.Process(component.pid).memory_info().rss)
    except psutil.NoSuchProcess:
        return 0
