"""Checks of the settings for a reverse proxy that authenticates users. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from handoff_queue.shared.types.api_tokens import AccessLevel

EVERY_USER = "*"
"""The group that every user of the proxy belongs to."""
_HEADER = re.compile(r"[A-Za-z0-9-]{1,100}")


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
