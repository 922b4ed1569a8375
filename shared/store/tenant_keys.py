"""Keys that encrypt the texts of a tenant: from a folder of files, or from a function.

A file `TENANT.key` has one key on each line, the newest first. A key has 32 random bytes, as
base64. The name of a tenant is percent-encoded in the name of its file.
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from handoff_queue.shared.settings.file_permissions import check_place, read_private
from handoff_queue.shared.settings.operator_functions import import_function
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.errors import NoTenantKey, UserError

KEY_BYTES = 32
"""Bytes of a key of AES-256."""
MAX_KEYS = 8
"""Most keys of one tenant that are valid at once."""
CHECK_FILE_S = 1.0
"""Seconds for which a file is not looked at again."""


class TenantKeys(Protocol):
    """A source of keys."""

    def find_keys(self, tenant: str) -> Sequence[bytes]:
        """Return the keys of a tenant, the newest first. Empty: the tenant has none.

        Raises:
            NoTenantKey: the keys cannot be read.
        """


@dataclass(frozen=True, slots=True)
class _KnownFile:
    """The file of a tenant at its last check."""

    checked_at: float
    """Monotonic time in seconds."""
    version: tuple[int, ...]
    """Time of modification, size, inode and mode; empty: there was no file."""
    keys: tuple[bytes, ...]


class KeyFiles:
    """Keys from a folder with a file for each tenant. A changed or deleted file has its effect
    after a second.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, _KnownFile] = {}
        self._lock = threading.Lock()

    def find_keys(self, tenant: str) -> Sequence[bytes]:
        now = time.monotonic()
        with self._lock:
            known = self._known.get(tenant)
        if known is not None and now - known.checked_at < CHECK_FILE_S:
            return known.keys
        current = self._read(tenant, now, known)
        with self._lock:
            self._known[tenant] = current
        return current.keys

    def _read(self, tenant: str, now: float, known: _KnownFile | None) -> _KnownFile:
        """Return the file of a tenant as it is now. An unchanged file is not read again."""
        file = self._folder / f"{quote(tenant, safe='')}.key"
        status = self._read_status(file)
        if status is None:
            return _KnownFile(now, (), ())
        version = (status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode)
        if known is not None and known.version == version:
            return replace(known, checked_at=now)
        return _KnownFile(now, version, read_key_file(file))

    def _read_status(self, file: Path) -> os.stat_result | None:
        """Return the status of the file of a tenant, or None if the tenant has no file.

        Raises:
            NoTenantKey: the file or the folder cannot be used. A link without a target and a
                folder that is gone count as lost keys, so that nothing is stored as plain text.
        """
        try:
            check_place(file)
            status = file.stat()
        except FileNotFoundError:
            if self._folder.is_dir() and not file.is_symlink():
                return None
            raise NoTenantKey(f"{file} cannot be read: its folder or its target is gone") from None
        except UserError as error:
            raise NoTenantKey(str(error)) from None
        except OSError as error:
            raise NoTenantKey(f"{file} cannot be read ({error.strerror})") from None
        except RuntimeError:  # of `Path.resolve` before Python 3.13
            raise NoTenantKey(f"{file} is a link to itself") from None
        if not stat.S_ISREG(status.st_mode):
            raise NoTenantKey(f"{file} is not a regular file")
        return status


def read_key_file(file: Path) -> tuple[bytes, ...]:
    """Return the keys in a file.

    Raises:
        NoTenantKey: the file cannot be read, is open to other users, or holds no keys. No key is
            in the message.
    """
    try:
        lines = read_private(file, "key of a tenant").split()
    except UserError as error:
        raise NoTenantKey(str(error)) from None
    except OSError as error:
        raise NoTenantKey(f"{file} cannot be read ({error.strerror})") from None
    keys: list[bytes] = []
    for line in lines:
        try:
            keys.append(base64.b64decode(line, validate=True))
        except binascii.Error:
            keys.append(b"")
    if not keys:
        raise NoTenantKey(f"{file} holds no key: write one, or remove the file")
    return _validate_keys(keys, f"{file}: each line")


class KeyHook:
    """Keys from a function of the operator, such as a client of a key management service."""

    def __init__(self, place: str, keep_s: float) -> None:
        """Import the function.

        Args:
            place: the function, as `module:name`. It takes the name of a tenant, and returns the
                keys, the newest first.
            keep_s: seconds for which the keys of a tenant are kept in memory.
        """
        self._place = place
        self._call: Callable[[str], Any] = import_function(place, "HANDOFF_TENANT_KEY_FUNCTION")
        self._keep_s = keep_s
        self._known: dict[str, tuple[float, tuple[bytes, ...]]] = {}
        self._lock = threading.Lock()

    def find_keys(self, tenant: str) -> Sequence[bytes]:
        with self._lock:  # one call at a time: a service may limit them
            until, tenant_keys = self._known.get(tenant, (0.0, ()))
            if time.monotonic() >= until:
                tenant_keys = self._call_function(tenant)
                self._known[tenant] = (time.monotonic() + self._keep_s, tenant_keys)
            return tenant_keys

    def _call_function(self, tenant: str) -> tuple[bytes, ...]:
        """Return the keys of a tenant from the operator's function.

        Raises:
            NoTenantKey: the function failed, or returned no usable keys.
        """
        try:
            keys: list[object] = list(self._call(tenant) or ())
        except Exception as error:  # noqa: BLE001 (the code of an operator)
            raise NoTenantKey(
                f"{self._place} has no key of tenant {tenant} now ({type(error).__name__})"
            ) from None
        return _validate_keys(keys, f"{self._place}: each key")


def _validate_keys(keys: Sequence[object], subject: str) -> tuple[bytes, ...]:
    """Return the keys.

    Raises:
        NoTenantKey: a key has another length, or there are too many keys.
    """
    checked = tuple(key for key in keys if isinstance(key, bytes) and len(key) == KEY_BYTES)
    if len(checked) != len(keys):
        raise NoTenantKey(f"{subject} must be {KEY_BYTES} bytes, in a file as base64")
    if len(checked) > MAX_KEYS:
        raise NoTenantKey(f"{subject}: there are more than {MAX_KEYS} keys")
    return checked


def open_tenant_keys(settings: Settings) -> TenantKeys | None:
    """Return the source of keys that the settings name, or None.

    Raises:
        UserError: the settings cannot be used.
    """
    if settings.tenant_keys is None and settings.tenant_key_function is None:
        return None
    if settings.tenant_keys is None:
        return KeyHook(str(settings.tenant_key_function), settings.tenant_key_cache_s)
    if settings.tenant_key_function is not None:
        raise UserError("set HANDOFF_TENANT_KEYS or HANDOFF_TENANT_KEY_FUNCTION, but not both")
    if not settings.tenant_keys.is_dir():
        raise UserError(
            f"HANDOFF_TENANT_KEYS: {settings.tenant_keys} is not a folder: create it, or correct"
            " the setting"
        )
    return KeyFiles(settings.tenant_keys)
