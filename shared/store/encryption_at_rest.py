"""Encryption of the texts of tenants that have a key: AES-256-GCM.

A sealed text begins with a header: the letter `e`, the version, the id of the key, and the tenant.
Then come the nonce and the ciphertext. The text is packed before it is sealed. The associated
data are the header and the place of the text in Redis, so that a text is refused in another place.

The jobs of a tenant use 256 keys, which are derived from the key of the tenant and the beginning of
the job's id. So random nonces stay unique, and a process makes few ciphers.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
import struct
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

from handoff_queue.shared.store.tenant_keys import TenantKeys
from handoff_queue.shared.types.errors import MalformedMessage, NoTenantKey, UnreadablePayload
from handoff_queue.shared.types.events import DEFAULT_TENANT
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.message import compute_digest

SEALED = b"e"
"""First byte of a sealed text. Other texts begin with `=` or `z`."""
_VERSION = 1
_HEAD = struct.Struct(">cB8sH")
NONCE_BYTES, TAG_BYTES = 12, 16
SCOPE_CHARS = 4
"""Characters of a scope that its key depends on: `j-` and two hexadecimal digits of a job's id."""
MAX_JOBS = 20_000
"""Jobs whose tenant a process remembers."""
DOCUMENTS = "documents"
"""Scope of the documents of a tenant."""
MESSAGE_START = '{"sealed":'
"""The beginning of a sealed message of a queue."""


def no_tenant(_: JobId) -> str | None:
    return None


def build_turns_place(handoff_id: str) -> str:
    """Return the place of the turns of a handoff within its job."""
    return f"turns:{handoff_id}"


class Sealing:
    """Seals and opens the texts of tenants. Without keys, texts stay as they are."""

    def __init__(
        self,
        keys: TenantKeys | None = None,
        tenant_of: Callable[[JobId], str | None] = no_tenant,
    ) -> None:
        """Seal with the keys of tenants.

        Args:
            keys: the source of keys; None: no text is sealed, and sealed texts are refused.
            tenant_of: returns the tenant of a stored job, or None.
        """
        self._keys = keys
        self._tenant_of = tenant_of
        self._tenants: OrderedDict[JobId, str] = OrderedDict()

    def record_tenant(self, job_id: JobId, tenant: str) -> None:
        """Remember the tenant of a job that will be stored."""
        if self._keys is not None:
            self._tenants[job_id] = tenant
            while len(self._tenants) > MAX_JOBS:
                self._tenants.popitem(last=False)

    def is_sealed(self, tenant: str) -> bool:
        """Return whether texts of this tenant are sealed."""
        return self._keys is not None and bool(self._keys.find_keys(tenant))

    def get_scope(self, job_id: JobId) -> str:
        """Return the tenant of a job with a key; '' for the others. Texts of one scope may be
        shared in memory.
        """
        if self._keys is None:
            return ""
        tenant = self._find_tenant(job_id)
        if tenant is not None and self._keys.find_keys(tenant):
            return tenant
        return ""

    def get_owner(self, job_id: JobId) -> str:
        """Return the tenant of a job; the default tenant if no text is sealed."""
        if self._keys is None:
            return DEFAULT_TENANT
        return self._find_tenant(job_id) or DEFAULT_TENANT

    # Texts of a job.

    def seal(self, job_id: JobId, place: str, packed: bytes) -> bytes:
        """Return the form of a packed text in Redis.

        Args:
            place: see `open`.

        Raises:
            NoTenantKey: the keys of the tenant cannot be read.
        """
        if self._keys is None:
            return packed
        return self.seal_for(self._find_tenant(job_id) or "", job_id, place, packed)

    def open(self, job_id: JobId, place: str, stored_form: bytes) -> bytes:
        """Return the packed text of a form in Redis.

        Args:
            place: the field or the key within the job.

        Raises:
            NoTenantKey: this process has no key of the tenant, or not this key.
            UnreadablePayload: the text is cut or changed, or it is of another place or tenant.
        """
        if stored_form[:1] != SEALED:
            return stored_form
        tenant = _read_header(stored_form).tenant
        if self._keys is not None and self._find_tenant(job_id) != tenant:
            raise UnreadablePayload("it is encrypted for another tenant")
        return self.open_for(tenant, job_id, place, stored_form)

    def _find_tenant(self, job_id: JobId) -> str | None:
        tenant = self._tenants.get(job_id)
        if tenant is None:
            tenant = self._tenant_of(job_id)
            if tenant is not None:
                self.record_tenant(job_id, tenant)
        return tenant

    # Texts of a tenant.

    def seal_for(self, tenant: str, scope: str, place: str, packed: bytes) -> bytes:
        """Return the form of a packed text of a tenant."""
        keys = self._keys.find_keys(tenant) if self._keys else ()
        if not keys:
            return packed
        header = _build_header(tenant, keys[0])
        nonce = os.urandom(NONCE_BYTES)
        associated_data = _build_associated_data(header, scope, place)
        ciphertext = _get_cipher(keys[0], scope).encrypt(nonce, packed, associated_data)
        return header + nonce + bytes(ciphertext)

    def open_for(self, tenant: str, scope: str, place: str, stored_form: bytes) -> bytes:
        """Return the packed text of a form of a tenant. Raises as `open`."""
        if stored_form[:1] != SEALED:
            return stored_form
        header = _read_header(stored_form)
        if header.tenant != tenant:
            raise UnreadablePayload("it is encrypted for another tenant")
        if self._keys is None:
            raise NoTenantKey(
                f"texts of tenant {tenant} are encrypted, and this process has no keys of tenants"
                " (HANDOFF_TENANT_KEYS)"
            )
        for key in self._keys.find_keys(tenant):
            if compute_key_id(key) == header.key_id:
                return _decrypt_text(key, scope, place, stored_form, header.size)
        raise NoTenantKey(
            f"texts of tenant {tenant} are encrypted with the key {header.key_id.hex()}, and this"
            " process does not have this key"
        )

    def list_document_names(self, tenant: str, digest: str) -> list[str]:
        """Return the names under which a document of a tenant may be stored, the one for new
        documents first. Only a holder of the key can compute the name of a sealed document.
        """
        keys = self._keys.find_keys(tenant) if self._keys else ()
        names: list[str] = []
        for key in keys:
            text = f"handoff document\0{digest}".encode()
            names.append("s" + hmac.digest(key, text, "sha256").hex())
        return names or [digest]

    # Messages of a queue.

    def seal_message(self, job_id: JobId, handoff_id: str, text: str) -> str:
        """Return the message of a handoff, sealed if its tenant has a key."""
        if not self.get_scope(job_id):
            return text
        sealed_form = self.seal(job_id, f"message:{handoff_id}", text.encode())
        fields = {
            "sealed": base64.b64encode(sealed_form).decode(),
            "job_id": job_id,
            "handoff_id": handoff_id,
            "digest": compute_digest(text),
        }
        return json.dumps(fields, separators=(",", ":"))

    def open_message(self, text: str) -> str:
        """Return the text of a handoff from its message.

        Raises:
            MalformedMessage: the message cannot be opened. The message says why.
        """
        if not text.startswith(MESSAGE_START):
            return text
        try:
            fields = json.loads(text)
            sealed_form = base64.b64decode(fields["sealed"], validate=True)
            if sealed_form[:1] != SEALED:
                raise UnreadablePayload("it is not encrypted")
            place = f"message:{fields['handoff_id']}"
            return self.open(JobId(fields["job_id"]), place, sealed_form).decode()
        except (UnreadablePayload, ValueError, LookupError, TypeError, RecursionError) as error:
            why = str(error) if isinstance(error, UnreadablePayload) else type(error).__name__
            raise MalformedMessage(f"the message cannot be opened: {why}") from None


def find_digest(message: str) -> str | None:
    """Return the digest of the text in a sealed message; None for another message."""
    if not message.startswith(MESSAGE_START):
        return None
    try:
        digest = json.loads(message)["digest"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return digest if isinstance(digest, str) else None


@lru_cache(maxsize=1024)
def _build_header(tenant: str, key: bytes) -> bytes:
    name = tenant.encode()
    return _HEAD.pack(SEALED, _VERSION, compute_key_id(key), len(name)) + name


@lru_cache(maxsize=1024)
def compute_key_id(key: bytes) -> bytes:
    """Return the public id of a key. It does not reveal the key."""
    return sha256(b"handoff key id\0" + key).digest()[:8]


def _get_cipher(key: bytes, scope: str) -> Any:
    """Return the cipher of a scope."""
    return _build_cipher(key, scope[:SCOPE_CHARS])


@lru_cache(maxsize=4096)
def _build_cipher(key: bytes, beginning: str) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(hmac.digest(key, f"handoff payload\0{beginning}".encode(), "sha256"))


class _Header(NamedTuple):
    """The header of a sealed text."""

    tenant: str
    key_id: bytes
    size: int
    """Bytes of the header."""


def _read_header(sealed_form: bytes) -> _Header:
    """Return the header of a sealed text.

    Raises:
        UnreadablePayload: the header cannot be read.
    """
    try:
        _, version, stored_key_id, name_bytes = _HEAD.unpack_from(sealed_form)
        size = _HEAD.size + name_bytes
        if version != _VERSION or len(sealed_form) < size + NONCE_BYTES + TAG_BYTES:
            raise UnreadablePayload("it is cut off, or of another version")
        return _Header(sealed_form[_HEAD.size : size].decode(), stored_key_id, size)
    except (struct.error, UnicodeDecodeError):
        raise UnreadablePayload("it is cut off") from None


def _decrypt_text(
    key: bytes, scope: str, place: str, sealed_form: bytes, header_bytes: int
) -> bytes:
    """Return the packed text of a sealed text.

    Args:
        header_bytes: size of its header.

    Raises:
        UnreadablePayload: the text does not belong to this key, scope and place.
    """
    from cryptography.exceptions import InvalidTag

    header, rest = sealed_form[:header_bytes], sealed_form[header_bytes:]
    nonce, ciphertext = rest[:NONCE_BYTES], rest[NONCE_BYTES:]
    associated_data = _build_associated_data(header, scope, place)
    try:
        return bytes(_get_cipher(key, scope).decrypt(nonce, ciphertext, associated_data))
    except InvalidTag:
        raise UnreadablePayload("it was changed, or it is of another place") from None


def _build_associated_data(header: bytes, scope: str, place: str) -> bytes:
    """Return the data that a sealed text is bound to."""
    return b"\0".join((header, scope.encode(), place.encode()))


PLAIN = Sealing()
"""Seals nothing, and refuses sealed texts."""


def build_draft_place(handoff_id: HandoffId) -> str:
    """Return the place of a handoff's draft within its job, for `Sealing`."""
    return f"draft:{handoff_id}"
