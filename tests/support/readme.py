"""The README's commands for a cluster, as words."""

from __future__ import annotations

import re
import shlex

from support.rendering import ROOT


def cluster_commands() -> list[list[str]]:
    """Every command of the section "On a cluster" that calls kubectl, in order; each begins with `kubectl`."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.split("## On a cluster\n")[1].split("\n## ")[0]
    lines = "\n".join(re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)).splitlines()
    commands = [shlex.split(line, comments=True) for line in lines]
    return [words for words in commands if words and words[0] == "kubectl"]
