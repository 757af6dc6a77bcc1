"""What a scrape shows of this process, as one line of JSON for the test that started it."""

import json
from urllib.request import urlopen

from slopewise_exporter import lifecycle

SHORT = {
    "training_steps_total": "steps",
    "training_epochs_total": "epochs",
    "training_steps_planned": "planned",
    "training_steps_planned_is_upper_bound": "bound",
    'training_loss{stage="train"}': "train",
    'training_loss{stage="eval"}': "eval",
    "training_wait_seconds_total": "waited",
    "training_nonfinite_loss_total": "nonfinite",
}


def show(check):
    """The samples of now, under the name of what is checked."""
    page = urlopen(f"http://127.0.0.1:{lifecycle.newest().port}/metrics").read().decode()
    samples = dict(line.rsplit(" ", 1) for line in page.splitlines() if line.startswith("training_"))
    values = {short: float(samples[name]) for name, short in SHORT.items() if name in samples}
    print("\nSHOWN", json.dumps([check, values]), flush=True)
