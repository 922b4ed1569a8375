"""`fetch_url`: the tool that fetches a public web page as text. The page is stored with the
job's documents so that it can be cited.

The model chooses the URL, and an untrusted text may have suggested it. So each URL and each
address of its host is checked before the request.
"""

from __future__ import annotations

import ssl
import threading
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import httpcore2
import httpx2
from pydantic import Field

from handoff_queue.shared.agent.tool import ANY_HOST, Tool, ToolContext, ToolFailed
from handoff_queue.shared.documents.extraction import extract
from handoff_queue.shared.documents.media_types import PDF, DocumentRefused, is_text
from handoff_queue.shared.network.pinned_transport import REQUEST_ERRORS, Deadline, PinnedTransport
from handoff_queue.shared.network.ssrf_guard import (
    AddressRefused,
    Policy,
    Resolver,
    is_public,
    is_web_port,
    only_hosts,
    resolve_with_system,
)
from handoff_queue.shared.types.handoff import Document
from handoff_queue.shared.types.origins import WEB
from handoff_queue.workers.tools.read_document import MAX_CHARS, cut_part
from handoff_queue.workers.tools.tool_arguments import Arguments, make_builtin_tool

MAX_BYTES = 5_000_000
"""Bytes of one page, after decompression."""
MAX_SECONDS = 20.0
"""Seconds of one fetch, including redirects."""
MAX_PIECES = 20_000
"""Most pieces of one page. A server may send each byte as a chunk, which costs more processor
time.
"""
MAX_REDIRECTS = 5
_REMEMBERED_PAGES = 256
"""Fetched pages in memory. A call with an offset reads them without another fetch."""
_MAX_URL_CHARS = 1_000
"""Characters of a URL."""
_DESCRIPTION = (
    f"Fetches a public web page, text, JSON or PDF, {MAX_CHARS:,} characters at a time. Quote it"
    " under the returned source."
)
_HEADERS = {
    "user-agent": "handoff-queue (fetch_url)",
    "accept": "text/html, text/*, application/json, application/xml, application/pdf;q=0.9",
    "accept-encoding": "identity",
}


class _Fetch(Arguments):
    url: str = Field(description="with https:// or http://")
    offset: int = Field(default=0, description="where to read on")


@dataclass(frozen=True, slots=True)
class Web:
    """Parameters of the access to the web. Tests replace them to use their own server."""

    resolver: Resolver = resolve_with_system
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
    """Return the tool. Without `web`, it reads the public internet."""
    access = web or Web()

    documents: OrderedDict[tuple[str, str], Document] = OrderedDict()
    """Stored page by job and requested URL. A page may change at each visit, so all parts of
    its text come from one fetch.
    """
    lock = threading.Lock()

    def fetch(arguments: _Fetch, context: ToolContext) -> str:
        url = arguments.url.strip()
        with lock:
            document = documents.get((context.job_id, url))
        if document is not None and arguments.offset > 0:
            return _build_answer(document, context.text_of(document.digest), arguments.offset)
        seconds = min(access.max_seconds, context.remaining_s())
        page = _fetch(url, access, seconds, context.hosts)
        document, text = _keep(page, context)
        with lock:
            documents[context.job_id, url] = document
            while len(documents) > _REMEMBERED_PAGES:
                documents.popitem(last=False)
        return _build_answer(document, text, arguments.offset)

    tool = make_builtin_tool(
        "fetch_url", _DESCRIPTION, _Fetch, fetch, is_lookup=True, origins=(WEB,)
    )
    return replace(tool, reads="public", sends=(ANY_HOST,), url_argument="url")


def _keep(page: _Page, context: ToolContext) -> tuple[Document, str]:
    """Store the page's text as a document that can be cited. Return the document and the text.

    Raises:
        ToolFailed: the page has no text.
    """
    try:
        text = extract(page.data, page.media_type, page.charset)
    except DocumentRefused as reason:
        raise ToolFailed(f"{page.url} {reason}") from None
    if not text.strip():
        raise ToolFailed(f"{page.url} holds no text (made by scripts?): try another page")
    return context.keep_document(page.url, page.media_type, text), text


def _build_answer(document: Document, text: str, given_offset: int) -> str:
    """Return the result of a call: the text from an offset on."""
    return cut_part(document, text, min(max(given_offset, 0), len(text)))


def _fetch(url: str, web: Web, seconds: float, hosts: Sequence[str]) -> _Page:
    """Return the page at a URL, after at most `MAX_REDIRECTS` redirects.

    Args:
        hosts: the only hosts that may be asked; empty: all.

    Raises:
        ToolFailed: the URL is refused, or the page cannot be fetched in time.
    """
    deadline = Deadline(seconds)
    transport = PinnedTransport(
        only_hosts(web.resolver, hosts),
        web.policy,
        deadline,
        web.tls or httpx2.create_ssl_context(),
    )
    with httpx2.Client(
        transport=transport, trust_env=False, follow_redirects=False, headers=_HEADERS
    ) as client:
        for _ in range(MAX_REDIRECTS + 1):
            _check(url)
            page_or_url = _send_request(client, url, web, deadline)
            if isinstance(page_or_url, _Page):
                return page_or_url
            url = page_or_url
    raise ToolFailed(f"more than {MAX_REDIRECTS} redirects, the last to {url[:200]}")


def _send_request(client: httpx2.Client, url: str, web: Web, deadline: Deadline) -> _Page | str:
    """Make one request. Return the page, or the URL of a redirect.

    Raises:
        ToolFailed: there is no page that can be read.
    """
    try:
        client.cookies.clear()
        with client.stream("GET", url) as response:
            if response.has_redirect_location:
                return str(response.url.join(response.headers["location"]))
            if response.status_code != 200:
                raise ToolFailed(f"{url} answered {response.status_code}: try another page")
            media_type, charset = _get_media_type(response, url)
            data = _read_body(response, url, web.max_bytes, deadline)
            return _Page(url.partition("#")[0], media_type, charset, data)
    except AddressRefused as error:
        raise ToolFailed(f"refused: {error}") from None
    except (httpcore2.TimeoutException, httpx2.TimeoutException):
        raise ToolFailed(f"{url} took too long: try another page") from None
    except (*REQUEST_ERRORS, zlib.error) as error:
        raise ToolFailed(
            f"{url} cannot be fetched ({type(error).__name__}: {str(error)[:200]}): try another"
            " page"
        ) from None


def _check(url: str) -> None:
    """Check that a URL may be fetched: an http or https URL without credentials and with a
    web port.

    Raises:
        ToolFailed: the URL is refused.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ToolFailed(f"not a URL: {url[:200]!r}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ToolFailed(f"only http:// and https:// URLs can be fetched, not {url[:200]!r}")
    if parts.username is not None or parts.password is not None:
        raise ToolFailed("a URL with a user name or password in it is not fetched")
    if port is not None and not is_web_port(port):
        raise ToolFailed(f"port {port} is not a web port (80, 443, or above 1023): refused")
    if len(url) > _MAX_URL_CHARS:
        raise ToolFailed(f"a URL of more than {_MAX_URL_CHARS:,} characters is not fetched")


def _get_media_type(response: httpx2.Response, url: str) -> tuple[str, str | None]:
    """Return the media type and the charset of a page.

    Raises:
        ToolFailed: the page cannot be read as text.
    """
    content_type = response.headers.get("content-type", "text/plain")
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type != PDF and not is_text(media_type) and media_type != "application/xhtml+xml":
        raise ToolFailed(f"{url} is {media_type[:80]}, which cannot be read as text")
    return media_type, response.charset_encoding


def _read_body(response: httpx2.Response, url: str, max_bytes: int, deadline: Deadline) -> bytes:
    """Return the content of a page. It is decompressed here in small parts, because a kilobyte
    of gzip can expand to a megabyte.

    Raises:
        ToolFailed: the content is larger than `max_bytes`, or has an unknown compression.
        httpcore2.ReadTimeout: no time is left.
    """
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "", "gzip", "x-gzip", "deflate"):
        raise ToolFailed(
            f"{url} comes compressed in a way that was not asked for ({encoding[:40]})"
        )
    unpacker = None
    if encoding not in ("identity", ""):
        unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)
    data = bytearray()
    for number, piece in enumerate(response.iter_raw()):
        deadline.compute_remaining_s()
        if number >= MAX_PIECES:
            raise ToolFailed(f"{url} comes in more than {MAX_PIECES:,} pieces: try another page")
        if unpacker is None:
            data += piece
        else:
            data += unpacker.decompress(piece, max_bytes + 1 - len(data))
        if len(data) > max_bytes:
            raise ToolFailed(f"{url} is larger than {max_bytes / 1e6:,.1f} MB: try another page")
    return bytes(data)
