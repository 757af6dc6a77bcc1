"""`slopewise doctor`: checks everything that a controller needs; nothing is changed.

`cluster` runs the checks in order: `server` (API server, kubelets, clocks, policies, leader), `rights`, `alerts`,
`prometheus` (answers, targets, clock) and `jobs` (series of each pod, kubelets' figures, checkpoints); `machine` those
of `run --local`. `findings` is what they print.
"""
