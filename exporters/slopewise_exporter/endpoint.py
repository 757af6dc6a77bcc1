"""The HTTP endpoint that Prometheus scrapes, and how it ends.

`environment` says where to listen, and `exposition`, which the first scrape loads, answers. prometheus_client's
ready-made server is not used, because that one asks DNS for the machine's name before it listens, prints a traceback
into the training's output when a scraper hangs up, waits for a silent client forever, and cannot say whether the last
values were fetched.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import threading
from contextlib import ExitStack
from importlib.util import find_spec
from socketserver import BaseRequestHandler, ThreadingTCPServer
from time import monotonic, sleep, time
from typing import TYPE_CHECKING, Any, Callable

from slopewise_exporter.values import Checker

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_log = logging.getLogger("slopewise_exporter")

LOADED_AT_SECONDS = time()
"""When the first endpoint of this process opened."""

CLIENT_TIMEOUT_SECONDS = 5.0
"""A client that neither sends nor reads for this long is dropped."""

MAX_CONCURRENT_SCRAPES = 8
"""A scrape takes some milliseconds, and two replicas of Prometheus are usual; beyond this somebody is playing,
and threads in a training's process cost memory."""

PAUSE_AFTER_FAILED_ACCEPT_SECONDS = 0.1
"""Out of file descriptors, a connection stays pending and readable: tried again at once, it cost 65 % of a core."""

_loading = threading.Lock()
"""Held while the first scrape loads what answers it. A fork waits for that: in its child the lock of a module that
another thread was importing would never be free."""

if hasattr(os, "register_at_fork"):  # there is no fork on Windows
    os.register_at_fork(before=_loading.acquire, after_in_parent=_loading.release, after_in_child=_loading.release)


class MetricsEndpoint(ThreadingTCPServer):
    """Answers scrapes on daemon threads, and knows which scrapes have seen the end of the training."""

    daemon_threads = True
    # The default of 5 is soon full, and a connection that finds it full is tried again only 1 s later.
    request_queue_size = 32
    # `_serve` has already waited: a connection that is gone again must not make `handle_request` wait for another.
    timeout = 0
    # On POSIX this lets a restarted training have the port of its predecessor's dying connections back; on
    # Windows it would let two processes share one port.
    allow_reuse_address = os.name == "posix"
    registry: CollectorRegistry

    def __init__(self, address: str, port: int, make_registry: Callable[[], CollectorRegistry]) -> None:
        """`make_registry` is called by the first scrape. OSError; ModuleNotFoundError without prometheus_client."""
        if find_spec("prometheus_client") is None:
            raise ModuleNotFoundError("No module named 'prometheus_client'")
        self._make_registry: Callable[[], CollectorRegistry] | None = make_registry
        self._check = Checker()
        self.training_ended = False
        self.scraped = False
        self.scraped_after_end = threading.Event()
        self._free_slots = threading.BoundedSemaphore(MAX_CONCURRENT_SCRAPES)
        self._stopping = False
        self._files = ExitStack()
        try:
            self._open(address, port)
            self._thread.start()
        except BaseException:
            self._files.close()
            raise

    def _open(self, address: str, port: int) -> None:
        # All that needs a file descriptor, here and not in `_serve`: no caller would see what fails on a thread.
        self._selector = self._files.enter_context(selectors.DefaultSelector())
        self._stop_receiver, self._stop_sender = map(self._files.enter_context, socket.socketpair())
        self.address_family, where = _resolved(address, port)
        super().__init__(where, BaseRequestHandler)
        self._files.enter_context(self.socket)
        for waited_for in (self, self._stop_receiver):
            self._selector.register(waited_for, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="slopewise-exporter", daemon=True)

    @property
    def port(self) -> int:
        """The one that it really has."""
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        """Of its metrics."""
        host = str(self.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/metrics"

    def _serve(self) -> None:
        """Answer until `close`. Sleeps in between, where `serve_forever` would wake up to look for its end."""
        while not self._stopping:
            ready = [key.fileobj for key, _ in self._selector.select()]
            if self._stop_receiver not in ready:
                self.handle_request()

    def close(self, linger_seconds: float) -> None:
        """Wait for one scrape of the final values, at most `linger_seconds`, then stop listening.

        Does not wait at all where there was never a scrape. KeyboardInterrupt ends the wait and goes on up.
        """
        self.training_ended = True
        try:
            # In slices: a Ctrl-C is seen when a wait ends, where it came just before one or the system is Windows.
            give_up_at = monotonic() + linger_seconds
            while self.scraped and (left_seconds := give_up_at - monotonic()) > 0:
                if self.scraped_after_end.wait(min(left_seconds, 0.5)):
                    break
        finally:
            self._stopping = True
            self._stop_sender.send(b".")  # and no close: a forked child's copy would keep the pair open
            self._thread.join(CLIENT_TIMEOUT_SECONDS)
            self.server_close()

    def abandon_after_fork(self) -> None:
        """In a forked child: let go of the port, or it would stay taken as long as the child lives."""
        self.server_close()

    def server_close(self) -> None:
        """Let go of the port and of everything else that is open."""
        super().server_close()
        self._files.close()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept; after one that failed, which `handle_request` passes over, wait a little."""
        try:
            return super().get_request()
        except OSError:
            sleep(PAUSE_AFTER_FAILED_ACCEPT_SECONDS)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a thread of its own, or hang up when too many are being answered."""
        if not self._free_slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:
            # Python 3.12 and later start no thread once the interpreter is exiting, which is exactly when the
            # last scrape is waited for: answer on this one.
            self.process_request_thread(request, client_address)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Answer. A training without a scrape does not pay for prometheus_client, which takes some 60 ms to load."""
        try:
            with _loading:
                from slopewise_exporter.exposition import ScrapeHandler

                if self._make_registry is not None:
                    self.registry, self._make_registry = self._make_registry(), None
        except Exception as error:  # the training's Python may have a prometheus_client that is too old
            self._check.warn("scrapes", f"no scrape can be answered ({type(error).__name__}: {error})")
            raise
        ScrapeHandler(request, client_address, self)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and free the slot whatever becomes of it."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free_slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A scraper that hangs up is its own business: nothing goes to the training's stderr."""
        _log.debug("a scrape from %s broke off", client_address, exc_info=True)


def _resolved(address: str, port: int) -> tuple[socket.AddressFamily, Any]:
    """The family and the place of an address or a name, IPv4 first; OSError for one that is neither.

    An IPv6 address may stand in the brackets that it has in a URL.
    """
    host = address.strip()
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, where = min(found, key=lambda each: each[0] != socket.AF_INET)
    return family, where
