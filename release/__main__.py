"""`python -m release`: `versions` writes the version everywhere; `build` and `install-check` are what `make` calls."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from release import build, installation, versions
from slopewise.errors import SlopewiseError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command("versions")
def write_versions(
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 when a file is out of date.")] = False,
) -> None:
    """Write the version into all files that repeat it."""
    stale = versions.outdated()
    for path, text in stale.items():
        if check:
            print(f"{path} is out of date; run make generate and commit the result.", file=sys.stderr)
        else:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path}", file=sys.stderr)
    raise typer.Exit(1 if check and stale else 0)


@app.command("install-check")
def check_installation() -> None:
    """Build the wheels, install them into an empty environment, and run what they bring."""
    with build.packages_of_now() as packages, installation.installed(packages, versions.current()) as environment:
        installation.check(environment, versions.current())
    print("The wheels install into an empty environment, and run there.", file=sys.stderr)


@app.command("build")
def build_release() -> None:
    """Make everything of a release in `dist/`, of a clean and tagged tree."""
    build.build_release()


if __name__ == "__main__":
    try:
        app()
    except SlopewiseError as error:
        print(f"release: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
