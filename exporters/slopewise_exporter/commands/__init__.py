"""The subcommands of `slopewise-exporter`, one module each, imported when they are used."""
