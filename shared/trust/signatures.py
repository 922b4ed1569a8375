"""Signatures of messages with Ed25519, and their verification with the public keyring.

A signature is a text: the id of the key, a dot, and the signature's bytes in URL-safe Base64. The
signed bytes have a purpose and some texts, so a signature for one purpose is worthless for another.
Codes for single readers (`message_authentication_codes.py`) follow after commas, or are alone:
`KEY~READER.CODE`.

A process reads the keys again when a file has changed. So keys rotate while processes run.

`prove_run` and `check_run` sign and check the results of runs that equal handoffs share.
"""

from __future__ import annotations

import threading
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hmac import compare_digest
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from handoff_queue.shared.settings.folders import expand_folder
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.trust.key_files import (
    find_keyring_file,
    find_private_key_file,
    read_keyring,
    read_private_keys,
)
from handoff_queue.shared.trust.keyring import (
    EVERY_SPECIALIST,
    SUPERVISOR_RIGHTS,
    WORKER_RIGHTS,
    Identity,
    KeyHolder,
    Keyring,
    PublicKey,
    Right,
)
from handoff_queue.shared.trust.message_authentication_codes import (
    FOR,
    PrivateKey,
    ReaderSecrets,
    compute_code,
)
from handoff_queue.shared.types.errors import UntrustedMessage, UserError
from handoff_queue.shared.types.ids import Digest, HandoffId, JobId

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

PURPOSE = "handoff-queue/1"
"""Beginning of everything that is signed."""
CHECK_EVERY_S = 1.0
"""Seconds between two checks of the files of keys."""
MAX_SIGNATURE_CHARS = 120
"""Characters of a signature, or of one code."""
_DECIDERS, _READERS = "-deciders", "-readers"
"""Names of readers of codes, which no specialist or role has."""
MAX_CODES = 8
"""Codes of one message."""
MAX_REMEMBERED = 1_000
"""Verified texts that a process remembers, for texts that it reads again and again."""
UNKNOWN_KEY = (
    "its signature is of an unknown key: if HANDOFF_KEYS names an old keyring.json, replace the"
    " file with the newest one"
)
_MAX_FILES = 3
"""Files of keys that an error names."""
_OF_A_RUN = "shared-run"
"""Purpose of the signature of a run that equal handoffs share."""


@dataclass(frozen=True, slots=True)
class Signer:
    """The identity that signed a message."""

    name: str
    identity: Identity
    key_id: str = ""

    def may(self, right: Right) -> bool:
        return right in self.identity.may

    def check(self, right: Right) -> None:
        """Raise UntrustedMessage if the identity may not sign such messages."""
        if not self.may(right):
            raise UntrustedMessage(f"it is signed by {self.name}, which may not sign {right}")

    def check_serves(self, specialist: str) -> None:
        """Raise UntrustedMessage if the identity may not do the work of this specialist."""
        if not self.identity.serves(specialist):
            raise UntrustedMessage(
                f"it is signed by {self.name}, which is not a worker of {specialist}"
            )


class _CodeWriter(NamedTuple):
    """The writer of codes for a key of this process."""

    signer: Signer
    secret: bytes
    """The secret that both keys share."""


class _Watched:
    """A file that is read again when it has changed."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._looked_at = float("-inf")
        self._seen: tuple[int, int, int] | None = None

    def has_changed(self, *, at_once: bool = False) -> bool:
        """Return whether the file has changed since the last check.

        Args:
            at_once: True to check now; otherwise at most one check is made in `CHECK_EVERY_S`.
        """
        now = time.monotonic()
        if not at_once and now - self._looked_at < CHECK_EVERY_S:
            return False
        self._looked_at = now
        try:
            file_status = self.file.stat()
        except OSError:
            return False  # the known keys stay valid
        seen = (file_status.st_mtime_ns, file_status.st_ino, file_status.st_size)
        is_new = seen != self._seen
        self._seen = seen
        return is_new


class Trust:
    """The keys of this process. Its threads share one object.

    Without a keyring nothing is signed and everything is accepted.
    """

    def __init__(self, keys: Path | None = None, signing_key: Path | None = None) -> None:
        """Read the keys.

        Args:
            keys: the file of the public keys, or its folder.
            signing_key: the file of this process's private key, which is read when the process
                first signs. None: it signs nothing.

        Raises:
            UserError: the file of the public keys is missing or wrong.
        """
        self.is_on = keys is not None
        self._signer: Signer | None = None
        self._lock = threading.Lock()
        self._keyring = Keyring()
        self._private: PrivateKey | None = None
        self._private_keys: dict[str, PrivateKey] = {}
        """The private keys of this process by their ids: the newest, and the one before it."""
        self._secrets_for: dict[str, ReaderSecrets] = {}
        """Secrets for the codes that this process makes, by their readers."""
        self._code_writers: dict[str, _CodeWriter] = {}
        """Writers of the codes that this process checks, by `KEY~READER`."""
        self._keyring_file: _Watched | None = None
        self._private_file: _Watched | None = None
        self._remembered: dict[tuple[str, bytes], Signer] = {}
        if keys is None:
            if signing_key is not None:
                raise UserError(
                    "HANDOFF_SIGNING_KEY needs HANDOFF_KEYS: set it to the file of public keys"
                )
            return
        self._keyring_file = _Watched(find_keyring_file(keys))
        self._keyring_file.has_changed(at_once=True)
        self._keyring = read_keyring(self._keyring_file.file)
        if signing_key is not None:
            self._private_file = _Watched(signing_key)

    @property
    def signer(self) -> Signer:
        """Return the identity of this process.

        Raises:
            UserError: this process has no key, or no identity has its key.
        """
        if self._private_file is None:
            raise UserError(
                "this process has no key to sign with: name the file of its private key in"
                " HANDOFF_SIGNING_KEY"
            )
        if self._signer is None:
            self._private_file.has_changed(at_once=True)
            private = read_private_keys(self._private_file.file)
            self._use_private(private)
            if self._private is not private[0]:
                # the key may have been rotated since the public keys were read
                self._reload_changed_keys(at_once=True)
                self._use_private(private)
        if self._signer is None:
            raise UserError(
                f"the public keys have no identity with the key {self._private_file.file}: name the"
                " key of this process in HANDOFF_SIGNING_KEY"
            )
        return self._signer

    def sign(self, right: Right, *texts: str) -> str:
        """Return the signature of texts; '' without a keyring.

        Raises:
            UserError: this process has no key, or its identity may not sign such messages.
        """
        return self.sign_for((right,), str(right), *texts)

    def sign_for(self, rights: Sequence[Right], purpose: str, *texts: str) -> str:
        """Return the signature of texts for a purpose that needs several rights.

        Raises:
            UserError: see `sign`.
        """
        if not self.is_on:
            return ""
        self._reload_changed_keys()
        self._check_rights(rights)
        return self._sign_bytes(build_bytes_to_sign(purpose, texts))

    def sign_handoff(self, assigned_to: str, text: str) -> str:
        """Return the proof of a handoff: a code for each identity that does the handoffs of this
        specialist or role. If one of these can have no code, the proof is a signature.

        Raises:
            UserError: see `sign`.
        """
        if not self.is_on:
            return ""
        self._reload_changed_keys()
        self._check_rights((Right.HANDOFF,))
        secrets = self._secrets_for.get(assigned_to)
        secrets = secrets or self._derive_secrets(
            assigned_to, self._keyring.find_doers(assigned_to)
        )
        return self._code_or_sign(build_bytes_to_sign(Right.HANDOFF, (text,)), secrets)

    def sign_events(self, kind: str, *texts: str) -> str:
        """Return the signature of events, with a code for supervisors.

        Raises:
            UserError: this process has no key.
        """
        self._reload_changed_keys()
        secrets = self._secrets_for.get(_DECIDERS)
        secrets = secrets or self._derive_secrets(_DECIDERS, self._keyring.deciders)
        signed = build_bytes_to_sign(kind, texts)
        return ",".join((self._sign_bytes(signed), *secrets.compute_codes(signed)))

    def code_events(self, kind: str, *texts: str) -> str:
        """Return a code of events for each reader of journals. If one of these can have no code,
        return a signature.

        Raises:
            UserError: this process has no key.
        """
        self._reload_changed_keys()
        secrets = self._secrets_for.get(_READERS)
        secrets = secrets or self._derive_secrets(_READERS, self._keyring.journal_readers)
        return self._code_or_sign(build_bytes_to_sign(kind, texts), secrets)

    def _derive_secrets(self, name: str, readers: Sequence[PublicKey]) -> ReaderSecrets:
        """Return the secrets that this process shares with some readers, and remember them."""
        _ = self.signer  # reads the private key
        private = self._private
        assert private is not None
        secrets: list[tuple[str, bytes]] = []
        for reader in readers[:MAX_CODES]:
            secret = private.derive_secret(reader, private.id, reader.id)
            if secret is not None:
                secrets.append((f"{private.id}{FOR}{reader.id}", secret))
        is_complete = bool(secrets) and len(secrets) == len(readers)
        shared = self._secrets_for[name] = ReaderSecrets(tuple(secrets), is_complete)
        return shared

    def _check_rights(self, rights: Sequence[Right]) -> None:
        signer = self.signer  # reads the private key
        for right in rights:
            if not signer.may(right):
                raise self.build_wrong_key_error(
                    f"sign {right}", lambda identity: identity.has(rights)
                )

    def _sign_bytes(self, signed: bytes) -> str:
        assert self._private is not None
        signature = self._private.ed25519.sign(signed)
        return f"{self.signer.key_id}.{_encode_signature(signature)}"

    def _code_or_sign(self, signed: bytes, secrets: ReaderSecrets) -> str:
        if secrets.is_complete:
            return ",".join(secrets.compute_codes(signed))
        return self._sign_bytes(signed)

    def check(
        self, right: Right, signature: object, *texts: str, again: bool = False, codes: bool = False
    ) -> Signer:
        """Check the signature of texts, and return the identity that made it.

        Args:
            again: True for a text that this process reads again and again.
            codes: True if a code for this process is as good as a signature.

        Raises:
            UntrustedMessage: the signature is missing or wrong, or its identity may not sign
                such messages.
        """
        signer = self.find_signer(signature, str(right), *texts, again=again, codes=codes)
        signer.check(right)
        return signer

    def find_signer(
        self, signature: object, purpose: str, *texts: str, again: bool = False, codes: bool = False
    ) -> Signer:
        """Return the identity that signed these texts for this purpose. See `check`."""
        if not isinstance(signature, str) or not signature:
            raise UntrustedMessage("it has no signature")
        signed = build_bytes_to_sign(purpose, texts)
        self._reload_changed_keys()
        known = self._remembered.get((signature, signed)) if again else None
        if known is not None:
            return known
        parts = signature.split(",", MAX_CODES)
        key_id, _, encoded = parts[0][:MAX_SIGNATURE_CHARS].partition(".")
        has_only_codes = FOR in key_id
        if codes:
            writer = self._find_writer_of_codes(parts, signed)
            if writer is None and has_only_codes:
                self._reload_changed_keys(at_once=True)  # the key of this process may be new
                writer = self._find_writer_of_codes(parts, signed)
            if writer is not None:
                return writer
        if has_only_codes:
            raise UntrustedMessage("its code is not for this process")
        holder = self._find_holder(key_id)
        signer = Signer(holder.name, holder.identity, key_id)
        if not _is_valid(holder.key, encoded, signed):
            raise _build_error(signer)
        if again:
            self._remember(signature, signed, signer)
        return signer

    def _remember(self, signature: str, signed: bytes, signer: Signer) -> None:
        """Remember the signer of a text that this process reads again."""
        if len(self._remembered) >= MAX_REMEMBERED:
            self._remembered.clear()
        self._remembered[signature, signed] = signer

    def _find_writer_of_codes(self, parts: Sequence[str], signed: bytes) -> Signer | None:
        """Return the identity that made the code for this process. None: there is no such code.

        Raises:
            UntrustedMessage: the code is wrong, or its key is unknown.
        """
        for part in parts:
            ends, _, code = part.partition(".")
            writer = self._code_writers.get(ends) or self._find_writer(ends)
            if writer is not None:
                if not compare_digest(compute_code(writer.secret, signed).encode(), code.encode()):
                    raise _build_error(writer.signer)
                return writer.signer
        return None

    def _find_writer(self, ends: str) -> _CodeWriter | None:
        """Return the writer of codes for a key of this process, and remember it. None: the codes
        are for another process.

        Args:
            ends: `KEY~READER`.
        """
        key_id, is_code, reader = ends[:MAX_SIGNATURE_CHARS].partition(FOR)
        if not is_code or self._private_file is None:
            return None
        _ = self.signer  # reads the private key
        if reader not in self._private_keys:
            return None
        holder = self._find_holder(key_id)
        secret = self._private_keys[reader].derive_secret(holder.key, key_id, reader)
        if secret is None:
            return None
        writer = _CodeWriter(Signer(holder.name, holder.identity, key_id), secret)
        self._code_writers[ends] = writer
        return writer

    def _find_holder(self, key_id: str) -> KeyHolder:
        """Return the identity that has a public key.

        Raises:
            UntrustedMessage: no identity has this key.
        """
        holder = self._keyring.find_holder(key_id)
        if holder is None:
            self._reload_changed_keys(at_once=True)
            holder = self._keyring.find_holder(key_id)
        if holder is None:
            raise UntrustedMessage(UNKNOWN_KEY)
        return holder

    def check_reader(self) -> None:
        """Check that the codes of journals are for this process.

        Raises:
            UserError: it has no key, or the key of a worker.
        """
        if not self.signer.identity.reads_journals:
            raise self.build_wrong_key_error(
                "read journals", lambda identity: identity.reads_journals
            )

    def build_wrong_key_error(
        self, action: str, may_do_it: Callable[[Identity], bool], otherwise: str = ""
    ) -> UserError:
        """Return the error that the key of this process may not do an action. It names the files
        of keys that may.

        Args:
            action: words after `may not`.
            may_do_it: whether an identity may do the action.
            otherwise: advice if no identity may.
        """
        files: list[str] = []
        for name in self._keyring.list_names(may_do_it)[:_MAX_FILES]:
            file = self._find_key_file(name)
            files.append(str(file) if file.exists() else file.name)
        advice = otherwise or "make the missing key with `handoff keys init DIR`"
        if files:
            advice = f"set HANDOFF_SIGNING_KEY to {' or '.join(files)}"
        return UserError(
            f"the key in HANDOFF_SIGNING_KEY is the key of {self.signer.name}, which may not"
            f" {action}: {advice}"
        )

    def _find_key_file(self, name: str) -> Path:
        """Return the file of an identity's private key next to the public keys."""
        assert self._keyring_file is not None
        return find_private_key_file(self._keyring_file.file.parent, name)

    def find_key_of(self, rights: Sequence[Right], specialists: Sequence[str] = ()) -> Path | None:
        """Return a private key with these rights, next to the public keys.

        None: the key of this process has these rights, or this user can read no such key.

        Args:
            specialists: those of the worker. Of several keys, the one of the fewest specialists
                is returned.

        Raises:
            UserError: this process has no key, or no identity has its key.
        """
        if not self.is_on or self.signer.identity.has(rights):
            return None
        for name in self._keyring.list_names(lambda identity: _fits(identity, rights, specialists)):
            file = self._find_key_file(name)
            with suppress(UserError):
                holder = self._keyring.find_holder(read_private_keys(file)[0].id)
                if holder is not None and holder.name == name:
                    return file
        return None

    def list_specialists(self) -> list[str] | None:
        """Return all specialists that a worker with a key may announce, sorted. None: there is no
        keyring, or a key is for the workers of every specialist.
        """
        if not self.is_on:
            return None
        self._reload_changed_keys()
        names: set[str] = set()
        for identity in self._keyring.identities.values():
            names.update(identity.specialists)
        return None if EVERY_SPECIALIST in names else sorted(names)

    def check_worker(self, specialists: Sequence[str]) -> None:
        """Check that this process may do the work of these specialists.

        Raises:
            UserError: its key is of another identity, or it has no key.
        """
        if not self.is_on:
            return
        identity = self.signer.identity
        foreign = [name for name in specialists if not identity.serves(name)]
        if not identity.has(WORKER_RIGHTS):
            action = f"sign {Right.RESULT}"
        elif foreign:
            action = f"work for {', '.join(foreign)}"
        else:
            return
        raise self.build_wrong_key_error(
            action,
            lambda other: _fits(other, WORKER_RIGHTS, specialists),
            "start this worker with its own specialists only, or make a key with"
            " `handoff keys init DIR --specialist SPECIALIST`",
        )

    def check_supervisor(self) -> None:
        """Check that this process may decide about jobs.

        Raises:
            UserError: its key is of another identity, or it has no key.
        """
        self.sign_for(SUPERVISOR_RIGHTS, "start")

    def _reload_changed_keys(self, *, at_once: bool = False) -> None:
        """Read the keys again if a file has changed. A file that cannot be read changes nothing."""
        if self._keyring_file is None:
            return
        with self._lock:
            is_new = self._keyring_file.has_changed(at_once=at_once)
            is_new_key = self._private is not None and self._has_new_private_key(
                at_once=at_once or is_new
            )
            if not is_new and not is_new_key:
                return
            # commands that list jobs load no logging
            from handoff_queue.shared.observability.logs import get_log

            log = get_log(__name__)
            try:
                self._keyring = read_keyring(self._keyring_file.file)
                self._remembered.clear()
                self._secrets_for.clear()
                self._code_writers.clear()
                if self._private is not None and self._private_file is not None:
                    self._use_private(read_private_keys(self._private_file.file))
                log.info("the process has read its keys again")
            except UserError as error:
                log.warning("the keys have changed and cannot be read", why=str(error))

    def _has_new_private_key(self, *, at_once: bool) -> bool:
        return self._private_file is not None and self._private_file.has_changed(at_once=at_once)

    def _use_private(self, keys: Sequence[PrivateKey]) -> None:
        """Sign with the first of these keys that an identity has. The others only check codes."""
        for private in keys:
            holder = self._keyring.find_holder(private.id)
            if holder is None:
                continue
            self._private_keys = {key.id: key for key in keys}
            self._private = private
            self._signer = Signer(holder.name, holder.identity, private.id)
            self._secrets_for.clear()
            return


NO_TRUST = Trust()
"""The keys of a process without a keyring: it signs nothing, and accepts everything."""


def open_trust(settings: Settings) -> Trust:
    """Return the keys that the settings name.

    Raises:
        UserError: see `Trust`.
    """
    keys = settings.keys
    signing_key = settings.signing_key
    if keys is not None:
        keys = expand_folder(keys, "HANDOFF_KEYS")
    if signing_key is not None:
        signing_key = expand_folder(signing_key, "HANDOFF_SIGNING_KEY")
    return Trust(keys, signing_key)


def build_bytes_to_sign(purpose: str, texts: Sequence[str]) -> bytes:
    """Return the bytes that are signed. The lengths separate the texts."""
    parts = [PURPOSE, purpose, *texts]
    lengths = ",".join(str(len(part)) for part in parts)
    # a hostile text may have half a character
    return "\0".join((lengths, *parts)).encode(errors="surrogatepass")


def _fits(identity: Identity, rights: Sequence[Right], specialists: Sequence[str]) -> bool:
    return identity.has(rights) and all(map(identity.serves, specialists))


def _encode_signature(signature: bytes) -> str:
    return urlsafe_b64encode(signature).decode()


def _build_error(signer: Signer) -> UntrustedMessage:
    return UntrustedMessage(f"its signature is not {signer.name}'s signature of this text")


@lru_cache(maxsize=256)
def _load_public_key(raw: bytes) -> Ed25519PublicKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    return Ed25519PublicKey.from_public_bytes(raw)


def _is_valid(key: PublicKey, encoded: str, signed: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        _load_public_key(key.raw).verify(urlsafe_b64decode(encoded), signed)
    except (InvalidSignature, ValueError, NotBase64):
        return False
    return True


def prove_run(
    trust: Trust, job_id: JobId, handoff_id: HandoffId, run_name: str, result: Digest
) -> str:
    """Return the signature of a run by this process; '' without a keyring.

    Equal handoffs share the run. A handoff that copies the result checks the signature with
    `check_run`.

    Args:
        run_name: depends on the tenant and on the whole request (`shared.runtime.shared_run`).

    Raises:
        UserError: this process has no key, or may not sign results.
    """
    return trust.sign_for((Right.RESULT,), _OF_A_RUN, job_id, handoff_id, run_name, result)


def check_run(
    trust: Trust,
    specialist: str,
    proof: str,
    job_id: JobId,
    handoff_id: HandoffId,
    run_name: str,
    result: Digest,
) -> None:
    """Check the proof of a run by a worker of this specialist. Without a keyring, every proof
    holds.

    Raises:
        UntrustedMessage: the proof is missing or wrong, or its signer is not a worker of the
            specialist.
    """
    if not trust.is_on:
        return
    signer = trust.find_signer(proof, _OF_A_RUN, job_id, handoff_id, run_name, result)
    signer.check(Right.RESULT)
    signer.check_serves(specialist)
