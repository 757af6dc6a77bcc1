"""Grafana: our dashboards pushed or exported, and an annotation for each decision.

`client.py` has what both need of the HTTP API; `push.py` has the dashboards, `annotations.py` the decisions.
"""

from slopewise.adapters.grafana.push import PushResult, dashboards_folder, export_dashboards, push_dashboards

__all__ = ["PushResult", "dashboards_folder", "export_dashboards", "push_dashboards"]
