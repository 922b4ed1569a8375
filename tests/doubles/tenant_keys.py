"""Files with keys of tenants, and clients that use them."""

from __future__ import annotations

import base64
import os
from pathlib import Path

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.encryption_at_rest import Sealing
from handoff_queue.shared.store.tenant_keys import KeyFiles
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.client import Client


def new_key() -> bytes:
    return os.urandom(32)


def write_keys(folder: Path, tenant: str, *keys: bytes) -> Path:
    """Write the file of a tenant, the newest key first. Return the file."""
    folder.mkdir(mode=0o700, exist_ok=True)
    file = folder / f"{tenant}.key"
    file.touch(mode=0o600)
    file.write_bytes(b"\n".join(map(base64.b64encode, keys)) + b"\n")
    return file


def sealed_client(url: str, folder: Path | None) -> Client:
    """Return a client with a folder of keys, or without keys. It reads changed files at once."""
    return client.connect(url, Settings(offline=True, tenant_keys=folder))


def sealing_of(jobs: Client, folder: Path) -> Sealing:
    """Return the encryption with a folder of keys on the store of a client."""
    return Sealing(KeyFiles(folder), jobs.store.jobs.find_owner)
