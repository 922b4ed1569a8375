"""Differences between the versions of redis-py that the client supports: 5.2 to 8."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import redis

_VERSION = tuple(int(part) for part in redis.__version__.split(".")[:2])

health_check_clock = time.monotonic if _VERSION >= (6, 0) else time.time
"""The clock of `next_health_check`, in seconds. redis-py 5 used the wall clock."""


@cache
def driver_info() -> dict[str, Any]:
    """Return the option for a connection that says which driver it belongs to.

    All clients and connections share the object. Otherwise each client reads the version of
    redis-py from the file system. redis-py below 7.2 reads its version when it is imported,
    and needs no option.
    """
    if hasattr(redis, "DriverInfo"):
        return {"driver_info": redis.DriverInfo()}
    return {}


def connection_from(get_connection: Any) -> Any:
    """Return a connection of a pool. redis-py below 5.3 wants the name of a command, and
    ignores it.
    """
    if _VERSION >= (5, 3):
        return get_connection()
    return get_connection("_")


def should_reconnect(connection: Any) -> bool:
    """Return whether the server asked for a new connection. redis-py below 7 knows no such
    request.
    """
    asked = getattr(connection, "should_reconnect", None)
    return asked is not None and bool(asked())
