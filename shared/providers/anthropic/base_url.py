"""The base URL of the Messages API, and the credentials in the URL."""

from __future__ import annotations

from base64 import b64encode
from urllib.parse import unquote, urlsplit, urlunsplit


def split_credentials(base_url: str) -> tuple[str, dict[str, str]]:
    """Return the address of `https://user:password@host/path` without its credentials, and the
    header with the credentials (RFC 7617).

    aiohttp sends no request with both credentials in the URL and such a header, and the SDK sets
    the header.
    """
    try:
        parts = urlsplit(base_url)
    except ValueError:  # the user of the URL reports the fault
        return base_url, {}
    if "@" not in parts.netloc:
        return base_url, {}
    encoded = b64encode(
        f"{unquote(parts.username or '')}:{unquote(parts.password or '')}".encode()
    ).decode()
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])), {
        "Authorization": f"Basic {encoded}"
    }
