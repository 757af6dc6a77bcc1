"""`slopewise` that counts the entries of each of its stores once a minute; `hours.py` starts it.

Its first argument is the file that it writes them to, a line of JSON each time; the others are those of `slopewise`.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import ClassVar, Self

from slopewise.__main__ import main
from slopewise.manager import replica

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
from support.stores import store_sizes

COUNT_SECONDS = 60.0
TRIES = 20
"""Threads change what is being counted, which Python notices."""


class CountedReplica(replica.Replica):
    """Counts from its start to the end of the process."""

    counts: ClassVar[Path]

    def __enter__(self) -> Self:
        threading.Thread(target=self._count, name="stores", daemon=True).start()
        return super().__enter__()

    def _count(self) -> None:
        with self.counts.open("w", encoding="utf-8") as file:
            while True:
                time.sleep(COUNT_SECONDS)
                file.write(json.dumps(self._sizes()) + "\n")
                file.flush()

    def _sizes(self) -> Counter[str]:
        for _ in range(TRIES):
            try:
                return store_sizes(*vars(self).values())
            except RuntimeError as error:
                changed = error
        raise changed


if __name__ == "__main__":
    CountedReplica.counts = Path(sys.argv.pop(1))
    replica.Replica = CountedReplica  # type: ignore[misc]
    main()
