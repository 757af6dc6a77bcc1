"""The ports of a Kubernetes cluster: what is read from and written to the API server.

Read `records.py` first (what is kept of each object), then `observer.py` (into a snapshot), `actuator.py` (out of a
decision) and `memory.py` (what survives a restart). Everything that is sent goes through `api.py`.
"""
