"""An HTTP server of a test, answering in a thread: what stand-ins for other services are built on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import HTTPServer


@contextmanager
def answering(server: HTTPServer) -> Iterator[str]:
    """Answer until the block ends; the server's address by plain HTTP."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    with server:
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(10)
