"""What a pass is plugged into: the only importers of Prometheus, HTTP, cgroups and Grafana."""
