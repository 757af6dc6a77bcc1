"""A model served over HTTP by the standard library, with its response times: GET /predict answers after some work."""

import argparse
from wsgiref.simple_server import make_server

from slopewise_exporter.wsgi import Environ, ResponseTimes, StartResponse

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, default=8000)
port = parser.parse_args().port


def application(environ: Environ, start_response: StartResponse) -> list[bytes]:
    """Your Flask, Django or other WSGI application."""
    if environ["PATH_INFO"] != "/predict":
        start_response("404 Not Found", [("Content-Type", "text/plain")])
        return [b"ask for /predict\n"]
    answer = sum(x * x for x in range(100_000))
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{answer}\n".encode()]


make_server("", port, ResponseTimes(application)).serve_forever()
