"""Which panel shows what an alert is about: the first with a link to its runbook, in the order of the dashboards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from grafana_foundation_sdk.models.dashboard import Dashboard, Panel, RowPanel

from grafana.alerts import runbook_of


class Shown(NamedTuple):
    """A panel of a dashboard."""

    uid: str
    panel_id: int
    title: str

    @property
    def path(self) -> str:
        """Below the address of Grafana: the dashboard with this panel alone."""
        return f"/d/{self.uid}?viewPanel={self.panel_id}"


def shown_in(dashboard: Dashboard) -> Iterator[tuple[str, Shown]]:
    """The address of a runbook and the panel, for each link of a panel to a runbook."""
    for panel in _panels(dashboard.panels or ()):
        for link in panel.links or ():
            yield link.url or "", Shown(dashboard.uid or "", panel.id_val or 0, panel.title or "")


def panel_by_alert(names: Iterable[str], dashboards: Iterable[Dashboard]) -> Mapping[str, Shown | None]:
    """The panel of each of these alerts; None: no panel shows it."""
    by_runbook: dict[str, Shown] = {}
    for dashboard in dashboards:
        for runbook, shown in shown_in(dashboard):
            by_runbook.setdefault(runbook, shown)
    return {name: by_runbook.get(runbook_of(name)) for name in names}


def _panels(panels: Iterable[Panel | RowPanel]) -> Iterator[Panel]:
    for panel in panels:
        if isinstance(panel, Panel):
            yield panel
