"""`slopewise doctor`: checks everything that a controller of a cluster needs; nothing is changed.

`cluster` runs the checks in order: `server` (API server, kubelets, clocks, policies, leader), `rights`, `prometheus`
(answers, targets, clock) and `jobs` (series of each pod, kubelets' figures, checkpoints).
"""
