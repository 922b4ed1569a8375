"""The keys of the processes that `handoff up` starts."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from handoff_queue.shared.settings.folders import expand_folder
from handoff_queue.shared.trust.key_files import (
    keyring_file,
    make_keys,
    private_key_file,
    read_keyring,
)
from handoff_queue.shared.trust.keyring import CLIENT, EVERY_ROLE, Identity, Right
from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.cli.embedded_system import WITHOUT_KEYS


@dataclass(frozen=True, slots=True)
class LocalKeys:
    """The keys of the processes of one `handoff up`."""

    folder: Path | None = None
    """None: the processes sign nothing."""
    workers: Mapping[str, str | None] = field(default_factory=dict)
    """The identity of each worker process, by its name."""

    def variables(self, identity: str | None) -> dict[str, str]:
        """Return the variables of a process. None: the process has no private key."""
        if self.folder is None:
            return WITHOUT_KEYS
        key = ""
        if identity is not None:
            key = str(private_key_file(self.folder, identity))
        return {"HANDOFF_KEYS": str(self.folder), "HANDOFF_SIGNING_KEY": key}

    def lines(self) -> list[str]:
        """Return the lines that the other terminal needs."""
        if self.folder is None:
            return []
        variables = self.variables(CLIENT)
        return [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]


def signing_of(named: Path | None, queues: Mapping[str, Sequence[str]]) -> LocalKeys:
    """Return the keys in a folder, and make the folder's keys if it has none.

    Args:
        named: the folder; None: nothing is signed.
        queues: see `workers_of`.

    Raises:
        UserError: the folder cannot be used, or has no key for a worker process.
    """
    if named is None:
        return LocalKeys(workers=dict.fromkeys(queues))
    folder = expand_folder(named, "--keys").resolve()
    if folder.is_file():
        folder = folder.parent
    if not keyring_file(folder).exists():
        make_keys(folder)
    identities = read_keyring(keyring_file(folder)).identities
    workers: dict[str, str | None] = {}
    for name, roles in queues.items():
        workers[name] = _identity_of(roles, identities, folder)
    return LocalKeys(folder, workers)


def _identity_of(roles: Sequence[str], identities: Mapping[str, Identity], folder: Path) -> str:
    """Return the identity of a worker process with these specialists; empty: all specialists."""
    for name, identity in identities.items():
        wanted = roles or (EVERY_ROLE,)
        is_worker = Right.RESULT in identity.may
        if is_worker and all(map(identity.has_role, wanted)):
            return name
    raise UserError(
        f"no key in {folder} is for a worker of {', '.join(roles) or 'all specialists'}: make one"
        " with `handoff keys init`, or start one process for each role (--worker SPECIALIST=N)"
    )
