"""Credentials in the base URL of the Messages API."""

from __future__ import annotations

from base64 import b64encode
from urllib.parse import unquote, urlsplit, urlunsplit


def split_credentials(base_url: str) -> tuple[str, dict[str, str]]:
    """Split a URL such as `https://user:password@host/path` into the URL without its
    credentials and the `Authorization` header with them (RFC 7617). Without credentials there
    is no header.

    aiohttp refuses a request with credentials in its URL and an `Authorization` header, and
    the SDK may set this header.
    """
    try:
        parts = urlsplit(base_url)
    except ValueError:  # the client that uses the URL reports the fault
        return base_url, {}
    if "@" not in parts.netloc:
        return base_url, {}
    credentials = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    encoded = b64encode(credentials.encode()).decode()
    url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return url, {"Authorization": f"Basic {encoded}"}
