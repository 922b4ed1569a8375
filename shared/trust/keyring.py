"""The public keyring: for each identity its valid public keys, and the messages that it may sign.

An identity is a kind of process, such as the supervisor or the workers of one specialist. All
processes of a kind share a private key. The keyring has no secret, so every process may read it.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from typing import Annotated, Literal, NamedTuple

from pydantic import AwareDatetime, Field, StringConstraints

from handoff_queue.shared.types.message import Message
from handoff_queue.shared.types.names import ROLES

MAX_KEYS = 2
"""Valid keys of an identity: the newest, and the one before it until the next rotation."""
KEY_ID_CHARS = 16
"""Hexadecimal digits of a key's id."""
_KEY_TEXT = r"^[A-Za-z0-9+/]{43}=$"
EVERY_SPECIALIST = "*"
"""The specialist of an identity that may do the work of every specialist."""
NOT_SIGNED = "messages are not signed, so every program that reaches Redis can forge them"
CLIENT, CONSOLE, SUPERVISOR, WORKER = "client", "console", "supervisor", "worker"


class Right(StrEnum):
    """Messages that an identity may sign."""

    HANDOFF = "handoff"
    """Handoffs to workers."""
    DECIDE = "decide"
    """All events that only a supervisor writes, and the results of its roles."""
    RESULT = "result"
    """Results of the handoffs of the identity's specialists."""
    ANNOUNCE = "announce"
    """Announcements of specialists of the identity's specialists."""
    SUBMIT = "submit"
    """Submissions of jobs."""
    APPROVE = "approve"
    """Answers to a job's questions: approvals and rejections."""
    CANCEL = "cancel"
    RETRY = "retry"
    SAY = "say"
    """Messages to the agents of a job."""


SUPERVISOR_RIGHTS = (Right.HANDOFF, Right.DECIDE)
"""Rights that a process needs to be a supervisor."""
WORKER_RIGHTS = (Right.RESULT, Right.ANNOUNCE)
USER_RIGHTS = (Right.SUBMIT, Right.APPROVE, Right.CANCEL, Right.RETRY, Right.SAY)


class PublicKey(Message):
    """A public key of Ed25519."""

    id: Annotated[str, StringConstraints(pattern=rf"^[0-9a-f]{{{KEY_ID_CHARS}}}$")]
    """The first digits of the SHA-256 of the key."""
    public: Annotated[str, StringConstraints(pattern=_KEY_TEXT)]
    """The key's bytes in Base64."""
    exchange: Annotated[str, StringConstraints(pattern=_KEY_TEXT)]
    """The bytes of the public key of X25519 for codes, in Base64."""
    created_at: AwareDatetime

    @cached_property
    def raw_exchange(self) -> bytes:
        """Return the bytes of the key for codes."""
        return b64decode(self.exchange)

    @cached_property
    def raw(self) -> bytes:
        """Return the bytes of the key."""
        return b64decode(self.public)


class Identity(Message):
    """The keys and the rights of one kind of process."""

    may: tuple[Right, ...]
    specialists: tuple[str, ...] = ()
    """Specialists whose handoffs a worker of this identity does; `*`: all specialists."""
    keys: Annotated[tuple[PublicKey, ...], Field(max_length=MAX_KEYS)] = ()
    """Valid keys, the newest first."""

    @property
    def reads_journals(self) -> bool:
        """Return whether codes of journals are for the identity. Workers read no journals."""
        return not set(self.may) <= set(WORKER_RIGHTS)

    def has(self, rights: Iterable[Right]) -> bool:
        """Return whether the identity may sign all these messages."""
        return set(rights) <= set(self.may)

    def serves(self, specialist: str) -> bool:
        """Return whether the identity may do the work of this specialist."""
        return specialist in self.specialists or EVERY_SPECIALIST in self.specialists


IdentityName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]
"""`worker-SPECIALIST` is longer than the name of a specialist."""


class KeyHolder(NamedTuple):
    """The identity that has a key."""

    name: str
    identity: Identity
    key: PublicKey


class Keyring(Message):
    """The identities of an installation, by name."""

    version: Literal[1] = 1
    identities: dict[IdentityName, Identity] = Field(default_factory=dict)

    def find_holder(self, key_id: str) -> KeyHolder | None:
        """Return the identity that has this key; None for an unknown key."""
        return self._holders.get(key_id)

    @cached_property
    def deciders(self) -> tuple[PublicKey, ...]:
        """Return the keys of the identities that decide about jobs."""
        return self._collect_keys(lambda identity: Right.DECIDE in identity.may)

    @cached_property
    def journal_readers(self) -> tuple[PublicKey, ...]:
        """Return the keys of the identities that read journals: all but workers."""
        return self._collect_keys(lambda identity: identity.reads_journals)

    def find_doers(self, assigned_to: str) -> tuple[PublicKey, ...]:
        """Return the keys of the identities that do the handoffs of a specialist or role."""
        if assigned_to in ROLES:
            return self.deciders
        return self._collect_keys(
            lambda identity: Right.RESULT in identity.may and identity.serves(assigned_to)
        )

    def list_names(self, has_part: Callable[[Identity], bool]) -> list[str]:
        """Return the names of some identities. The workers of few specialists come first."""

        def measure_breadth(name: str) -> tuple[bool, int]:
            specialists = self.identities[name].specialists
            return EVERY_SPECIALIST in specialists, len(specialists)

        names = [name for name, identity in self.identities.items() if has_part(identity)]
        return sorted(names, key=measure_breadth)

    def _collect_keys(self, has_part: Callable[[Identity], bool]) -> tuple[PublicKey, ...]:
        public_keys: list[PublicKey] = []
        for identity in self.identities.values():
            if has_part(identity):
                public_keys.extend(identity.keys)
        return tuple(public_keys)

    @cached_property
    def _holders(self) -> dict[str, KeyHolder]:
        holders: dict[str, KeyHolder] = {}
        for name, identity in self.identities.items():
            for key in identity.keys:
                holders[key.id] = KeyHolder(name, identity, key)
        return holders


def compute_key_id(public: bytes) -> str:
    """Return the id of a public key."""
    return sha256(public).hexdigest()[:KEY_ID_CHARS]


def encode_public_key(public: bytes) -> str:
    """Return the bytes of a public key in Base64."""
    return b64encode(public).decode()


def name_worker_identity(specialist: str) -> str:
    """Return the identity of the workers of one specialist."""
    return f"{WORKER}-{specialist}"


def create_identities(
    specialists: Sequence[str], pools: Mapping[str, Sequence[str]] | None = None
) -> dict[str, Identity]:
    """Return the identities of an installation, without keys.

    Args:
        specialists: the specialists whose workers have their own keys. Without them and pools, one
            identity stands for the workers of all specialists.
        pools: name -> specialists of workers that serve several specialists.
    """
    identities = {
        CLIENT: Identity(may=USER_RIGHTS),
        CONSOLE: Identity(may=USER_RIGHTS),
        SUPERVISOR: Identity(may=(*SUPERVISOR_RIGHTS, Right.SUBMIT)),
    }
    workers: dict[str, Sequence[str]] = {name: (name,) for name in specialists}
    workers.update(pools or {})
    for name, served in workers.items():
        identities[name_worker_identity(name)] = find_workers_identity(served)
    if not workers:
        identities[WORKER] = find_workers_identity(())
    return identities


def find_workers_identity(specialists: Sequence[str]) -> Identity:
    """Return the identity of workers that serve these specialists, without keys. None: all."""
    return Identity(may=WORKER_RIGHTS, specialists=tuple(specialists) or (EVERY_SPECIALIST,))
