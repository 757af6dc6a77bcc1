"""The controller as a process of a cluster: what plugs the adapters of `adapters/kube` into passes.

Read `process.py` first (what starts and ends the process), then `leading.py` (what the one leader does), `runner.py`
(one TrainingPolicy and its passes).
"""
