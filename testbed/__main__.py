"""The command line of the test-bed: `python -m testbed up`, `down`, `status`, `run`, `load-image`, `fault`, `kwok`."""

from __future__ import annotations

import sys

from slopewise.errors import SlopewiseError
from testbed.cli import app


def main() -> None:
    """Run it; an expected error ends it with one message and its exit code."""
    try:
        app()
    except SlopewiseError as error:
        print(f"testbed: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("testbed: interrupted; `python -m testbed down` cleans up what was started.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
