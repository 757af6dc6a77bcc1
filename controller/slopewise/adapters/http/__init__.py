"""HTTP requests to one host within a deadline, configured by an `http_config`."""
