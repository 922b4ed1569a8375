"""Files of keys: `keyring.json` with all public keys, and one private key for each identity.

A private key is `IDENTITY.key`, in PEM, with mode 0600. After a rotation, the key before it follows
in the same file. No other file, setting, log or message holds a private key. One process at a time
changes the files of a folder.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

from handoff_queue.shared.settings.file_permissions import (
    MAX_FILE_BYTES,
    check_folder,
    read_private,
    read_public,
)
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.trust.keyring import (
    MAX_KEYS,
    Identity,
    Keyring,
    PublicKey,
    create_identities,
    encode_public_key,
)
from handoff_queue.shared.trust.message_authentication_codes import PrivateKey
from handoff_queue.shared.types.errors import MalformedMessage, UserError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_PEM_BEGIN = b"-----BEGIN"
KEYRING = "keyring.json"
LOCK = "keyring.lock"
"""Empty file in the folder, whose lock a process holds while it changes the keys."""
PRIVATE, PUBLIC = 0o600, 0o644


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder of keys, for `with lock_folder(folder): read and write its files`.

    Other processes and threads wait. The lock of a process that was killed is free. A thread that
    already holds the lock would wait forever.

    Raises:
        UserError: other users can write the folder.
        OSError: the folder cannot be written.
    """
    check_folder(folder)
    # NFS locks only a file that is open for writing, so the folder itself cannot have the lock
    descriptor = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, PRIVATE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def replace_file(file: Path, content: bytes, mode: int, *, waits: bool = True) -> None:
    """Replace a file at once, so that no process reads half a file.

    Args:
        waits: True to wait until the content is on the disk. Otherwise the file may be empty after
            a crash of the machine.

    Raises:
        OSError: the file cannot be written.
    """
    with NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}-", delete=False) as new:
        try:
            os.fchmod(new.fileno(), mode)  # a new file has mode 0600
            new.write(content)
            new.flush()
            if waits:
                os.fsync(new.fileno())
            Path(new.name).replace(file)
        except BaseException:
            with suppress(OSError):
                Path(new.name).unlink()
            raise


def find_keyring_file(keys: Path) -> Path:
    """Return the file of the public keys: `keys`, or a file in this folder."""
    if keys.is_dir():
        return keys / KEYRING
    return keys


def find_private_key_file(folder: Path, identity: str) -> Path:
    """Return the file of an identity's private key."""
    return folder / f"{identity}.key"


def build_key_variables(folder: Path | None, identity: str | None = None) -> dict[str, str]:
    """Return the variables with the keys of a process.

    Args:
        folder: the folder of the keys. None: the process has no keys, also in a shell that sets
            the variables.
        identity: owner of the private key. None: the process has no private key.
    """
    keys = signing_key = ""
    if folder is not None:
        keys = str(find_keyring_file(folder))
        if identity is not None:
            signing_key = str(find_private_key_file(folder, identity))
    return {"HANDOFF_KEYS": keys, "HANDOFF_SIGNING_KEY": signing_key}


def with_keys(settings: Settings, folder: Path | None, identity: str | None = None) -> Settings:
    """Return the settings of a process with these keys. See `build_key_variables`."""
    variables = build_key_variables(folder, identity)
    paths = {name: Path(path) if path else None for name, path in variables.items()}
    return settings.model_copy(
        update={"keys": paths["HANDOFF_KEYS"], "signing_key": paths["HANDOFF_SIGNING_KEY"]}
    )


def read_keyring(file: Path) -> Keyring:
    """Read the public keys.

    Raises:
        UserError: the file cannot be read, other users can write or replace it, or it is not a
            keyring.
    """
    try:
        return Keyring.from_json(read_public(file))
    except OSError as error:
        raise UserError(
            f"the keys in {file} cannot be read ({error.strerror}): make them with"
            " `handoff keys init DIR`, and name DIR in HANDOFF_KEYS"
        ) from error
    except MalformedMessage as error:
        raise UserError(
            f"{file} is not a file of public keys: {error}: name the {KEYRING} that `handoff keys"
            " init DIR` wrote"
        ) from error


def read_private_keys(file: Path) -> tuple[PrivateKey, ...]:
    """Read the private keys of an identity: the newest, and the one before it.

    Raises:
        UserError: the file cannot be read, is open to other users, or has no key of Ed25519.
    """
    no_key = f"{file} has no private key of Ed25519: name the key that `handoff keys init` makes"
    try:
        text = read_private(file)
    except UserError:
        if not _holds_pem(file):
            raise UserError(no_key) from None
        raise
    except OSError as error:
        raise UserError(
            f"the private key {file} cannot be read ({error.strerror}): name the key of this"
            " process in HANDOFF_SIGNING_KEY"
        ) from error
    private_keys = parse_private_keys(text)
    if not private_keys:
        raise UserError(no_key)
    return tuple(private_keys)


def _holds_pem(file: Path) -> bool:
    """Return whether a file looks like a key. A remedy must not change the mode of another file."""
    with file.open("rb") as open_file:
        return _PEM_BEGIN in open_file.read(MAX_FILE_BYTES)


def parse_private_keys(text: bytes) -> list[PrivateKey]:
    """Return the private keys of Ed25519 in the text of a file, in order."""
    private_keys: list[PrivateKey] = []
    for part in text.split(_PEM_BEGIN)[1:]:
        key = _parse_private_key(_PEM_BEGIN + part)
        if key is not None:
            private_keys.append(PrivateKey(key))
    return private_keys


def _parse_private_key(pem: bytes) -> Ed25519PrivateKey | None:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, Ed25519PrivateKey) else None


def make_keys(
    folder: Path, specialists: Sequence[str] = (), pools: Mapping[str, Sequence[str]] | None = None
) -> list[str]:
    """Make the keys of an installation that are missing in a folder. Return the identities that
    got a key.

    Args:
        specialists, pools: see `create_identities`.

    Raises:
        UserError: the folder or a file cannot be written.
    """
    return make_keys_of(folder, create_identities(specialists, pools))


def make_keys_of(
    folder: Path, wanted_identities: Mapping[str, Identity], *, is_for_one_run: bool = False
) -> list[str]:
    """Make the keys of the identities that a folder does not have. Return their names.

    Args:
        is_for_one_run: True if no process needs the keys after a crash of the machine. They are
            made faster, because nothing waits for the disk.

    Raises:
        UserError: the folder or a file cannot be written.
    """
    return make_chosen_keys(folder, lambda _: wanted_identities, is_for_one_run=is_for_one_run)


def make_chosen_keys(
    folder: Path,
    choose: Callable[[Mapping[str, Identity]], Mapping[str, Identity]],
    *,
    is_for_one_run: bool = False,
) -> list[str]:
    """Make the keys of the identities that a folder does not have. Return their names.

    Args:
        choose: takes the identities of the folder, and returns the identities that it needs. No
            other process changes the folder in the meantime.
        is_for_one_run: see `make_keys_of`.

    Raises:
        UserError: the folder or a file cannot be written.
    """
    with _changing(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with lock_folder(folder):
            identities: dict[str, Identity] = {}
            if (folder / KEYRING).exists():
                identities.update(read_keyring(folder / KEYRING).identities)
            wanted_identities = choose(identities)
            new_names = sorted(wanted_identities.keys() - identities.keys())
            for name in new_names:
                private = create_private_key()
                file = find_private_key_file(folder, name)
                replace_file(file, encode_pem(private), PRIVATE, waits=not is_for_one_run)
                keys = (derive_public_key(private),)
                identities[name] = wanted_identities[name].model_copy(update={"keys": keys})
            write_keyring(folder, identities, waits=not is_for_one_run)
            return new_names


@contextmanager
def open_identities(folder: Path) -> Iterator[dict[str, Identity]]:
    """Return the identities of a folder, for `with open_identities(folder) as identities`. No other
    process changes the folder in the meantime.

    Raises:
        UserError: the keyring cannot be read, or the folder cannot be written.
    """
    read_keyring(folder / KEYRING)  # a folder without keys gets no lock
    with _changing(folder), lock_folder(folder):
        yield dict(read_keyring(folder / KEYRING).identities)


@contextmanager
def _changing(folder: Path) -> Iterator[None]:
    """Turn an error of the file system into an error of the user."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{folder} cannot hold keys ({error.strerror}): name another") from error


def load_cryptography() -> None:
    """Import the modules that sign and check messages. A process calls this before it forks the
    processes that sign.

    Raises:
        ImportError: the package is not installed.
    """
    private = create_private_key()
    _parse_private_key(encode_pem(private))
    derive_public_key(private)
    private.ed25519.public_key().verify(private.ed25519.sign(b""), b"")


def create_private_key() -> PrivateKey:
    """Return a new random key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return PrivateKey(Ed25519PrivateKey.generate())


def derive_public_key(private: PrivateKey) -> PublicKey:
    """Return the entry of a private key in the keyring. Its time of creation is now."""
    return PublicKey(
        id=private.id,
        public=encode_public_key(private.public),
        exchange=encode_public_key(private.exchange_public),
        created_at=datetime.now(UTC).replace(microsecond=0),
    )


def encode_pem(private: PrivateKey) -> bytes:
    """Return the text of a private key in its file."""
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    return private.ed25519.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def write_keyring(folder: Path, identities: Mapping[str, Identity], *, waits: bool = True) -> None:
    """Write the keyring of a folder, in the order of the names.

    Args:
        waits: False to return before the file is on the disk, for keys of one run.
    """
    keyring = Keyring(identities=dict(sorted(identities.items())))
    text = keyring.model_dump_json(indent=2) + "\n"
    replace_file(folder / KEYRING, text.encode(), PUBLIC, waits=waits)


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
        private = create_private_key()
        file = find_private_key_file(folder, name)
        newest_before: list[PrivateKey] = []
        with suppress(FileNotFoundError):
            newest_before = parse_private_keys(file.read_bytes())[:1]
        key = derive_public_key(private)
        known_keys = (key, *identities[name].keys)[:MAX_KEYS]
        identities[name] = identities[name].model_copy(update={"keys": known_keys})
        write_keyring(folder, identities)
        texts = map(encode_pem, (private, *newest_before))
        replace_file(file, b"".join(texts), PRIVATE)
    return key
