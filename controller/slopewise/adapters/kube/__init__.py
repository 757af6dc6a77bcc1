"""The ports of a Kubernetes cluster: watches and patches of the API server.

Reading order: `cache/records.py` (the kept fields of each object), `observer.py` (a snapshot), `resize/actuator.py`
(patches), `state/job_memory.py` (what survives a restart), `client/client.py` (requests).
"""
