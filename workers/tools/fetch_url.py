"""`fetch_url`: a public web page as text, stored with the job's documents so that it can be cited.

The model chooses the address, and an untrusted text may have suggested it. So an address is refused
unless every part is known to be harmless.
"""

from __future__ import annotations

import json
import ssl
import threading
import zlib
from collections import OrderedDict
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpcore2
import httpx2
from pydantic import Field

from handoff_queue.shared.agent.tool import Tool, ToolContext, ToolFailed
from handoff_queue.shared.documents.decoding import DocumentRefused
from handoff_queue.shared.documents.extraction import extract
from handoff_queue.shared.documents.media_types import PDF, is_text
from handoff_queue.shared.types.handoff import Document
from handoff_queue.workers.tools.arguments import Arguments, make_builtin_tool
from handoff_queue.workers.tools.pinned_http import (
    AddressRefused,
    Deadline,
    PinnedTransport,
    Policy,
    Resolver,
    is_public,
    system_resolver,
)

MAX_BYTES = 5_000_000
"""Bytes of one page, after decompression."""
MAX_SECONDS = 20.0
"""Seconds of one fetch, including redirects."""
MAX_REDIRECTS = 5
MOST_CHARS = 12_000
"""Characters of one answer."""
_REMEMBERED_PAGES = 256
"""Whose reading can go on without fetching them again."""
_LONGEST_URL = 1_000
_DESCRIPTION = (
    f"Fetch a public web page, text file, JSON or PDF by its http(s) URL. Returns its text ({MOST_CHARS:,} characters at a time; "
    "to read on, call again with `offset` set to where the previous text ended). The page can then be quoted and cited under the returned "
    "source. Addresses of private networks are refused."
)
_HEADERS = {
    "user-agent": "handoff-queue (fetch_url)",
    "accept": "text/html, text/*, application/json, application/xml, application/pdf;q=0.9",
    "accept-encoding": "identity",
}


class _Fetch(Arguments):
    url: str = Field(description="The whole URL, beginning with https:// or http://")
    offset: int = Field(
        default=0, description="Characters to skip from the start of the page's text."
    )


@dataclass(frozen=True, slots=True)
class Web:
    """Access to the web; tests use their own server instead."""

    resolver: Resolver = system_resolver
    policy: Policy = is_public
    tls: ssl.SSLContext | None = None
    max_bytes: int = MAX_BYTES
    max_seconds: float = MAX_SECONDS


@dataclass(frozen=True, slots=True)
class _Page:
    url: str
    media_type: str
    charset: str | None
    data: bytes


def fetch_url_tool(web: Web | None = None) -> Tool:
    """Return the tool; by default it reads the public internet."""
    reached = web or Web()

    known: OrderedDict[tuple[str, str], Document] = OrderedDict()
    """(job, URL as asked for) -> the page as it was kept: a page that changes at each visit
    must still be read in one piece.
    """
    lock = threading.Lock()

    def fetch(given: _Fetch, context: ToolContext) -> str:
        url = given.url.strip()
        with lock:
            document = known.get((context.job_id, url))
        if document is not None and given.offset > 0:
            return _answer(document, context.text_of(document.digest), given.offset)
        document, text = _kept(
            _fetched(url, reached, min(reached.max_seconds, context.remaining_s())), context
        )
        with lock:
            known[context.job_id, url] = document
            while len(known) > _REMEMBERED_PAGES:
                known.popitem(last=False)
        return _answer(document, text, given.offset)

    return make_builtin_tool("fetch_url", _DESCRIPTION, _Fetch, fetch)


def _kept(page: _Page, context: ToolContext) -> tuple[Document, str]:
    """Store the page's text so that it can be cited, and return it."""
    try:
        text = extract(page.data, page.media_type, page.charset)
    except DocumentRefused as reason:
        raise ToolFailed(f"{page.url} {reason}") from None
    if not text.strip():
        raise ToolFailed(f"{page.url} holds no text (made by scripts?): try another page")
    return context.keep_document(page.url, page.media_type, text), text


def _answer(document: Document, text: str, given_offset: int) -> str:
    offset = min(max(given_offset, 0), len(text))
    piece = text[offset : offset + MOST_CHARS]
    return json.dumps(
        {"source": document.path, "offset": offset, "total_chars": len(text), "text": piece},
        ensure_ascii=False,
    )


def _fetched(url: str, web: Web, seconds: float) -> _Page:
    """Follow redirects to the page.

    Raises:
        ToolFailed: in one line, for the model.
    """
    deadline = Deadline(seconds)
    transport = PinnedTransport(
        web.resolver, web.policy, deadline, web.tls or httpx2.create_ssl_context()
    )
    with httpx2.Client(
        transport=transport, trust_env=False, follow_redirects=False, headers=_HEADERS
    ) as client:
        for _ in range(MAX_REDIRECTS + 1):
            _check(url)
            outcome = _one_request(client, url, web, deadline)
            if isinstance(outcome, _Page):
                return outcome
            url = outcome
    raise ToolFailed(f"more than {MAX_REDIRECTS} redirects, the last to {url[:200]}")


def _one_request(client: httpx2.Client, url: str, web: Web, deadline: Deadline) -> _Page | str:
    """Return the page, or the address that it has moved to."""
    try:
        client.cookies.clear()
        with client.stream("GET", url) as response:
            if response.has_redirect_location:
                return str(response.url.join(response.headers["location"]))
            if response.status_code != 200:
                raise ToolFailed(f"{url} answered {response.status_code}: try another page")
            media_type, charset = _type_of(response, url)
            return _Page(
                url.partition("#")[0],
                media_type,
                charset,
                _body(response, url, web.max_bytes, deadline),
            )
    except AddressRefused as error:
        raise ToolFailed(f"refused: {error}") from None
    except (httpcore2.TimeoutException, httpx2.TimeoutException):
        raise ToolFailed(f"{url} took too long: try another page") from None
    except (
        httpcore2.NetworkError,
        httpcore2.ProtocolError,
        httpx2.HTTPError,
        httpx2.InvalidURL,
        zlib.error,
        OSError,
        UnicodeError,
    ) as error:
        raise ToolFailed(
            f"{url} cannot be fetched ({type(error).__name__}: {str(error)[:200]})"
        ) from None


def _check(url: str) -> None:
    """Check that an address is the address of a web page."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ToolFailed(f"not a URL: {url[:200]!r}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ToolFailed(f"only http:// and https:// URLs can be fetched, not {url[:200]!r}")
    if parts.username is not None or parts.password is not None:
        raise ToolFailed("a URL with a user name or password in it is not fetched")
    if port is not None and port < 1024 and port not in (80, 443):
        raise ToolFailed(f"port {port} is not one of the web: refused")
    if len(url) > _LONGEST_URL:
        raise ToolFailed(f"a URL of more than {_LONGEST_URL:,} characters is not fetched")


def _type_of(response: httpx2.Response, url: str) -> tuple[str, str | None]:
    media_type = (
        response.headers.get("content-type", "text/plain").partition(";")[0].strip().lower()
    )
    if media_type != PDF and not is_text(media_type) and media_type != "application/xhtml+xml":
        raise ToolFailed(f"{url} is {media_type[:80]}, which cannot be read as text")
    return media_type, response.charset_encoding


def _body(response: httpx2.Response, url: str, max_bytes: int, deadline: Deadline) -> bytes:
    """Return the content up to the limit. It is decompressed here in small parts: a kilobyte of
    gzip can expand to a megabyte.
    """
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "", "gzip", "x-gzip", "deflate"):
        raise ToolFailed(
            f"{url} comes compressed in a way that was not asked for ({encoding[:40]})"
        )
    if encoding in ("identity", ""):
        unpacker = None
    else:
        unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)
    data = bytearray()
    for piece in response.iter_raw():
        deadline.left_s()
        if unpacker is None:
            data += piece
        else:
            data += unpacker.decompress(piece, max_bytes + 1 - len(data))
        if len(data) > max_bytes:
            raise ToolFailed(f"{url} is larger than {max_bytes / 1e6:,.1f} MB: try another page")
    return bytes(data)
