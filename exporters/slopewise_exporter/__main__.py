"""The command `slopewise-exporter`: metrics of a training without a change to its code.

Each subcommand is a module of `slopewise_exporter.commands` with `SUMMARY` and `main(arguments) -> exit code`, and is
imported only when it is used: `run` stands before every start of a training.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

COMMANDS = {"run": "run", "tail": "tail", "check-pattern": "check_pattern"}
"""Subcommand: its module below `slopewise_exporter.commands`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit code; 2 where there is none of that name."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help"):
        print(_help())
        return 0 if given else 2
    if given[0] == "--version":
        from slopewise_exporter import __version__

        print(__version__)
        return 0
    if given[0] not in COMMANDS:
        print(f"slopewise-exporter: no command {given[0]!r}; there are {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    result: int = _module(given[0]).main(given[1:])
    return result


def _help() -> str:
    lines = [f"  {name:<15}{_module(name).SUMMARY}" for name in COMMANDS]
    return "\n".join(["usage: slopewise-exporter COMMAND ...   (COMMAND --help has its options)", "", *lines])


def _module(name: str):  # type: ignore[no-untyped-def]
    return import_module(f"slopewise_exporter.commands.{COMMANDS[name]}")


if __name__ == "__main__":
    sys.exit(main())
