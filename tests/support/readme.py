"""The commands that a page says to type at a cluster, as words."""

from __future__ import annotations

import re
import shlex
from pathlib import Path


def kubectl_commands(page: Path) -> list[list[str]]:
    """Every command of its blocks that calls kubectl, in order; each begins with `kubectl`."""
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    commands = [shlex.split(each, comments=True) for line in lines for each in line.split(" | ")]
    return [words for words in commands if words and Path(words[0]).name == "kubectl"]
