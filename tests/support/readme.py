"""What tests of several folders read in pages: the README's commands for a cluster, and the anchors of a page."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from support.rendering import ROOT


def cluster_commands() -> list[list[str]]:
    """Every command of the section "On a cluster" that calls kubectl, in order; each begins with `kubectl`."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.split("## On a cluster\n")[1].split("\n## ")[0]
    lines = "\n".join(re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)).splitlines()
    commands = [shlex.split(line, comments=True) for line in lines]
    return [words for words in commands if words and words[0] == "kubectl"]


def anchors(page: Path) -> set[str]:
    """The anchors of a page on GitHub: those of its headings, and those that it sets itself."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    slugs = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([\w-]+)"></a>', text))
