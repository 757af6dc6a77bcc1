"""Fair sharing and `marginal`, with moves and without: completion times of six real trainings on two nodes.

`crowded_node.py` starts them, five on the small node, and follows them to their end. Fair sharing is what the default
scheduler and equal requests give, with nothing that manages them. `bench_marginal.py 4` runs four rounds, a quarter of
an hour each: every figure then has its 95 % interval, and the table the rounds. Gate: `marginal` has changed CPU in
both runs of each round and moved something in one, no step of a move that was seen at work again was done twice, and
each job ends with the same loss in all runs. Times have no bound; they are what they are.
"""

from __future__ import annotations

import sys
from pathlib import Path

from crowded_runs import moved_cleanly, run_sides, trained_alike

SIDES = {"fair": None, "marginal": "policy.yaml", "marginal, moves": "policy-marginal-moves.yaml"}
"""By the name of a run, the file of its TrainingPolicy: what the README applies, but for its mode, and for the pods
that it selects."""


def main() -> int:
    """Print all runs side by side; 1 when the gate is missed."""
    if sys.argv[2:] or not all(text.isdecimal() and int(text) for text in sys.argv[1:]):
        print(f"{Path(sys.argv[0]).name}: takes how many rounds to run, such as 4; without it one", file=sys.stderr)
        return 2
    rounds = run_sides(SIDES, *map(int, sys.argv[1:]))
    alike = trained_alike(run for runs in rounds for run in runs)
    held = alike
    for _, alone, moving in rounds:
        held &= moved_cleanly(moving) and bool(alone.resizes_applied and moving.resizes_applied)
        print(f"resizes: {alone.resizes_applied}, with moves {moving.resizes_applied}")
    print(f"last losses: {'equal' if alike else 'UNEQUAL'}: {'held' if held else 'MISSED'}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
