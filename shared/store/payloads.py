"""Payloads, stored by their digest. Each job has a hash for its payloads. The texts of
documents are stored once for all jobs.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.encryption_at_rest import (
    DOCUMENTS,
    SEALED,
    Sealing,
    build_draft_place,
)
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.store.script_arguments import (
    build_read_list_arguments,
    iterate_rows,
    read_entries,
)
from handoff_queue.shared.types.errors import (
    MalformedMessage,
    NoTenantKey,
    StoreError,
    UnreadablePayload,
)
from handoff_queue.shared.types.events import DEFAULT_TENANT
from handoff_queue.shared.types.handoff import Document
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.message import compute_digest

COMPRESS_FROM = 1_000
"""Bytes from which a payload is compressed. For a shorter handoff or result, zlib saves 0.2 KB
and takes 20 microseconds.
"""
SMALL_BYTES = 32_000
"""Bytes up to which a payload is compressed with the settings for small payloads."""
SMALL_WINDOW = 13
SMALL_MEMORY = 6
"""zlib's window and memory level for small payloads. They need 64 KB for each payload; the
defaults need 256 KB and save a few bytes. Their allocation takes ten times as long as the
compression.
"""
MAX_BYTES = 256_000_000
"""Bytes of the longest payload that is decompressed. The longest documents have 20 MB by
default (see HANDOFF_MAX_DOCUMENT_BYTES). zlib data can be 1,000 times as long as it is stored.
"""
SHORT_BYTES = 200_000
"""Bytes of the longest user's message, note or entry of a fetched page. A message of a user has at
most 10,000 characters.
"""
MAX_DRAFT_BYTES = 8_000_000
"""Bytes of the longest unfinished answer that is read. 128,000 tokens have about 0.5 million."""
MAX_RESULT_BYTES = 64_000_000
"""Bytes of the longest result of a step. A supervisor needs about five times as much memory to read
it, and reads the results of several jobs at once.
"""
MAX_STORED_BYTES = MAX_RESULT_BYTES + 1_000
"""Bytes of the longest stored payload that is read: it may be encrypted, and not compressible."""
LEFT_OUT = b">"
"""The answer of `read_payloads.lua` in place of a payload that is too long."""
USUAL_RATIO = 20
"""Bytes of text for each stored byte that one call decompresses in any case. JSON and prose have
less than 10.
"""
REMEMBERED_CHARS = 50_000
"""Characters up to which the process keeps the compressed form of a payload for the next job."""
FETCHED = "fetched"
"""Place of the sealed entries of `keys.fetched_pages`."""
MAX_PAGES = 5_000
"""Newest fetched pages of a job that are read."""
MAX_PAGES_BYTES = 64_000_000
"""Bytes of these entries. An entry of a page has a few hundred bytes."""
DOCUMENTS_AT_ONCE = 1_000
"""Documents that one script looks for."""
UPLOAD_CHARS = 4_000_000
"""Characters of documents after which a round trip is full."""


def pack(text: str) -> bytes:
    """Return the stored form of a text. The first byte is `=` before plain UTF-8, or `z`
    before zlib data.
    """
    raw = text.encode()
    if len(raw) < COMPRESS_FROM:
        return b"=" + raw
    if len(raw) > SMALL_BYTES:
        return b"z" + zlib.compress(raw, 1)
    small = zlib.compressobj(1, zlib.DEFLATED, SMALL_WINDOW, SMALL_MEMORY)
    return b"z" + small.compress(raw) + small.flush()


def unpack(packed: bytes, max_bytes: int = MAX_BYTES) -> str:
    """Return the text of a stored payload of at most `max_bytes` bytes; a longer one is not
    decompressed.

    Raises:
        UnreadablePayload: the payload is longer, cut off, not zlib data, or not UTF-8.
    """
    try:
        raw = _decompress(packed, max_bytes)
        if len(raw) > max_bytes:
            raise UnreadablePayload(f"it is longer than {max_bytes:,} bytes")
        return raw.decode()
    except (UnicodeDecodeError, zlib.error) as error:
        raise UnreadablePayload(f"it cannot be decoded ({type(error).__name__})") from error


def _decompress(packed: bytes, max_bytes: int) -> bytes:
    """Return the content of a stored payload. At most `max_bytes` + 1 bytes are decompressed.

    Raises:
        UnreadablePayload: the zlib data is cut off.
    """
    if packed[:1] != b"z":
        return packed[1:]
    decompressor = zlib.decompressobj()
    raw = decompressor.decompress(packed[1:], max_bytes + 1)
    if len(raw) <= max_bytes and not decompressor.eof:
        raise UnreadablePayload("it is cut off")
    return raw


def verify_payload(digest: str, packed: bytes, max_bytes: int = MAX_BYTES) -> str:
    """Return the text of a stored payload after a check against the digest that it is stored
    under.

    Raises:
        UnreadablePayload: the payload cannot be unpacked, or its text has another digest.
    """
    try:
        text = unpack(packed, max_bytes)
    except UnreadablePayload as error:
        raise UnreadablePayload(f"payload {digest[:12]} cannot be read: {error}") from error
    if compute_digest(text) != digest:
        raise UnreadablePayload(
            f"payload {digest[:12]} cannot be read: its text does not match its digest"
        )
    return text


def build_payload_arguments(
    sealing: Sealing, job_id: JobId, texts: Iterable[str]
) -> list[str | bytes]:
    """Return pairs of digest and payload of a job, in the form of the scripts. The payloads are
    compressed, and sealed if the tenant of the job has a key.
    """
    arguments: list[str | bytes] = []
    for text in texts:
        if len(text) <= REMEMBERED_CHARS:
            digest, packed = _digest_and_pack_cached(text)
        else:
            digest, packed = _digest_and_pack(text)
        arguments += (digest, sealing.seal(job_id, digest, packed))
    return arguments


def build_page_entry(sealing: Sealing, job_id: JobId, page: Document) -> str | bytes:
    """Return the entry of a fetched page of a job, in the form of the scripts. It is sealed if the
    tenant of the job has a key.
    """
    packed = pack(page.to_json())
    sealed = sealing.seal(job_id, FETCHED, packed)
    return page.to_json() if sealed == packed else sealed


def _digest_and_pack(text: str) -> tuple[str, bytes]:
    return compute_digest(text), pack(text)


_digest_and_pack_cached = lru_cache(maxsize=256)(_digest_and_pack)
"""`_digest_and_pack` with a cache, because each job stores the instructions of roles and
specialists.
"""


@dataclass(slots=True)
class _Room:
    """The room for the texts that one call decompresses. A worker that was taken over may store
    thousands of payloads that zlib packs 1,000 to 1, and another process would need all its memory.
    """

    left: int

    @classmethod
    def for_payloads(cls, stored_forms: Iterable[bytes | None]) -> _Room:
        """Return the room for these stored payloads."""
        return cls(MAX_BYTES + USUAL_RATIO * sum(len(value) for value in stored_forms if value))

    @property
    def max_bytes(self) -> int:
        """Return the bytes of the longest text that has room."""
        return max(0, min(MAX_BYTES, self.left))

    def take(self, text: str) -> str:
        """Return the text, after its characters are taken from the room."""
        self.left -= len(text)
        return text


class PayloadStore:
    """The payloads of jobs, the texts of documents, and the pages that were fetched for jobs."""

    def __init__(self, connection: Connection, keep_s: int) -> None:
        self._connection = connection
        self._redis = connection.redis
        self._keep_s = keep_s

    @property
    def _sealing(self) -> Sealing:
        return self._connection.sealing

    def get(
        self, job_id: JobId, digests: Sequence[str], *, results: Sequence[str] = ()
    ) -> dict[str, str]:
        """Return the texts of all these digests, in one round trip.

        Args:
            job_id: The job that the payloads belong to.
            digests: Payloads that must be readable.
            results: More payloads. The text is '' for a payload that is missing or damaged: such
                a result is a failed step, and must not stop its job.

        Raises:
            StoreError: a payload of `digests` is missing.
            UnreadablePayload: a payload of `digests` is too long, or cannot be unpacked. Or its
                text has another digest, or all texts together are too long.
            NoTenantKey: a payload is encrypted, and this process does not have the key.
        """
        distinct_digests = list(dict.fromkeys((*digests, *results)))
        if not distinct_digests:
            return {}
        values = self._connection.run_script(
            "read_payloads", *build_read_arguments(job_id, distinct_digests)
        )
        stored_forms = dict(zip(distinct_digests, values, strict=True))
        room = _Room.for_payloads(values)
        missing = {digest[:12]: None for digest in digests if stored_forms[digest] is None}
        if missing:
            raise StoreError(f"payloads of {job_id} are gone: {', '.join(missing)}")
        must_be_readable = {*digests}
        texts: dict[str, str] = {}
        for digest, value in stored_forms.items():
            texts[digest] = ""
            if value is None:
                continue
            try:
                longest = room.max_bytes
                if digest not in must_be_readable:
                    longest = min(longest, MAX_RESULT_BYTES)
                texts[digest] = room.take(self._open_and_verify(job_id, digest, value, longest))
            except NoTenantKey:
                raise
            except UnreadablePayload:
                if digest in must_be_readable:
                    raise
        return texts

    def read_short(self, job_id: JobId, digests: Sequence[str], max_bytes: int) -> dict[str, str]:
        """Return the texts of at most `max_bytes` bytes, in one round trip; missing, longer
        and unreadable texts are left out.
        """
        distinct_digests = list(dict.fromkeys(digests))
        if not distinct_digests:
            return {}
        stored_forms = self._connection.run_script(
            "read_payloads", *build_read_arguments(job_id, distinct_digests, max_bytes)
        )
        texts: dict[str, str] = {}
        for digest, value in zip(distinct_digests, stored_forms, strict=True):
            if value is not None:
                with suppress(UnreadablePayload):
                    texts[digest] = self._open_and_verify(job_id, digest, value, max_bytes)
        return texts

    def _open_and_verify(
        self, job_id: JobId, digest: str, stored_form: bytes, max_bytes: int = MAX_BYTES
    ) -> str:
        """Return the text of a payload. Raises as `Sealing.open` and `verify_payload`."""
        return verify_payload(
            digest, open_payload(self._sealing, job_id, digest, stored_form), max_bytes
        )

    def draft(self, job_id: JobId, handoff_id: HandoffId) -> str:
        """Return the answer that a handoff is writing; '' if there is no draft, or if it
        cannot be read.
        """
        with self._connection.translate_errors():
            role = self._redis.hget(keys.agents(job_id), handoff_id)
            if role is None:
                return ""
            draft_key = keys.draft(job_id, role.decode(), handoff_id)
            stored_form = self._redis.getrange(draft_key, 0, MAX_DRAFT_BYTES)
        if not 0 < len(stored_form) <= MAX_DRAFT_BYTES:
            return ""
        try:
            packed = self._sealing.open(job_id, build_draft_place(handoff_id), stored_form)
            return unpack(packed, MAX_DRAFT_BYTES)
        except UnreadablePayload:
            return ""

    # Texts of documents, which all jobs share.

    def find_missing_documents(
        self, digests: Sequence[str], work_s: float, tenant: str = DEFAULT_TENANT
    ) -> set[str]:
        """Return the digests without a stored text. Extend the retention of the other texts by
        the `work_s` seconds that a job of the tenant may take.
        """
        return self._find_missing(digests, work_s, tenant, with_plain=True)

    def _find_missing(
        self, digests: Sequence[str], work_s: float, tenant: str, *, with_plain: bool
    ) -> set[str]:
        """Return the digests without a stored text.

        Args:
            with_plain: whether a text counts that is stored without encryption.
        """
        missing: set[str] = set()
        for part in iterate_rows(digests, DOCUMENTS_AT_ONCE):
            digest_by_key = self._build_document_keys(tenant, part, with_plain=with_plain)
            exist = self._connection.run_script(
                "extend_ttl", list(digest_by_key), [1000 * self._compute_stay_s(work_s)]
            )
            missing.update(part)
            for digest, exists in zip(digest_by_key.values(), exist, strict=True):
                if exists:
                    missing.discard(digest)
        return missing

    def _build_document_keys(
        self, tenant: str, digests: Iterable[str], *, with_plain: bool = True
    ) -> dict[str, str]:
        """Return the keys at which documents may be stored, each with the digest of its document.

        Args:
            with_plain: see `_find_missing`. Such a text is older than the key of the tenant.
        """
        digest_by_key: dict[str, str] = {}
        for digest in digests:
            for name in self._sealing.list_document_names(tenant, digest):
                digest_by_key[keys.document(name)] = digest
            if with_plain:
                digest_by_key[keys.document(digest)] = digest
        return digest_by_key

    def put_new_documents(
        self, texts: Mapping[str, str], work_s: float, tenant: str = DEFAULT_TENANT
    ) -> None:
        """Store the texts that are missing, in round trips of about `UPLOAD_CHARS` characters.

        Args:
            texts: texts by digest.
            work_s: seconds that the job may take.
        """
        batch: dict[str, str] = {}
        chars = 0
        for digest in sorted(self._find_missing(list(texts), work_s, tenant, with_plain=False)):
            batch[digest] = texts[digest]
            chars += len(texts[digest])
            if chars > UPLOAD_CHARS:
                self.put_documents(batch, work_s, tenant)
                batch = {}
                chars = 0
        if batch:
            self.put_documents(batch, work_s, tenant)

    def put_documents(
        self, texts: Mapping[str, str], work_s: float, tenant: str = DEFAULT_TENANT
    ) -> None:
        """Store the texts by digest for `work_s` seconds and the retention time. A text that
        is stored already stays unchanged.
        """
        with self._connection.translate_errors():
            pipe = self._redis.pipeline(transaction=False)
            for digest, text in texts.items():
                name = self._sealing.list_document_names(tenant, digest)[0]
                stored_form = self._sealing.seal_for(tenant, DOCUMENTS, digest, pack(text))
                pipe.set(keys.document(name), stored_form, ex=self._compute_stay_s(work_s), nx=True)
            pipe.execute()

    def read_documents(
        self, digests: Sequence[str], tenant: str = DEFAULT_TENANT
    ) -> dict[str, str]:
        """Return the texts of a tenant's documents by digest; missing texts are left out.

        Raises:
            UnreadablePayload: a stored text cannot be unpacked, or has another digest, or all
                texts together are too long.
            NoTenantKey: a text is encrypted, and this process does not have the key.
        """
        if not digests:
            return {}
        digest_by_key = self._build_document_keys(tenant, digests)
        with self._connection.translate_errors():
            stored_forms = self._redis.mget(list(digest_by_key))
        texts: dict[str, str] = {}
        room = _Room.for_payloads(stored_forms)
        for digest, value in zip(digest_by_key.values(), stored_forms, strict=True):
            if value is not None and digest not in texts:
                packed = self._sealing.open_for(tenant, DOCUMENTS, digest, value)
                texts[digest] = room.take(verify_payload(digest, packed, room.max_bytes))
        return texts

    # Pages that were fetched for one job, which only that job may cite.

    def put_fetched_page(
        self,
        job_id: JobId,
        document: Document,
        text: str,
    ) -> None:
        """Store a fetched page, and its text as a payload of the job. A job that has ended gets no
        more pages.
        """
        self._connection.run_script(
            "keep_fetched_page", *self._build_page_arguments(job_id, document, text)
        )

    def put_fetched_pages(
        self, job_id: JobId, documents: Sequence[Document], texts: Sequence[str]
    ) -> None:
        """Store fetched pages and their texts, in one round trip. See `put_fetched_page`."""
        calls: list[tuple[list[str], list[str | bytes]]] = []
        for document, text in zip(documents, texts, strict=True):
            calls.append(self._build_page_arguments(job_id, document, text))
        self._connection.run_script_for_all("keep_fetched_page", calls)

    def _build_page_arguments(
        self, job_id: JobId, document: Document, text: str
    ) -> tuple[list[str], list[str | bytes]]:
        """Return the keys and arguments of `keep_fetched_page.lua`."""
        entry = build_page_entry(self._sealing, job_id, document)
        return [keys.job(job_id)], [entry, *build_payload_arguments(self._sealing, job_id, [text])]

    def _compute_stay_s(self, work_s: float) -> int:
        """Return the seconds for which a document is stored."""
        return self._keep_s + math.ceil(work_s)

    def load_fetched_pages(self, job_id: JobId) -> list[Document]:
        """Return the pages that were fetched for this job, each once, the newest first. Entries
        that cannot be read are left out. The text of a page is a payload of the job.
        """
        entries = self._connection.run_script(
            "read_list",
            [keys.fetched_pages(job_id)],
            build_read_list_arguments(-MAX_PAGES, -1, SHORT_BYTES, MAX_PAGES_BYTES),
        )

        def parse_page(entry: bytes) -> Document:
            if entry[:1] != SEALED:
                if len(entry) > SHORT_BYTES:
                    raise MalformedMessage(f"it is longer than {SHORT_BYTES:,} bytes")
                return Document.from_json(entry)
            try:
                packed = self._sealing.open(job_id, FETCHED, entry)
                return Document.from_json(unpack(packed, SHORT_BYTES))
            except UnreadablePayload as error:
                raise MalformedMessage(str(error)) from None

        # the first entry is empty
        pages = read_entries(
            filter(None, reversed(entries)), parse_page, keys.fetched_pages(job_id)
        )
        return list(dict.fromkeys(pages))


def build_read_arguments(
    job_id: JobId, digests: Sequence[str], max_bytes: int = MAX_STORED_BYTES
) -> tuple[list[str], list[str | int]]:
    """Return the keys and the arguments of `read_payloads.lua`.

    Args:
        max_bytes: bytes of the longest stored payload that is read.
    """
    return [keys.blobs(job_id)], [max_bytes, MAX_BYTES, *digests]


def open_payload(sealing: Sealing, job_id: JobId, digest: str, stored_form: bytes) -> bytes:
    """Return a packed payload. An error names the payload.

    Args:
        stored_form: an answer of `read_payloads.lua`.

    Raises:
        NoTenantKey: see `Sealing.open`.
        UnreadablePayload: see `Sealing.open`, or the payload was not read.
    """
    if stored_form == LEFT_OUT:
        raise UnreadablePayload(
            f"payload {digest[:12]} cannot be read: it is longer than {MAX_STORED_BYTES:,} bytes,"
            f" or all payloads together are longer than {MAX_BYTES:,}"
        )
    try:
        return sealing.open(job_id, digest, stored_form)
    except NoTenantKey:
        raise
    except UnreadablePayload as error:
        raise UnreadablePayload(f"payload {digest[:12]} cannot be read: {error}") from error
