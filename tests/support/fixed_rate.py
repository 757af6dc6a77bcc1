"""Sends requests at a fixed rate, answered or not: `python3 -c TEXT URL RATE`, in a pod without our modules."""

import contextlib
import sys
import threading
import time
import urllib.request

MAX_IN_FLIGHT = 200
TIMEOUT_SECONDS = 30
slots = threading.BoundedSemaphore(MAX_IN_FLIGHT)


def send(url: str) -> None:
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer:
        answer.read()
    slots.release()


def main(url: str, per_second: float) -> None:
    """Without end. Those that find too many under way are left out; until the server listens, all fail."""
    began, number = time.monotonic(), 0
    while True:
        time.sleep(max(0.0, began + number / per_second - time.monotonic()))
        if slots.acquire(blocking=False):
            threading.Thread(target=send, args=(f"{url}/predict/{number}",), daemon=True).start()
        number += 1


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
