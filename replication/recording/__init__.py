"""Records the losses of the papers' models: small real trainings under the exporter, one file each (`make record`)."""
