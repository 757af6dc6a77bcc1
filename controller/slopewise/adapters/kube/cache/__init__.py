"""Watched objects, parsed into records and kept in stores."""
