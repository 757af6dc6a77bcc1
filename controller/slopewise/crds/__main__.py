"""Writes the CustomResourceDefinitions: `python -m slopewise.crds`, or checks them with `--check`.

They lie in `manifests/crds/`; the component `policies` applies a patch to one of them. The output is deterministic.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from slopewise.crds.schema.definitions import definitions, patches

FOLDER = Path(__file__).resolve().parents[3] / "manifests"
_HEAD = (
    "# Generated from the models of controller/slopewise/config and controller/slopewise/crds: change those, then\n"
    "# `make generate`.\n"
)


class _Plain(yaml.SafeDumper):
    """Writes what occurs twice out twice: no anchors, which reviewers and other tools stumble over."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def render(document: object) -> str:
    """The definition, or the patch of one, as YAML that a diff can be read of."""
    return _HEAD + yaml.dump(document, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=120)


def outdated(folder: Path) -> dict[Path, str]:
    """What is to be written, by file: the files in `folder` whose content is not what the code generates now."""
    wanted = {folder / "crds" / name: render(definition) for name, definition in definitions().items()}
    wanted |= {folder / "components" / "policies" / name: render(patch) for name, patch in patches().items()}
    return {
        path: text for path, text in wanted.items() if not path.is_file() or path.read_text(encoding="utf-8") != text
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when done or up to date, 1 when `--check` found a file that is not."""
    parser = argparse.ArgumentParser(prog="python -m slopewise.crds", description="Write the resource definitions.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is out of date")
    parser.add_argument("--folder", type=Path, default=FOLDER, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    stale = outdated(options.folder)
    for path, text in stale.items():
        if options.check:
            print(f"{path} is out of date; run make generate and commit the result.", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path}", file=sys.stderr)
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
