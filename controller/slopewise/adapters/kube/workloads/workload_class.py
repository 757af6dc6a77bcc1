"""The workload class of a pod: which jobs run the same program, as far as its template shows. Pure.

Class records (`estimators/workload_classes.py`) are kept by it. Tenants write annotations and commands, so a class is
always one of the pod's own namespace: no other tenant's jobs count for it.
"""

from __future__ import annotations

import hashlib

from slopewise.adapters.kube.cache.records import ContainerRecord
from slopewise.adapters.kube.workloads.owners import Identity

_DIGEST_BYTES = 6


def workload_class(identity: Identity, namespace: str, container: ContainerRecord, stated: str | None) -> str:
    """`namespace/stated`, or `namespace/#digest` of the workload's kind and the container's program.

    `stated`: by the annotation `slopewise.dev/class`. Empty where the program is not known.
    """
    if stated is not None:
        return f"{namespace}/{stated}"
    if not container.program:
        return ""
    kind = f"{identity.workload.kind} {container.program}"
    return f"{namespace}/#{hashlib.blake2b(kind.encode(), digest_size=_DIGEST_BYTES).hexdigest()}"
