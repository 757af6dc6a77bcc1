"""What a real Prometheus scrapes in tests: pages that a test writes."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Exporters:
    """One HTTP server; each path is the page of one process, and a path without a page is a process that is gone."""

    def __init__(self) -> None:
        self.pages: dict[str, str] = {}
        exporters = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                content = exporters.pages.get(self.path)
                self.send_response(503 if content is None else 200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.end_headers()
                self.wfile.write((content or "").encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        self.address = f"127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
