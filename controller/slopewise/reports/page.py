"""Renders a report as one self-contained HTML file, and writes it whole or not at all.

All foreign text reaches a page escaped: by jinja2's autoescape in the text and the pictures, by `tojson` in the data of
the script (no `</script>` can end it).
"""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from slopewise.errors import SlopewiseError, UsageError
from slopewise.reports.report import Report
from slopewise.reports.wording import plain

if TYPE_CHECKING:
    from jinja2 import Environment

# The curves of eight jobs over five minutes are about 0.2 MiB, those of a hundred over a day 3 MiB.
_ROOM_BYTES = 8 * 1024 * 1024


def check_writable(path: Path, option: str = "--report") -> None:
    """Find out before anything starts whether the file of `option` can be written to `path`.

    UsageError for a path that cannot be one, SlopewiseError where the disk has no room for the file.
    """
    try:
        _check(path, _real(path), option)
    except OSError as error:
        raise UsageError(f"{option} {path} cannot be used ({error.strerror}); name another place.") from error


def write_page(page: str, path: Path) -> None:
    """Write a page to `path`, whole or not at all; SlopewiseError when it cannot be written."""
    target = _real(path)
    beside = target.with_name(f".slopewise-report-{uuid.uuid4().hex}.tmp")
    try:
        try:
            with beside.open("xb") as file:
                file.write(page.encode("utf-8", errors="replace"))
                file.flush()
                os.fsync(file.fileno())  # a full disk may say so only now
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise SlopewiseError(
            f"The report could not be written to {path} ({error.strerror}); make room or name another place."
        ) from error


def write_report(report: Report, path: Path) -> None:
    """Write the page of a report, whole or not at all; SlopewiseError when it cannot be written."""
    write_page(page_of(report), path)


def page_of(report: Report) -> str:
    """The page as text."""
    # Data for the values under the mouse, by the chart's id; without charts whose shapes have titles.
    hover = {each.id: each.plot.hover() for each in report.charts if each.plot.lines or each.plot.areas}
    return _environment().get_template("report.html.j2").render(report=report, hover=hover)


def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # the extra `report`

    pages = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # The charts' data compact and in the order of the page.
    pages.policies["json.dumps_kwargs"] = {"sort_keys": False, "separators": (",", ":")}
    pages.filters["plain"] = plain
    return pages


def _check(path: Path, target: Path, option: str) -> None:
    if target.is_dir():
        raise UsageError(f"{option} {path} is a folder; name a file in it.")
    if target.exists() and not target.is_file():
        raise UsageError(f"{option} {path} is not a regular file; name one that can be written.")
    if not target.parent.is_dir():
        raise UsageError(f"{option} {path}: the folder {target.parent} is missing; create it or name another.")
    # The report is renamed into its place, so an older file there need not be writable, but its folder must be.
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise UsageError(f"{option} {path}: this user cannot write to the folder {target.parent}; name another place.")
    if shutil.disk_usage(target.parent).free < _ROOM_BYTES:
        raise SlopewiseError(f"{option} {path}: its disk has less than 8 MiB free; make room or name another place.")


def _real(path: Path) -> Path:
    """Where a link leads, so that the file behind it is replaced and not the link. Never raises, unlike resolve."""
    return Path(os.path.realpath(path))
