"""Refuses a release that could not be made, or not be made again from its tag."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from release import versions
from release.commands import call
from slopewise.errors import UsageError

_TOOLS = {"buildah": "buildah", "debootstrap": "debootstrap", "git": "git", "kubectl": "kubernetes-client"}
"""Programs with the packages that have them on Debian and Ubuntu."""


def refuse_without_tools() -> None:
    """UsageError for a machine that cannot build everything, before anything is built."""
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        packages = " ".join(_TOOLS[tool] for tool in missing)
        raise UsageError(
            f"not on the PATH: {', '.join(missing)}; install it (on Debian and Ubuntu: apt-get install {packages})."
        )
    if os.geteuid() != 0:
        raise UsageError("the image is built without a daemon, which needs root; run make release as root.")


def refuse_unreproducible(root: Path = versions.ROOT) -> str:
    """The version of a tree that is clean, tagged and dated; UsageError with what is to be done for any other."""
    version = versions.current(root)
    if changed := call("git", "status", "--porcelain", cwd=root).splitlines():
        raise UsageError(
            f"the tree is not clean ({changed[0].strip()}, {len(changed)} in all); commit, or remove, that."
        )
    if stale := versions.outdated(root):
        raise UsageError(f"{next(iter(stale))} repeats another version than {version}; run make generate, and commit.")
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE):
        raise UsageError(f"CHANGELOG.md has no date for {version}; write `## {version} - YYYY-MM-DD`, and commit.")
    tags = call("git", "tag", "--points-at", "HEAD", cwd=root).split()
    if f"v{version}" not in tags:
        said = f"is tagged {', '.join(tags)}" if tags else "has no tag"
        raise UsageError(f"the version is {version}, and this commit {said}; git tag v{version} names it so.")
    return version
