"""Writes the dashboards' JSON: `python grafana/generate.py`; `--check` compares instead.

The JSON travels to clusters as a ConfigMap (`kustomization.yaml` beside this file), to a Grafana by `slopewise
dashboards push`, and into the wheel. The same code gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))  # run as a file, Python knows only this folder, not the package it is

from grafana_foundation_sdk.cog.encoder import JSONEncoder  # noqa: E402
from grafana_foundation_sdk.models.dashboard import Dashboard  # noqa: E402

from grafana.controller import controller  # noqa: E402
from grafana.job import job  # noqa: E402
from grafana.nodes import nodes  # noqa: E402
from grafana.overview import overview  # noqa: E402

DASHBOARDS = {"controller.json": controller, "job.json": job, "nodes.json": nodes, "overview.json": overview}


def render(dashboard: Dashboard) -> str:
    """The dashboard as text that a diff can be read of: sorted keys, two spaces, a newline at the end."""
    return json.dumps(dashboard, cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def files(folder: Path) -> dict[Path, str]:
    """All that is generated, by its place in `folder`."""
    return {folder / name: render(build()) for name, build in DASHBOARDS.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when done or up to date, 1 when `--check` found a file that is not."""
    options = _parser().parse_args(arguments)
    wanted = files(options.folder)
    stale = [path for path, text in wanted.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if options.check:
            print(f"{path} is out of date; run python grafana/generate.py and commit the result.", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path], encoding="utf-8")
            print(f"wrote {path}", file=sys.stderr)
    return 1 if options.check and stale else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Write the dashboards' JSON from their Python code.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is out of date")
    parser.add_argument("--folder", type=Path, default=HERE / "dashboards", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
