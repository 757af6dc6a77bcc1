"""`slopewise` with the policies of `support/policies` beside its own; `controller_process.py` starts it."""

from __future__ import annotations

from pathlib import Path

import slopewise.policies
from slopewise.__main__ import main

if __name__ == "__main__":
    slopewise.policies.__path__.append(str(Path(__file__).resolve().parent / "policies"))
    main()
