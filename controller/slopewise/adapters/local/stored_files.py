"""Makes folders and replaces files of a session, with one sentence where the disk is full or may not be written."""

from __future__ import annotations

import os
from pathlib import Path

from slopewise.errors import SlopewiseError


def made_folder(path: Path, mode: int = 0o777, *, exist_ok: bool = True) -> Path:
    """The folder, with those above it; SlopewiseError where it cannot be made, or is there and may not be."""
    try:
        path.mkdir(mode, parents=True, exist_ok=exist_ok)
    except OSError as error:
        raise SlopewiseError(f"{path}: cannot be made ({error.strerror}); {_REMEDY}.") from error
    return path


def replace_file(path: Path, content: bytes, mode: int = 0o600, *, durable: bool = False) -> None:
    """Replace a file; SlopewiseError where that fails, which leaves the former one, as a crash does.

    `durable`: it is on the disk when this returns.
    """
    new = path.with_name(f"{path.name}.new")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            if durable:
                os.fsync(descriptor)
        new.replace(path)
    except OSError as error:
        raise SlopewiseError(f"{path}: cannot be written ({error.strerror}); {_REMEDY}.") from error


_REMEDY = "make room, let this user write there, or name another place"
