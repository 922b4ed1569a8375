"""A browser without scripts that visits the console: it keeps cookies and fills in forms."""

from __future__ import annotations

import re
from html import unescape

from fastapi import FastAPI
from fastapi.testclient import TestClient
from httpx2 import Response

from tests.supervisor.serve.conftest import URL


class Visitor:
    """A user with a browser at another address than the server."""

    def __init__(self, app: FastAPI, address: str = "203.0.113.7", url: str = URL) -> None:
        self.url = url
        self.http = TestClient(
            app,
            base_url=url,
            client=(address, 50_000),
            headers={"Accept": "text/html"},
            follow_redirects=False,
            raise_server_exceptions=False,
        )

    def get(self, path: str) -> Response:
        return self.http.get(path)

    def csrf(self, path: str = "/") -> str:
        """Return the text against forged requests of a page."""
        meta = re.search(r'<meta name="csrf" content="([^"]*)">', self.get(path).text)
        assert meta
        return unescape(meta[1])

    def post(self, path: str, csrf: str | None = None, **fields: str) -> Response:
        """Send a form of the first page, as a browser does."""
        if csrf is None:
            csrf = self.csrf()
        return self.http.post(path, data={"csrf": csrf, **fields}, headers={"Origin": self.url})

    def log_in(self, secret: str, target: str = "/") -> Response:
        csrf = self.csrf("/login")
        return self.post("/login", csrf, token=secret, next=target)
