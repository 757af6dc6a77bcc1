"""Fair sharing and `marginal`, with moves and without: completion times of six real trainings on two nodes.

The jobs, the start and the table are those of `bench_specon.py`. Fair sharing is what the default scheduler and equal
requests give, with nothing that manages them. Gate: `marginal` has changed CPU in both runs and moved something in one,
no step of a move that was seen at work again was done twice, and each job ends with the same loss in all runs. Times
have no bound; they are what they are.
"""

from __future__ import annotations

import sys

from crowded_runs import moved_cleanly, run_sides, trained_alike

SIDES = {"fair": None, "marginal": "policy.yaml", "marginal, moves": "policy-marginal-moves.yaml"}
"""By the name of a run, the file of its TrainingPolicy: what the README applies, but for its mode, and for the pods
that it selects."""


def main() -> int:
    """Print all runs side by side; 1 when the gate is missed."""
    fair, alone, moving = run_sides(SIDES)
    alike = trained_alike([fair, alone, moving])
    moved = moved_cleanly(moving)
    acted = all(run.resizes_applied for run in (alone, moving))
    print(f"resizes: {alone.resizes_applied}, with moves {moving.resizes_applied}")
    held = alike and moved and acted
    print(f"last losses: {'equal' if alike else 'UNEQUAL'}: {'held' if held else 'MISSED'}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
