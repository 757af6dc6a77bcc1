"""The default scheduler, FlowCon, SpeCon, and both as one: completion times of six real trainings on two nodes.

`crowded_node.py` starts them, five on the small node, and follows them to their end: once as the default scheduler
leaves them, then once under each policy file of `SIDES`, with a `slopewise run` beside the cluster. Same jobs, seeds,
limits, and start. The table sets all runs side by side, with ratios (`crowded_runs.py`, which says what they cannot
show). Gate: under SpeCon something was moved, no step was done twice, and each job ends with the loss that it ends with
in the other runs. Times have no bound; they are what they are.
"""

from __future__ import annotations

import sys

from crowded_runs import moved_cleanly, run_sides, trained_alike

SIDES = {
    "default scheduler": None,
    "flowcon": "policy-flowcon.yaml",
    "specon": "policy-moves.yaml",
    "flowcon+specon": "policy-local-and-global.yaml",
}
"""By the name of a run, the file of its TrainingPolicy: what the README applies, but for its mode, and for the pods
that it selects."""


def main() -> int:
    """Print all runs side by side; 1 when the gate is missed."""
    (runs,) = run_sides(SIDES)
    alike = trained_alike(runs)
    held = [moved_cleanly(run) for run in runs if "specon" in run.policy]
    print(f"last losses: {'equal' if alike else 'UNEQUAL'}: {'held' if alike and all(held) else 'MISSED'}")
    return 0 if alike and all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
