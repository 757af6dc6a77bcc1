"""Hooks of mkdocs: the site has what the pages link to outside of docs/, and reads Markdown as GitHub does.

`mkdocs.yml` names this file. On GitHub `../manifests/overlays/minimal` is a folder beside docs/. A site has docs/
alone, so each file that is linked is copied under `source/`, a folder becomes a page that lists its files, and the
Markdown pages of the root become pages under `project/`. The links are rewritten to match, and mkdocs checks them all.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROJECT = {
    "README.md": "project/readme.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "exporters/README.md": "project/exporter.md",
}
"""The pages outside of docs/, and where they are in the site."""

_LINK = re.compile(r"(\]\()([^)#\s]+)(?=[^)]*\))")
_FENCE = re.compile(r"^( *```.*?^ *```[^\n]*\n?)", re.MULTILINE | re.DOTALL)
_NESTED = re.compile(r"^ {2,3}(?=[-*] |\d+\. )", re.MULTILINE)
_CODE_IN_ROW = re.compile(r"`[^`\n]*\\\|[^`\n]*`")


def site_path(repository_path: str) -> str:
    """Where a file of the repository is in the site: docs/moves.md is moves.md, examples/jobs.yaml is in source/."""
    if repository_path in PROJECT:
        return PROJECT[repository_path]
    path = Path(repository_path)
    if path.parts[0] == "docs" and path.suffix in {".md", ".svg", ".png"}:
        return repository_path.removeprefix("docs/")
    return f"source/{repository_path}/index.md" if (ROOT / path).is_dir() else f"source/{repository_path}"


def repository_path(site_path: str) -> str:
    """The file of the repository that a page of the site is written from."""
    of_project = {value: key for key, value in PROJECT.items()}
    if site_path.startswith("source/"):
        return site_path.removeprefix("source/")
    return of_project.get(site_path) or f"docs/{site_path}"


def linked(page: str) -> Iterator[str]:
    """The files and folders of the repository that a page links to, which exist."""
    for prose, _code in _split((ROOT / page).read_text(encoding="utf-8")):
        for _, target in _LINK.findall(prose):
            if (found := _target(page, target)) is not None:
                yield found


def as_in_the_site(page: str, markdown: str) -> str:
    """The page with links that hold in the site, and with lists and tables in the form that Python-Markdown reads."""
    here = Path(site_path(page)).parent

    def link(match: re.Match[str]) -> str:
        found = _target(page, match[2])
        return match[0] if found is None else match[1] + Path(os.path.relpath(site_path(found), here)).as_posix()

    def prose(text: str) -> str:
        text = _NESTED.sub(" " * 4, _LINK.sub(link, text))
        # GitHub takes `a \| b` in a table for a | b; Python-Markdown shows the backslash.
        return _CODE_IN_ROW.sub(lambda code: code[0].replace("\\|", "|"), text)

    return "".join(prose(text) + _in_its_list(code) for text, code in _split(markdown))


def listing(folder: str) -> str:
    """The page of a folder: its files, each a link."""
    names = [f"- [{each.name}]({site_name(each)})" for each in children(folder)]
    return f"# {folder}\n\n" + "\n".join(names) + "\n"


def children(folder: str) -> list[Path]:
    """What of a folder belongs to the site."""
    return sorted(each for each in (ROOT / folder).iterdir() if not each.name.startswith((".", "__pycache__")))


def site_name(path: Path) -> str:
    """A file of a folder as the folder's own page names it."""
    return f"{path.name}/index.md" if path.is_dir() else path.name


def on_config(config: Any) -> Any:
    """Anchors as GitHub makes them, which the documents link to."""
    from pymdownx.slugs import slugify  # type: ignore[import-not-found]  # noqa: PLC0415 - of the site's environment alone

    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    return config


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages of the project, and all that a page links to."""
    for page, path in PROJECT.items():
        _add(files, config, path, abs_src_path=str(ROOT / page))
    pages = [repository_path(each.src_uri) for each in files.documentation_pages()]
    for target in _outside(each for page in pages for each in linked(page)):
        if (ROOT / target).is_dir():
            _add(files, config, site_path(target), content=listing(target))
        else:
            _add(files, config, site_path(target), abs_src_path=str(ROOT / target))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrites a page of the repository; the listings are written for the site already."""
    original = repository_path(page.file.src_uri)
    return as_in_the_site(original, markdown) if (ROOT / original).is_file() else markdown


def _outside(targets: Iterable[str]) -> list[str]:
    """Those that the site gets from elsewhere than docs/, with what their folders hold and their pages link to."""
    found: set[str] = set()
    pending = [each for each in targets if site_path(each).startswith("source/")]
    while pending:
        if (each := pending.pop()) not in found:
            found.add(each)
            if (ROOT / each).is_dir():
                pending += [str(child.relative_to(ROOT)) for child in children(each)]
            elif each.endswith(".md"):
                pending += [target for target in linked(each) if site_path(target).startswith("source/")]
    return sorted(found)


def _target(page: str, link: str) -> str | None:
    """What a link of a page leads to, as a path of the repository; None for an address, or where there is nothing."""
    path = Path(os.path.normpath(ROOT / Path(page).parent / link))
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) and path.exists() and path != ROOT else None


def _in_its_list(code: str) -> str:
    """A block of code; one that belongs to an entry of a list is indented by four, as the list is."""
    return textwrap.indent(code, "  ") if code.startswith("  ```") else code


def _split(markdown: str) -> Iterator[tuple[str, str]]:
    """Prose and the block of code after it, in turn."""
    parts = [*_FENCE.split(markdown), ""]
    return zip(parts[::2], parts[1::2], strict=True)


def _add(files: Any, config: Any, uri: str, **source: str) -> None:
    from mkdocs.structure.files import (  # type: ignore[import-not-found]  # noqa: PLC0415 - of the site's environment alone
        File,
        InclusionLevel,
    )

    listed = InclusionLevel.INCLUDED if uri.startswith("project/") else InclusionLevel.NOT_IN_NAV
    files.append(File.generated(config, uri, inclusion=listed, **source))
