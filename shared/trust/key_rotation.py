"""Rotation of a key: a new private key of an identity, while the key before it stays valid."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from handoff_queue.shared.trust.key_files import (
    new_private_key,
    open_identities,
    pem_of,
    private_key_file,
    private_keys_in,
    public_key_of,
    write_keyring,
)
from handoff_queue.shared.trust.key_folder_lock import PRIVATE, replace_file
from handoff_queue.shared.trust.keyring import MAX_KEYS, PublicKey
from handoff_queue.shared.trust.message_authentication_codes import PrivateKey
from handoff_queue.shared.types.errors import UserError


def rotate_key(folder: Path, name: str) -> PublicKey:
    """Replace the private key of an identity. The key before it stays valid until the next
    rotation, and stays in the file: codes of messages that wait are for this key.

    The public key is written first, so that every signature can be checked.

    Raises:
        UserError: there is no such identity, or a file cannot be written.
    """
    with open_identities(folder) as identities:
        if name not in identities:
            known = ", ".join(sorted(identities))
            raise UserError(f"there is no identity {name[:64]!r}: the identities are {known}")
        private = new_private_key()
        file = private_key_file(folder, name)
        newest_before: list[PrivateKey] = []
        with suppress(FileNotFoundError):
            newest_before = private_keys_in(file.read_bytes())[:1]
        key = public_key_of(private)
        known_keys = (key, *identities[name].keys)[:MAX_KEYS]
        identities[name] = identities[name].model_copy(update={"keys": known_keys})
        write_keyring(folder, identities)
        texts = map(pem_of, (private, *newest_before))
        replace_file(file, b"".join(texts), PRIVATE)
    return key
