"""Checks of texts that become part of an HTTP request: header values, server addresses,
proxies, and the base URL of the Messages API. The module also checks the settings for a reverse
proxy that authenticates users. Pure.

Each check raises a `ValueError` that names the fault and the correction. No message holds any
part of the text, which may be a secret.
"""

from __future__ import annotations

import ipaddress
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv6Address
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

from handoff_queue.shared.types.api_tokens import AccessLevel

EVERY_USER = "*"
"""The group that every user of the proxy belongs to."""
_HEADER = re.compile(r"[A-Za-z0-9-]{1,100}")


def split_credentials(base_url: str) -> tuple[str, dict[str, str]]:
    """Split a URL such as `https://user:password@host/path` into the URL without its
    credentials and the `Authorization` header with them (RFC 7617). Without credentials there
    is not a header.

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


MAX_URL_CHARS = 2_000
MAX_HEADER_CHARS = 8_000
"""Most HTTP servers refuse longer headers."""
PROXY_VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")
"""Variables that name a proxy. Their lower-case names are read, too, and come first, as in
`urllib.request.getproxies`.
"""

_VISIBLE = re.compile(r"[ -~]*")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""The name of a header: RFC 9110, section 5.6.2."""
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = re.compile(rf"{_LABEL}(\.{_LABEL})*\.?")
_AFTER_ADDRESS = re.compile(r"\](:[0-9]*)?$")
"""End of an IPv6 address: only a port may follow."""
_SERVER = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]{0,20}://)(?:[^/?#@]*@)?([A-Za-z0-9.-]{1,80})(?![^/?#:])"
)
_MAX_HOST_CHARS = 253
"""RFC 1035, section 2.3.4."""


def check_hosts(values: Sequence[str]) -> tuple[str, ...]:
    """Return the hosts in small letters, if each is a name, `*.NAME` or an IP address.

    Raises:
        ValueError: a value is something else, such as a URL.
    """
    for value in values:
        if not _HOST.fullmatch(value.removeprefix("*.")) and not _is_ipv6(value):
            raise ValueError("must be hosts with commas, such as hooks.internal,*.example.org")
    return tuple(value.lower() for value in values)


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


def check_header_value(value: str) -> None:
    """Check a header value.

    Raises:
        ValueError: the text cannot be the value of an HTTP header.
    """
    if value != value.strip():
        raise ValueError(
            "begins or ends with a space or a line break: remove it (a shell does: $(cat FILE))"
        )
    if not _VISIBLE.fullmatch(value):
        raise ValueError(
            "holds a line break or a character outside ASCII, which an HTTP header cannot contain:"
            " copy it again"
        )
    if len(value) > MAX_HEADER_CHARS:
        raise ValueError(f"has more than {MAX_HEADER_CHARS:,} characters: shorten it")


def check_headers(text: str) -> None:
    """Check a text with one header `Name: value` in each line.

    Raises:
        ValueError: a line is not a header.
    """
    for line in filter(str.strip, text.split("\n")):
        name, colon, value = line.partition(":")
        if not colon or not _TOKEN.fullmatch(name.strip()):
            raise ValueError("must hold `Name: value`, a header in each line")
        check_header_value(value.strip())


def parse_headers(text: str) -> dict[str, str]:
    """Return the headers in a text that `check_headers` accepts. Other lines are left out."""
    headers: dict[str, str] = {}
    for line in text.split("\n"):
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip()] = value.strip()
    return headers


def check_server_url(url: str) -> None:
    """Check the base address of an HTTP server, to which a client appends paths. It may hold a
    user and a password.

    Raises:
        ValueError: the address cannot be used.
    """
    parts = split_http_url(url)
    if parts.query or parts.fragment or url.endswith(("?", "#")):
        raise ValueError(
            "must end with its host or its path, without a ? or # part (a password with one of"
            " these must be percent-encoded)"
        )


def split_http_url(url: str) -> SplitResult:
    """Return the parts of an absolute http(s) URL.

    Raises:
        ValueError: no request can be sent to this URL.
    """
    example = "it looks like https://host.example/path"
    if not url or len(url) > MAX_URL_CHARS:
        raise ValueError(f"must have 1 to {MAX_URL_CHARS:,} characters")
    if not _VISIBLE.fullmatch(url) or " " in url:
        raise ValueError(
            "holds a space, a line break or a character outside ASCII: remove it, or percent-encode"
            " it (a host: Punycode)"
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError(f"has a host or a port that does not exist; {example}") from None
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"must begin with http:// or https://; {example}")
    if port == 0 or not has_possible_host(parts):
        raise ValueError(f"has a host or a port that does not exist; {example}")
    return parts


def get_server(url: str) -> str:
    """Return the scheme and the host of a URL for an error, as in `ftp://h.example `, or ""
    without them. The user, the password, the path and the query may be secrets.
    """
    server = _SERVER.match(url)
    if server is None:
        return ""
    return f"{server[1]}{server[2]} "


def has_possible_host(parts: SplitResult) -> bool:
    """Return whether the host of a URL is a name or an address that can exist."""
    host = parts.hostname or ""
    if "[" in parts.netloc:
        if not _AFTER_ADDRESS.search(parts.netloc):
            return False
        try:
            IPv6Address(host)
        except ValueError:
            return False
        return True
    return len(host) <= _MAX_HOST_CHARS and _HOST.fullmatch(host) is not None


class ProxySetting(NamedTuple):
    """An environment variable with the URL of a proxy."""

    variable: str
    url: str


def find_proxy(scheme: str, environment: Mapping[str, str]) -> ProxySetting | None:
    """Return the proxy for servers of this scheme. None: there is no proxy."""
    for name in (f"{scheme}_proxy", f"{scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY"):
        if value := environment.get(name):
            return ProxySetting(name, value)
    return None


def find_proxy_problems(server: str, environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the name of each proxy variable without a usable address, and its fault.

    Args:
        server: the URL of the model's server.
    """
    parts = urlsplit(server)
    if parts.hostname and proxy_bypass_environment(parts.hostname, _no_proxy(environment)):
        return
    used_proxy = find_proxy(parts.scheme, environment)
    for variable in PROXY_VARIABLES:
        for name in (variable.lower(), variable):
            if value := environment.get(name):
                try:
                    _check_proxy(value, is_used=(name, value) == used_proxy)
                except ValueError as error:
                    yield f"{name}: {error}"


def _no_proxy(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the proxy exceptions in the form that `urllib.request` takes."""
    return {"no": environment.get("no_proxy") or environment.get("NO_PROXY") or ""}


def _check_proxy(url: str, *, is_used: bool) -> None:
    """Check the address of a proxy. HTTP clients treat an address without a scheme as http.

    Args:
        is_used: True if requests to the model's server use this proxy.
    """
    if url != url.strip():
        raise ValueError("begins or ends with a space or a line break: remove it")
    if re.match(r"socks\w*://", url, re.IGNORECASE):
        if not is_used:
            return  # many shells set ALL_PROXY in addition to the variables that apply
        raise ValueError("SOCKS proxies are not supported: name an http:// or https:// proxy")
    parts = split_http_url(url if "://" in url else f"http://{url}")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(
            "must be a host and a port only, such as http://proxy.example:3128 "
            "(a password with / ? # or @ in it must be percent-encoded)"
        )


def check_networks(values: Sequence[str]) -> Sequence[str]:
    """Return the values if each is an IP address or a network.

    Raises:
        ValueError: a value is something else.
    """
    for value in values:
        try:
            ipaddress.ip_network(value)
        except ValueError:
            raise ValueError(
                "must be IP addresses or networks with commas, such as 10.0.0.7,192.0.2.0/24"
            ) from None
    return values


def check_header_name(value: str) -> str:
    """Return the value if it is the name of a header.

    Raises:
        ValueError: the value has another character, or is too long.
    """
    if not _HEADER.fullmatch(value):
        raise ValueError("must be the name of a header: letters, digits and hyphens")
    return value


def check_group_access(values: Sequence[str]) -> Sequence[str]:
    """Return the values if each is `GROUP=LEVEL`.

    Raises:
        ValueError: a value has another form, or there is no such access level.
    """
    for value in values:
        group, _, level = value.rpartition("=")
        if not group.strip() or level.strip() not in set(AccessLevel):
            raise ValueError(
                "must be GROUP=LEVEL with commas, with a level of read, submit, operate, admin"
            )
    return values
