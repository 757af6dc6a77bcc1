r"""Lines out of blocks of bytes: half lines, `\r` of progress bars, invalid UTF-8, lines without an end."""

from __future__ import annotations

MAX_LINE_BYTES = 262_144
"""Of a longer line only these are kept, so that a log without line ends takes no more memory than this."""


class LineSplitter:
    """Collects blocks and returns whole lines, without their ends."""

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max = max_line_bytes
        self._rest = b""
        self._skipping = False

    @property
    def pending_bytes(self) -> int:
        """Of the line that has no end yet, as far as they are kept."""
        return len(self._rest)

    def feed(self, block: bytes) -> list[str]:
        """The lines that end in this block. What is no UTF-8 is replaced; NUL bytes, which truncated files have, go."""
        if b"\r" in block:
            block = block.replace(b"\r", b"\n")
        if b"\0" in block:
            block = block.replace(b"\0", b"")
        end = block.rfind(b"\n")
        if end < 0:
            self._keep(block)
            return []
        whole = block[:end]
        if self._skipping:
            cut = whole.find(b"\n")
            whole = b"" if cut < 0 else whole[cut:]
            self._skipping = False
        whole = self._rest + whole
        self._rest = b""
        self._keep(block[end + 1 :])
        return [line[: self._max] for line in whole.decode("utf-8", "replace").split("\n") if line]

    def flush(self) -> list[str]:
        """The line that has no end yet: nothing more comes, or nothing has for a while."""
        rest, self._rest, self._skipping = self._rest, b"", False
        return [rest.decode("utf-8", "replace")] if rest else []

    def _keep(self, part: bytes) -> None:
        if self._skipping:
            return
        self._rest += part
        if len(self._rest) > self._max:
            self._rest = self._rest[: self._max]
            self._skipping = True
