"""Message authentication codes (MACs) between two identities: a cheap proof for one reader.

The other modules call a MAC a code. A signature takes 45 µs and its check 140 µs; a code takes 2 µs
for each. Both identities derive the same secret from their own private key and the other's public
key (X25519). So only these two can make a code, and no other process can check it. A reader takes a
code only for messages that its own identity could write, too. So a supervisor that was taken over
cannot make an approval of a user.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING

from handoff_queue.shared.trust.keyring import PublicKey, compute_key_id

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

CODE_BYTES = 16
FOR = "~"
"""Sign between the key that makes a code and the key that checks it."""
_EXCHANGE, _PAIR = b"handoff-exchange", b"handoff-pair"
"""Personal strings of BLAKE2b, which separate the uses of a secret. At most 16 bytes each."""


@dataclass(frozen=True)
class PrivateKey:
    """A private key of an identity. The key for codes is derived from it."""

    ed25519: Ed25519PrivateKey

    @cached_property
    def public(self) -> bytes:
        """Return the bytes of the public key."""
        return self.ed25519.public_key().public_bytes_raw()

    @cached_property
    def id(self) -> str:
        return compute_key_id(self.public)

    @cached_property
    def exchange_public(self) -> bytes:
        """Return the bytes of the public key for codes."""
        return self._exchange.public_key().public_bytes_raw()

    @cached_property
    def _exchange(self) -> X25519PrivateKey:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        seed = self.ed25519.private_bytes_raw()
        secret = blake2b(key=seed, digest_size=32, person=_EXCHANGE).digest()
        return X25519PrivateKey.from_private_bytes(secret)

    def derive_secret(self, other: PublicKey, writer: str, reader: str) -> bytes | None:
        """Return the secret of the codes from one key to another.

        Args:
            other: the key at the other end. None is returned if its key for codes is weak.
            writer: id of the key that makes the codes.
            reader: id of the key that checks them.
        """
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        try:
            shared = self._exchange.exchange(X25519PublicKey.from_public_bytes(other.raw_exchange))
        except ValueError:  # a public key that gives the same secret to everyone
            return None
        ends = f"{writer}{FOR}{reader}"
        return blake2b(ends.encode(), key=shared, digest_size=32, person=_PAIR).digest()


@dataclass(frozen=True, slots=True)
class ReaderSecrets:
    """The secrets that a key shares with some readers."""

    secrets: tuple[tuple[str, bytes], ...]
    """`KEY~READER` and the secret of both."""
    is_complete: bool
    """True if the key shares a secret with each reader."""

    def compute_codes(self, signed: bytes) -> list[str]:
        """Return a code for each reader."""
        return [f"{ends}.{compute_code(secret, signed)}" for ends, secret in self.secrets]


def compute_code(secret: bytes, signed: bytes) -> str:
    """Return the code of bytes in hexadecimal digits."""
    return blake2b(signed, key=secret, digest_size=CODE_BYTES).hexdigest()
