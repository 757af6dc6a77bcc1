"""A training of a few seconds for tests: a loss that falls as work is done, and ways to go wrong.

Usage: tiny_training.py SECONDS [WAY [busy|light|idle]]
WAY: crash|nan|restart|step-label|my-metric|my-steps|silent|deaf, or empty

A busy one (as without the word) takes so many seconds of CPU, and a light one a tenth of them, in as long on a quiet
machine. An idle one sleeps instead, for tests of what becomes of a job: many of those run side by side.

Where SLOPEWISE_CHECKPOINT_FOLDER names a folder it saves every 25 steps and on SIGTERM, and goes on from there; but
`deaf` ignores SIGTERM.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Callable

from slopewise_exporter import Checkpoints, Reporter

STEP_SECONDS = 0.02
PAGES = {
    "step-label": """# TYPE training_loss gauge
training_loss{{stage="eval",step="{step}"}} 0.5
""",
    "my-metric": """# TYPE my_val_loss gauge
my_val_loss 0.{step}
learning_rate 0.1
""",
    "my-steps": """# TYPE my_score gauge
my_score{{split="val"}} 0.{step}
global_step {step}
max_steps 4000
""",
}


def burn(cpu_seconds: float) -> None:
    end = time.process_time() + cpu_seconds
    while time.process_time() < end:
        math.sqrt(2.0)


def burn_a_tenth(seconds: float) -> None:
    burn(0.1 * seconds)
    time.sleep(0.9 * seconds)


def train(total_seconds: float, way: str, work: Callable[[float], None]) -> None:
    steps = max(1, round(total_seconds / STEP_SECONDS))
    with Reporter(planned_steps=steps) as reporter, Checkpoints(reporter=reporter, every_steps=25) as checkpoints:
        if way == "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        checkpoints.resume()
        for step in range(checkpoints.steps, steps):
            work(STEP_SECONDS)
            done = step / steps
            loss = math.exp(-4 * done)
            if done > 0.5 and way == "crash":
                raise RuntimeError("the data ran out of the window")
            if done > 0.5 and way == "restart" and not os.environ.get("TINY_RESTARTED"):
                os.environ["TINY_RESTARTED"] = "1"
                os.execv(sys.executable, [sys.executable, *sys.argv])
            reporter.step(loss=math.nan if done > 0.4 and way == "nan" else loss)
            reporter.evaluate(math.nan if done > 0.4 and way == "nan" else loss)
            print(step, flush=True)
            checkpoints.step(lambda: "nothing but the number of steps")


def serve_page(way: str) -> None:
    """An exporter of others: with a label that grows, so that every step is a new series, or with another metric."""
    import http.server
    import threading

    class Page(http.server.BaseHTTPRequestHandler):
        step = 0

        def do_GET(self) -> None:
            Page.step += 1
            body = PAGES[way].format(step=Page.step).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    port = int(os.environ["SLOPEWISE_EXPORTER_PORT"])
    server = http.server.HTTPServer(("127.0.0.1", port), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def main() -> None:
    seconds = float(sys.argv[1])
    way = sys.argv[2] if len(sys.argv) > 2 else ""
    work = {"idle": time.sleep, "light": burn_a_tenth}.get("".join(sys.argv[3:4]), burn)
    if way in PAGES:
        serve_page(way)
    if way in (*PAGES, "silent"):
        work(seconds)
    else:
        train(seconds, way, work)


if __name__ == "__main__":
    main()
