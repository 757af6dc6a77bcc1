"""Checks the way of an alert: from the Service `slopewise-alerts` over its endpoints to the port of the controller."""

from __future__ import annotations

from collections.abc import Iterator

from slopewise.adapters.http.alert_webhook import PATH
from slopewise.adapters.kube.cache.reflector import objects
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.paths import path_of
from slopewise.adapters.kube.client.protocol import Api, Json
from slopewise.adapters.kube.client.retry import get_or_none
from slopewise.adapters.kube.connection import LEASE_NAME
from slopewise.operate.doctor.findings import Finding
from slopewise.reports.wording import counted

SERVICE = "slopewise-alerts"
OPTION = "--alert-token-file"
_APPLY = "apply manifests/components/alerts in the namespace of the controller"


def check_alerts(api: Api, namespace: str) -> Iterator[Finding]:
    """`namespace`: the controller's. No finding where neither the controller nor a Service is for alerts."""
    listens = None
    try:
        listens = _listens(api, namespace)
        service = get_or_none(api, path_of("v1", "services", namespace, SERVICE))
        if service is None:
            if listens:
                text = f"the controller takes alerts, and there is no Service {namespace}/{SERVICE}: none arrives"
                yield Finding("alerts", "failed", text, _APPLY)
            return
        yield _of_service(api, namespace, service, listens=listens)
    except ApiError as error:
        if listens is False and error.is_forbidden:
            return  # the controller's own account may not read Services, and needs none here
        yield Finding("alerts", "unchecked", f"the way of alerts cannot be read: {error}")


def _listens(api: Api, namespace: str) -> bool:
    """Whether the Deployment of the controller has the option; False where there is none."""
    deployment = get_or_none(api, path_of("apps/v1", "deployments", namespace, LEASE_NAME)) or {}
    template: Json = (deployment.get("spec") or {}).get("template") or {}
    containers = (template.get("spec") or {}).get("containers") or ()
    return any(str(arg).startswith(OPTION) for each in containers for arg in each.get("args") or ())


def _of_service(api: Api, namespace: str, service: Json, *, listens: bool) -> Finding:
    """What the Service leads to."""
    name = f"Service {namespace}/{SERVICE}"
    if not listens:
        return Finding("alerts", "failed", f"{name} leads to a controller without {OPTION}", _APPLY)
    path = path_of("discovery.k8s.io/v1", "endpointslices", namespace)
    params = {"labelSelector": f"kubernetes.io/service-name={SERVICE}"}
    slices = list(objects(api, path, params))
    # Kubernetes takes an unknown state for ready.
    ready = [
        slice_
        for slice_ in slices
        for each in slice_.get("endpoints") or ()
        if (each.get("conditions") or {}).get("ready") is not False
    ]
    if not ready:
        remedy = "see whether the controller is ready, and compare the Service's selector with its pods' labels"
        return Finding("alerts", "failed", f"{name} leads to no ready pod: no alert arrives", remedy)
    if not all(any(each.get("port") for each in slice_.get("ports") or ()) for slice_ in ready):
        return Finding(
            "alerts", "failed", f"{name} leads to no port of its pods", "name the pods' port in its targetPort"
        )
    port = next((each.get("port") for each in (service.get("spec") or {}).get("ports") or ()), None)
    url = f"http://{SERVICE}.{namespace}.svc:{port}{PATH}"
    return Finding("alerts", "ok", f"{url} leads to {counted(len(ready), 'ready pod')}")
