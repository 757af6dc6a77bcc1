"""The client of the API server: requests, fenced writes, the meaning of its errors."""
