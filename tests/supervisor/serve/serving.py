"""Serve an application on a loopback port, in a thread of the test."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import FastAPI

from handoff_queue.supervisor.serve.server import Server
from tests.waiting import wait_until


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    """Yield the URL of the server. At the end, the server stops as after SIGTERM."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(2_048)
        port = listening.getsockname()[1]
        server = Server(app, lambda: None)
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        wait_until(lambda: server.started, expected="the HTTP server")
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join()
