"""Files of keys: `keyring.json` with all public keys, and one private key for each identity.

A private key is `IDENTITY.key`, in PEM, with mode 0600. After a rotation, the key before it follows
in the same file. No other file, setting, log or message holds a private key.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

from handoff_queue.shared.trust.keyring import (
    MOST_KEYS,
    Identity,
    Keyring,
    PublicKey,
    Right,
    new_identities,
    public_text,
    standard_identities,
)
from handoff_queue.shared.trust.pair_codes import PrivateKey
from handoff_queue.shared.types.errors import MalformedMessage, UserError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_PEM_BEGIN = b"-----BEGIN"
KEYRING = "keyring.json"
PRIVATE, PUBLIC = 0o600, 0o644
MOST_FILE_BYTES = 1_000_000
"""Bytes of the largest file of keys that is read."""


def keyring_file(keys: Path) -> Path:
    """Return the file of the public keys: `keys`, or a file in this folder."""
    if keys.is_dir():
        return keys / KEYRING
    return keys


def private_key_file(folder: Path, identity: str) -> Path:
    """Return the file of an identity's private key."""
    return folder / f"{identity}.key"


def read_keyring(file: Path) -> Keyring:
    """Read the public keys.

    Raises:
        UserError: the file cannot be read, or is not a keyring.
    """
    try:
        return Keyring.from_json(_read(file))
    except OSError as error:
        raise UserError(
            f"the keys in {file} cannot be read ({error.strerror}): make them with"
            " `handoff keys init DIR`, and name DIR in HANDOFF_KEYS"
        ) from error
    except MalformedMessage as error:
        raise UserError(f"{file} is not a file of public keys: {error}") from error


def read_private_keys(file: Path) -> tuple[PrivateKey, ...]:
    """Read the private keys of an identity: the newest, and the one before it.

    Raises:
        UserError: the file cannot be read, is open to other users, or has no key of Ed25519.
    """
    try:
        if _is_open(file.stat()):
            raise UserError(f"other users can read the private key {file}: chmod 600 {file}")
        text = _read(file)
    except OSError as error:
        raise UserError(
            f"the private key {file} cannot be read ({error.strerror}): name the key of this"
            " process in HANDOFF_SIGNING_KEY"
        ) from error
    found: list[PrivateKey] = []
    for part in text.split(_PEM_BEGIN)[1:]:
        if (key := _parsed(_PEM_BEGIN + part)) is not None:
            found.append(PrivateKey(key))
    if not found:
        raise UserError(f"{file} has no private key of Ed25519: make it with `handoff keys init`")
    return tuple(found)


def _parsed(pem: bytes) -> Ed25519PrivateKey | None:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, Ed25519PrivateKey) else None


def _is_open(file: os.stat_result) -> bool:
    """Return whether other users can read a file. Kubernetes gives the files of a Secret to root
    and to the group of the pod, so the group of a file of root may read it.
    """
    others = 0o077
    if file.st_uid == 0 and os.geteuid() != 0:
        others = 0o037
    return bool(file.st_mode & others)


def make_keys(
    folder: Path, roles: Sequence[str] = (), pools: Mapping[str, Sequence[str]] | None = None
) -> list[str]:
    """Make the keys of an installation that are missing in a folder. Return the identities that
    got a key.

    Args:
        roles, pools: see `new_identities`.

    Raises:
        UserError: the folder or a file cannot be written.
    """
    return make_keys_of(folder, new_identities(roles, pools))


def make_keys_of(folder: Path, wanted: Mapping[str, Identity]) -> list[str]:
    """Make the keys of the identities that a folder does not have. Return their names.

    Raises:
        UserError: the folder or a file cannot be written.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        identities: dict[str, Identity] = {}
        if (folder / KEYRING).exists():
            identities.update(read_keyring(folder / KEYRING).identities)
        made: list[str] = []
        for name in wanted.keys() - identities.keys():
            made.append(name)
        for name in sorted(made):
            identities[name] = _with_new_key(folder, name, wanted[name])
        _write_keyring(folder, identities)
    except OSError as error:
        raise UserError(f"{folder} cannot hold keys ({error.strerror}): name another") from error
    return sorted(made)


def add_rights(folder: Path) -> dict[str, list[Right]]:
    """Add the missing rights to the identities that have a standard name, and return the added
    rights of each. A keyring of an older version has no right that a later version added.

    Raises:
        UserError: the keyring cannot be read or written.
    """
    identities = dict(read_keyring(folder / KEYRING).identities)
    added: dict[str, list[Right]] = {}
    for name, standard in standard_identities(identities).items():
        missing = [right for right in standard.may if right not in identities[name].may]
        if missing:
            added[name] = missing
            rights = (*identities[name].may, *missing)
            identities[name] = identities[name].model_copy(update={"may": rights})
    if added:
        _replace_keyring(folder, identities)
    return added


def rotate_key(folder: Path, name: str) -> PublicKey:
    """Replace the private key of an identity. The key before it stays valid until the next
    rotation, and stays in the file: codes of messages that wait are for this key.

    The public key is written first, so that every signature can be checked.

    Raises:
        UserError: there is no such identity, or a file cannot be written.
    """
    identities = dict(read_keyring(folder / KEYRING).identities)
    if name not in identities:
        known = ", ".join(sorted(identities))
        raise UserError(f"there is no identity {name[:64]!r}: the identities are {known}")
    private, file = _generate(), private_key_file(folder, name)
    content = _pem(private)
    with suppress(UserError):  # a missing or damaged file is replaced
        content += _pem(read_private_keys(file)[0])
    key = _public_key(private)
    known_keys = (key, *identities[name].keys)[:MOST_KEYS]
    identities[name] = identities[name].model_copy(update={"keys": known_keys})
    try:
        _write_keyring(folder, identities)
        _write(file, content, PRIVATE)
    except OSError as error:
        raise UserError(f"{folder} cannot be written ({error.strerror})") from error
    return key


def add_exchange_keys(folder: Path) -> list[str]:
    """Add the missing keys for codes to the identities whose private key is in the folder. Return
    the names of these identities.

    Raises:
        UserError: the keyring cannot be read or written.
    """
    identities = dict(read_keyring(folder / KEYRING).identities)
    added: list[str] = []
    for name, identity in identities.items():
        private: dict[str, PrivateKey] = {}
        with suppress(UserError):  # the private keys are on another host
            for key in read_private_keys(private_key_file(folder, name)):
                private[key.id] = key
        keys: list[PublicKey] = []
        for public in identity.keys:
            found = private.get(public.id)
            if found is None or public.exchange is not None:
                keys.append(public)
                continue
            exchange = public_text(found.exchange_public)
            keys.append(public.model_copy(update={"exchange": exchange}))
        if tuple(keys) != identity.keys:
            added.append(name)
            identities[name] = identity.model_copy(update={"keys": tuple(keys)})
    if added:
        _replace_keyring(folder, identities)
    return added


def _with_new_key(folder: Path, name: str, identity: Identity) -> Identity:
    """Write a new private key, and return the identity with the public key."""
    private = _generate()
    _write(private_key_file(folder, name), _pem(private), PRIVATE)
    return identity.model_copy(update={"keys": (_public_key(private),)})


def _generate() -> PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return PrivateKey(Ed25519PrivateKey.generate())


def _public_key(private: PrivateKey) -> PublicKey:
    return PublicKey(
        id=private.id,
        public=public_text(private.public),
        exchange=public_text(private.exchange_public),
        created_at=datetime.now(UTC).replace(microsecond=0),
    )


def _pem(private: PrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    return private.ed25519.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _replace_keyring(folder: Path, identities: Mapping[str, Identity]) -> None:
    """Write the keyring.

    Raises:
        UserError: it cannot be written.
    """
    try:
        _write_keyring(folder, identities)
    except OSError as error:
        raise UserError(f"{folder} cannot be written ({error.strerror})") from error


def _write_keyring(folder: Path, identities: Mapping[str, Identity]) -> None:
    keyring = Keyring(identities=dict(sorted(identities.items())))
    text = keyring.model_dump_json(indent=2) + "\n"
    _write(folder / KEYRING, text.encode(), PUBLIC)


def _read(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(MOST_FILE_BYTES)


def _write(file: Path, content: bytes, mode: int) -> None:
    """Replace a file at once, so that no process reads half a file."""
    with NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}-", delete=False) as new:
        try:
            os.fchmod(new.fileno(), mode)  # a new file has mode 0600
            new.write(content)
            new.flush()
            os.fsync(new.fileno())
            Path(new.name).replace(file)
        except BaseException:
            with suppress(OSError):
                Path(new.name).unlink()
            raise
