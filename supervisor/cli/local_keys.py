"""The keys of the processes that `handoff up` starts."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from handoff_queue.shared.settings.folders import expand_folder
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.trust.key_files import (
    KEYRING,
    build_key_variables,
    find_keyring_file,
    make_chosen_keys,
)
from handoff_queue.shared.trust.keyring import (
    CLIENT,
    NOT_SIGNED,
    WORKER,
    Identity,
    create_identities,
    find_workers_identity,
    name_worker_identity,
)
from handoff_queue.shared.types.errors import UserError

OWN_FOLDER = "keys"
"""Folder of the keys in the home folder of `handoff up`."""
_OTHERS = name_worker_identity("others")


@dataclass(frozen=True, slots=True)
class LocalKeys:
    """The keys of the processes of one `handoff up`."""

    folder: Path | None = None
    """None: the processes sign nothing."""
    workers: Mapping[str, str | None] = field(default_factory=dict)
    """The identity of each worker process, by its name."""
    why_none: str = ""
    """Message about processes that sign nothing."""

    def build_variables(self, identity: str | None) -> dict[str, str]:
        """Return the variables of a process: the public keys, and the private key of its identity.
        None: the process has no private key.
        """
        return build_key_variables(self.folder, identity)

    def build_lines(self) -> list[str]:
        """Return the lines that the other terminal needs."""
        if self.folder is None:
            return []
        variables = self.build_variables(CLIENT)
        return [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]


def prepare_local_keys(
    home: Path,
    settings: Settings,
    queues: Mapping[str, Sequence[str]],
    named_folder: Path | None,
    *,
    has_none: bool,
) -> LocalKeys:
    """Return the keys of the processes, and make the missing keys of their folder.

    With the private Redis, the folder is in the home folder. With a Redis of the user, and
    without a named folder, nothing is signed.

    Args:
        home: the home folder of `handoff up`.
        queues: see `parse_workers` of `handoff up`.
        named_folder: folder that the user has named.
        has_none: True if the user wants no keys.

    Raises:
        UserError: the folder cannot be used.
    """
    if named_folder is not None and has_none:
        raise UserError("--keys and --no-keys exclude each other: choose one")
    folder = named_folder or settings.keys
    if has_none or folder is None:
        why_none = _explain_unsigned(home, settings, has_none=has_none)
        if why_none:
            return LocalKeys(workers=dict.fromkeys(queues), why_none=why_none)
        folder = home / OWN_FOLDER
    folder = expand_folder(folder, "--keys").resolve()
    if folder.is_file():
        if folder.name != KEYRING:
            option = "HANDOFF_KEYS" if named_folder is None else "--keys"
            raise UserError(f"{option} {folder} is a file: name a folder, or its {KEYRING}")
        folder = folder.parent
    workers: dict[str, str | None] = {}

    def choose(known: Mapping[str, Identity]) -> Mapping[str, Identity]:
        identities = dict(known)
        for name, specialists in queues.items():
            identity = _choose_name(find_workers_identity(specialists), identities)
            workers[name] = identity
            identities.setdefault(identity, find_workers_identity(specialists))
        users = {
            name: identity for name, identity in create_identities(()).items() if name != WORKER
        }
        return users | identities

    make_chosen_keys(folder, choose)
    return LocalKeys(folder, workers)


def _explain_unsigned(home: Path, settings: Settings, *, has_none: bool) -> str:
    """Return the message that nothing is signed; '' if the keys of the home folder are used."""
    if has_none:
        return f"{NOT_SIGNED} (--no-keys)"
    if settings.redis_url is not None:
        return f"{NOT_SIGNED}: handoff up --keys DIR signs them"
    own_folder = home / OWN_FOLDER
    if (home / "redis").exists() and not find_keyring_file(own_folder).exists():
        return (
            f"{NOT_SIGNED}: {home} may have open jobs of a start without keys. After their end, use"
            f" handoff up --keys {shlex.quote(str(own_folder))}"
        )
    return ""


def _choose_name(wanted_identity: Identity, known: Mapping[str, Identity]) -> str:
    """Return the name of an identity with exactly these specialists, or else a new name.

    An identity never gets other specialists. Otherwise its earlier results would become invalid.
    """
    for name, identity in known.items():
        if set(identity.may) == set(wanted_identity.may) and set(identity.specialists) == set(
            wanted_identity.specialists
        ):
            return name
    usual = _OTHERS
    if wanted_identity.specialists == find_workers_identity(()).specialists:
        usual = WORKER
    elif len(wanted_identity.specialists) == 1:
        usual = name_worker_identity(wanted_identity.specialists[0])
    name, number = usual, 2
    while name in known:
        name, number = f"{usual}-{number}", number + 1
    return name
