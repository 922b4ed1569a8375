"""The address of Redis from HANDOFF_REDIS_URL. The store's clients and Celery's clients use
it. Pure.

    redis://user:password@host:6379/0
    rediss://user:password@host:6379/0?ssl_ca_certs=ca.crt
    sentinel://user:password@host:26379/0?master_name=mymaster;sentinel://host2:26379
    redis://user:password@host:6379/0?prefix=billing

The first part has user, password, database and options; further parts name further sentinels.
`OPTIONS` has the options of each scheme. `ssl=true` means TLS to the sentinels and to the
Redis that they name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from handoff_queue.shared.settings.http_values import MAX_URL_CHARS, has_possible_host

URL_VARIABLE = "HANDOFF_REDIS_URL"
URL_ARGUMENT = "the Redis URL"
"""Name of a URL in errors if the caller passed it, and did not set `URL_VARIABLE`."""
REDIS_PORT = 6379
SENTINEL_PORT = 26379
SENTINEL_MASTER = "mymaster"
"""Default name of the master, from Sentinel's documentation."""
SENTINEL_TIMEOUT_S = 2.0
"""Timeout of a sentinel in seconds. Sentinels answer from memory; a silent sentinel is skipped."""
URL_EXAMPLE = "it looks like redis://:password@host:6379/0"
PREFIX = r"[A-Za-z0-9._-]{1,64}"
_ENCODING_HINT = "(a password with / # ? or @ in it must be percent-encoded)"
_FLAGS = {"true": True, "false": False}
TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
TLS_OPTIONS: Mapping[str, Mapping[str, Any] | None] = {
    **dict.fromkeys((*TLS_FILES, "ssl_ca_path")),
    "ssl_cert_reqs": {"required": "required", "optional": "optional", "none": "none"},
    "ssl_check_hostname": _FLAGS,
}
"""TLS options and their allowed values; None: any value."""
TLS_DEFAULTS: Mapping[str, Any] = {"ssl_cert_reqs": "required", "ssl_check_hostname": True}
"""redis-py below 6 would accept the certificate of another host."""
SHARING_OPTIONS: Mapping[str, Mapping[str, Any] | None] = {"prefix": None}
SENTINEL_OPTIONS: Mapping[str, Mapping[str, Any] | None] = {
    **SHARING_OPTIONS,
    **TLS_OPTIONS,
    "ssl": _FLAGS,
    "master_name": None,
    "sentinel_username": None,
    "sentinel_password": None,
}
OPTIONS: Mapping[str, Mapping[str, Mapping[str, Any] | None]] = {
    "redis": SHARING_OPTIONS,
    "rediss": {**SHARING_OPTIONS, **TLS_OPTIONS},
    "sentinel": SENTINEL_OPTIONS,
}


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """Address of a Redis, or of the sentinels that know its address."""

    scheme: str
    """redis, rediss or sentinel."""
    hosts: tuple[tuple[str, int], ...]
    """Addresses of Redis or of its sentinels."""
    database: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: Mapping[str, Any] | None = None
    """redis-py's options of a TLS connection; None: no TLS. Certificates are checked by default."""
    master_name: str | None = None
    """Name of the master; None without sentinels."""
    sentinel_username: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)

    prefix: str = ""
    """Prefix of every key and of Celery's control exchanges, with a colon at its end; or empty."""

    @property
    def sentinel_options(self) -> dict[str, Any]:
        """Return redis-py's options for connections to sentinels. Each sentinel is asked once
        (`retry`), because another sentinel can answer.
        """
        return {
            "username": self.sentinel_username,
            "password": self.sentinel_password,
            "socket_timeout": SENTINEL_TIMEOUT_S,
            "socket_connect_timeout": SENTINEL_TIMEOUT_S,
            "retry": None,
            "ssl": self.tls is not None,
            **(self.tls or {}),
        }


def read_address(url: str) -> RedisAddress:
    """Return the address in a URL.

    Raises:
        ValueError: the URL is invalid. The message names options but no other part of the URL,
            which may have a password.
    """
    if len(url) > MAX_URL_CHARS:
        raise ValueError(f"must have at most {MAX_URL_CHARS:,} characters; {URL_EXAMPLE}")
    parts = _split_addresses(url)
    first = parts[0]
    scheme = first.scheme
    if not re.fullmatch(r"/?[0-9]{0,9}", first.path):
        raise ValueError(f"its database, after the last slash, must be a number; {URL_EXAMPLE}")
    options = _parse_options(scheme, first.query)
    tls = _build_tls_options(scheme, options)
    prefix = ""
    if "prefix" in options:
        if not re.fullmatch(PREFIX, options["prefix"]):
            raise ValueError(
                "its option prefix must be 1 to 64 of the characters A-Z a-z 0-9 . _ -"
            )
        prefix = f"{options['prefix']}:"
    default_port = REDIS_PORT
    master_name = None
    if scheme == "sentinel":
        default_port = SENTINEL_PORT
        master_name = options.get("master_name", SENTINEL_MASTER)
    hosts = [(part.hostname or "localhost", part.port or default_port) for part in parts]
    return RedisAddress(
        scheme=scheme,
        hosts=tuple(hosts),
        database=int(first.path.strip("/") or 0),
        username=_decode_percent_encoding(first.username),
        password=_decode_percent_encoding(first.password),
        tls=tls,
        master_name=master_name,
        sentinel_username=options.get("sentinel_username"),
        sentinel_password=options.get("sentinel_password"),
        prefix=prefix,
    )


def _split_addresses(url: str) -> list[SplitResult]:
    """Return the parts of each address in a URL. Only a URL of sentinels has several.

    Raises:
        ValueError: an address is invalid, or is not of a sentinel as the first one.
    """
    urls = url.split(";") if url.startswith("sentinel://") else [url]
    parts = list(map(_split, urls))
    for part in parts:
        if part.scheme != parts[0].scheme:
            raise ValueError(
                "each of its parts, also after a ;, must name a sentinel: sentinel://host:26379"
            )
    return parts


def _build_tls_options(scheme: str, options: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the TLS options of redis-py; None: the connection has no TLS.

    Raises:
        ValueError: the options exclude each other.
    """
    tls: dict[str, Any] = {}
    for name in TLS_OPTIONS:
        if name in options:
            tls[name] = options[name]
    has_tls = scheme == "rediss" or options.get("ssl", False)
    if tls and not has_tls:
        raise ValueError("its TLS options need ssl=true")
    if "ssl_keyfile" in options and "ssl_certfile" not in options:
        raise ValueError("its option ssl_keyfile needs ssl_certfile, the certificate of that key")
    if not has_tls:
        return None
    return {**TLS_DEFAULTS, **tls}


def _decode_percent_encoding(part: str | None) -> str | None:
    """Return a user name or a password without percent-encoding; None: there is none."""
    return unquote(part or "") or None


def _split(part: str) -> SplitResult:
    """Return the parts of one address.

    Raises:
        ValueError: the address is invalid.
    """
    if not re.match(r"(?:rediss?|sentinel)://", part):
        raise ValueError(f"it must begin with redis://, rediss:// or sentinel://; {URL_EXAMPLE}")
    if not part.isprintable() or " " in part:  # urlsplit would drop a line break
        raise ValueError(
            "it holds a space, a line break or a control character: remove it, or percent-encode"
            f" it; {URL_EXAMPLE}"
        )
    try:
        split = urlsplit(part)
        port = split.port
    except ValueError:
        raise ValueError(
            f"its port must be a number up to 65535 {_ENCODING_HINT}; {URL_EXAMPLE}"
        ) from None
    if port == 0:
        raise ValueError(f"its port must be a number up to 65535, and not 0; {URL_EXAMPLE}")
    if split.fragment or part.endswith("#"):
        raise ValueError(f"it must not have a # {_ENCODING_HINT}; {URL_EXAMPLE}")
    if split.hostname and not has_possible_host(split):
        raise ValueError(f"its host does not exist {_ENCODING_HINT}; {URL_EXAMPLE}")
    return split


def _parse_options(scheme: str, query: str) -> dict[str, Any]:
    """Return the options after the `?` of a URL, with their values as redis-py takes them.

    Raises:
        ValueError: an option is unknown, empty, or has a wrong value.
    """
    options: dict[str, Any] = {}
    known = OPTIONS[scheme]
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in known:
            raise ValueError(
                f"it has an unknown option after its ? (the options are {', '.join(known)})"
            )
        values = known[name]
        if values is not None and value not in values:
            raise ValueError(f"its option {name} must be one of {', '.join(values)}")
        if not value:
            raise ValueError(f"its option {name} is empty")
        options[name] = value if values is None else values[value]
    return options
