"""Reads files with secrets within bounds, detects their changes, and masks secrets in text.

`http/access.py` reads with it what an `http_config` names. Tokens, passwords and certificates rotate: a `Stamp` says
how a file was when it was read.
"""

from __future__ import annotations

import html
import json
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote, quote_plus

from pydantic import SecretStr

from slopewise.errors import UsageError

MAX_FILE_BYTES = 1024 * 1024
"""Bundles of authorities have 250 KB; a larger file was named by mistake."""

MASKED = "<secret>"

Stamp = tuple[int, int, int]
"""Inode (a Secret's volume changes it), bytes, and nanoseconds of the last change (an editor changes these)."""

CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")


class Mask:
    """Takes secrets out of text, however it quotes them; its own `repr` shows how many."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        spellings = {spelling for secret in secrets if secret for spelling in _spellings(secret)}
        self._spellings = sorted(spellings, key=len, reverse=True)

    def __call__(self, text: object) -> str:
        """The text with `<secret>` in the place of each secret."""
        shown = str(text)
        for spelling in self._spellings:
            shown = shown.replace(spelling, MASKED)
        return shown

    def __repr__(self) -> str:
        return f"Mask({len(self._spellings)} spellings)"


def _spellings(secret: str) -> tuple[str, ...]:
    in_json = json.dumps(secret)[1:-1]
    return secret, quote(secret), quote(secret, safe=""), quote_plus(secret), in_json, html.escape(secret)


class SecretFiles:
    """Reads the files that an `http_config` names, beside which relative paths are looked for."""

    def __init__(self, config_file: Path) -> None:
        self._config_file = config_file
        self.stamps: dict[Path, Stamp] = {}
        self.secrets: set[str] = set()

    def path(self, named: str, key: str = "") -> str:
        """The path of a named file, checked to be readable, and noted as it is before it is read."""
        path = self._config_file.parent / named
        try:
            self.stamps[path] = _stamp(path)
        except OSError as error:
            place = f"{self._config_file}: {key}: " if key else ""
            reason = error.strerror or str(error)
            raise UsageError(f"{place}{path} cannot be read ({reason}); give the path of a readable file.") from None
        return str(path)

    def secret(self, given: SecretStr | None, named: str | None, key: str) -> str:
        """A secret that was written, or the content of the file that is named instead; without either, empty."""
        if named is not None:
            return self.content(named, f"{key}_file")
        return self.checked("" if given is None else given.get_secret_value(), key)

    def content(self, named: str, key: str) -> str:
        """What is in a file that holds a secret, without the white space around it."""
        path = self.path(named, key)
        try:
            text = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            self.refuse(key, f"{path} cannot be read as text; write the secret alone into it")
        if not text:
            self.refuse(key, f"{path} is empty; write the secret into it")
        return self.checked(text, key)

    def checked(self, secret: str, key: str) -> str:
        """A secret as it may be sent, which is masked from now on."""
        if CONTROL_CHARACTER.search(secret):
            self.refuse(key, "holds more than one line, or control characters, which cannot be sent")
        if secret:
            self.secrets.add(secret)
        return secret

    def refuse(self, key: str, reason: str) -> NoReturn:
        """UsageError about one key."""
        raise UsageError(f"{self._config_file}: {key}: {reason}.")


def _stamp(path: Path) -> Stamp:
    """OSError where it cannot be read: before it is opened, because a pipe would never end."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(0, "it is not a regular file")
    if found.st_size > MAX_FILE_BYTES:
        raise OSError(0, "it has more than 1 MiB")
    if not os.access(path, os.R_OK):
        raise PermissionError(0, "permission denied")
    return found.st_ino, found.st_size, found.st_mtime_ns


def stamp_or_none(path: Path) -> Stamp | None:
    """The stamp of a file; None: it cannot be read."""
    try:
        return _stamp(path)
    except OSError:
        return None
