"""Users that a reverse proxy has authenticated, for example by OpenID Connect.

A header proves nothing by itself: every program can send it. So the server reads the headers of
the settings only if the address of the connection is an address of a proxy. The proxy must
replace these headers in each request.
"""

from __future__ import annotations

import hashlib
import ipaddress
from dataclasses import dataclass
from functools import lru_cache

from fastapi import Request

from handoff_queue.shared.settings.http_values import EVERY_USER
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.api_tokens import MAX_NAME_CHARS
from handoff_queue.shared.types.api_tokens import AccessLevel
from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.serve.problem_documents import Problem
from handoff_queue.supervisor.serve.request_limits import parse_address

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class ProxyUser:
    """A user that a proxy has authenticated."""

    name: str
    level: AccessLevel
    tenant: str | None
    """The only tenant that the user sees; None for all tenants."""

    @property
    def key(self) -> str:
        """Return a text that identifies the user among callers. It has no separators."""
        return "user-" + hashlib.sha256(f"{self.tenant}\n{self.name}".encode()).hexdigest()[:32]


def check_proxy(settings: Settings) -> None:
    """Check that the settings for a proxy belong together.

    Raises:
        UserError: a setting is missing without which no user has access.
    """
    if settings.serve_user_header is None:
        return
    needed_settings = {
        "HANDOFF_SERVE_PROXIES": settings.serve_proxies,
        "HANDOFF_SERVE_ACCESS": settings.serve_access,
    }
    missing = [name for name, value in needed_settings.items() if not value]
    if missing:
        raise UserError(
            f"HANDOFF_SERVE_USER_HEADER also needs {' and '.join(missing)}: set"
            f" {'it' if len(missing) == 1 else 'them'} too"
        )


def get_address(request: Request, settings: Settings) -> str | None:
    """Return the address of the program that sent a request.

    Proxies add the address of their client to the end of `X-Forwarded-For`. The last address
    that is not a proxy is the address of the program.
    """
    if request.client is None:
        return None
    address = request.client.host
    hops = ",".join(request.headers.getlist("x-forwarded-for")).split(",")
    while hops and is_proxy(address, settings):
        earlier = parse_address(hops.pop().strip())
        if earlier is None:
            break
        address = str(earlier)
    return address


def is_proxy(address: str, settings: Settings) -> bool:
    """Return whether an address is an address of a proxy."""
    ip_address = parse_address(address)
    if ip_address is None:
        return False
    return any(ip_address in network for network in _parse_networks(settings.serve_proxies))


def find_user(request: Request, settings: Settings) -> ProxyUser | None:
    """Return the user that a proxy has authenticated. None: the request names no such user.

    Raises:
        Problem: the proxy names more than one user, or the user has no access level or no tenant.
    """
    header = settings.serve_user_header
    if header is None or request.client is None or not is_proxy(request.client.host, settings):
        return None
    name = _read_header(request, header)
    if not name:
        return None
    level = _find_access_level(request, settings)
    if level is None:
        raise Problem(
            403, f"no group of {name} has access to this server: HANDOFF_SERVE_ACCESS gives it"
        )
    tenant = None
    if settings.serve_tenant_header is not None and level is not AccessLevel.ADMIN:
        tenant = _read_header(request, settings.serve_tenant_header)
        if not tenant:
            raise Problem(403, f"the proxy names no tenant of {name}, and this server needs one")
    return ProxyUser(name, level, tenant)


def _find_access_level(request: Request, settings: Settings) -> AccessLevel | None:
    """Return the highest access level of the groups of a user, or None."""
    groups = {EVERY_USER}
    if settings.serve_groups_header is not None:
        for value in request.headers.getlist(settings.serve_groups_header):
            groups.update(_decode_header(value).replace("|", ",").split(","))
    groups = {group.strip() for group in groups}
    levels: list[AccessLevel] = []
    for entry in settings.serve_access:
        group, _, level = entry.rpartition("=")
        if group.strip() in groups:
            levels.append(AccessLevel(level.strip()))
    ranks = list(AccessLevel)
    return max(levels, key=ranks.index, default=None)


def _read_header(request: Request, header: str) -> str:
    """Return the value of a header, or '' if the request does not have it.

    Raises:
        Problem: the request has the header more than once, or it is not a short line of text.
    """
    values = request.headers.getlist(header)
    if not values:
        return ""
    text = _decode_header(values[0]).strip()
    if len(values) > 1 or len(text) > MAX_NAME_CHARS or not text.isprintable():
        raise Problem(
            403,
            f"the proxy must send the header {header} once, with one line of at most"
            f" {MAX_NAME_CHARS} characters",
        )
    return text


def _decode_header(value: str) -> str:
    """Return the text of a header, whose bytes are UTF-8 or ISO 8859-1."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError:
        return value


@lru_cache(maxsize=16)
def _parse_networks(proxies: tuple[str, ...]) -> tuple[Network, ...]:
    return tuple(map(ipaddress.ip_network, proxies))
