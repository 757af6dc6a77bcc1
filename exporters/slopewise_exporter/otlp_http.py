"""The HTTP session of the OpenTelemetry exporter, which reports why a request failed. Only `otlp` imports this.

The exporter itself takes each 2xx for success, also the page of a proxy and an answer that names rejected points, and
logs of a time-out that there was one.
"""

from __future__ import annotations

from typing import Any, Callable

import requests
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse


class ReportingSession(requests.Session):
    """Calls `report(reason)` for each request that does not do what it should."""

    def __init__(self, report: Callable[[str], None]) -> None:
        super().__init__()
        self._report = report

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """As its base, which calls it again for each redirect."""
        try:
            answer = super().send(request, **options)
        except requests.RequestException as error:
            # urllib3's own reason, without the pool and the path before it.
            cause = getattr(error.args[0], "reason", error) if error.args else error
            self._report(f"{request.url} cannot be reached ({cause})")
            raise
        if (reason := refusal(answer)) is not None:
            self._report(f"{answer.url} {reason}")
        return answer


def refusal(answer: requests.Response) -> str | None:
    """Why an answer does not say that all was taken; None: it does, or it is a redirect."""
    kind = answer.headers.get("Content-Type", "")
    if not answer.ok:
        text = " ".join(answer.text.split())
        return f"answered {answer.status_code} ({text or answer.reason})"
    if answer.is_redirect:
        return None
    if "html" in kind:
        return f"answered {answer.status_code} with {kind}, and is no OTLP receiver"
    if not kind.startswith("application/x-protobuf"):
        return None
    partial = ExportMetricsServiceResponse.FromString(answer.content).partial_success
    if not partial.rejected_data_points and not partial.error_message:
        return None
    return f"rejects a part of them: {partial.rejected_data_points} points: {partial.error_message}"
