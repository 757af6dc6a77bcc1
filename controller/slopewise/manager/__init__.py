"""The controller's process on a cluster: connects the adapters of `adapters/kube` to passes.

Reading order: `replica.py` (starts and ends the process), `leader.py` (the leader's work), `policy_runner.py` (one
TrainingPolicy and its passes).
"""
