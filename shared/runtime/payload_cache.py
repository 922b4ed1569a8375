"""Cache of payloads that a process has read or written. The keys are digests, so an entry is
never stale.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from handoff_queue.shared.agent.own_words import (
    find_own_passages,
    list_argument_texts,
    list_url_texts,
)
from handoff_queue.shared.agent.quote_verification import Sources
from handoff_queue.shared.agent.seen_texts import get_host
from handoff_queue.shared.agent.tool import ToolContext, ToolFailed
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import UnreadablePayload
from handoff_queue.shared.types.events import DEFAULT_TENANT
from handoff_queue.shared.types.handoff import Document, Manifest
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.memory_notes import MEMORY
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.origins import find_tool

PAYLOAD_CHARS = 32_000_000
"""Characters of payloads that a process keeps in memory."""
DOCUMENT_CHARS = 64_000_000
"""Characters of documents that a process keeps in memory."""
MANIFESTS = 16
"""Parsed manifests that a process keeps."""
UNLIMITED_S = 3_600.0
"""Seconds that a handoff without a deadline counts as having left."""
MAX_OWN_CHARS = 200_000
"""Characters of the passages of a kept result that the models of other agents wrote. A worker that
was taken over may have written any number, and each quote is compared with all passages.
"""
_EMPTY = compute_digest("")


class TextCache:
    """Cache of texts by digest. It drops the least recently used text first.

    `put` computes the digest itself, so a text can only be found under its own digest. A text of a
    scope is only found in this scope: a tenant with a key has its own scope.
    """

    def __init__(self, max_chars: int) -> None:
        self._max_chars = max_chars
        self._chars = 0
        self._texts: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, digest: str, scope: str = "") -> str | None:
        place = (scope, digest)
        with self._lock:
            if place in self._texts:
                self._texts.move_to_end(place)
            return self._texts.get(place)

    def put(self, text: str, scope: str = "") -> None:
        place = (scope, compute_digest(text))
        with self._lock:
            self._chars += len(text) - len(self._texts.get(place, ""))
            self._texts[place] = text
            self._texts.move_to_end(place)
            while self._chars > self._max_chars and len(self._texts) > 1:
                self._chars -= len(self._texts.popitem(last=False)[1])


@dataclass(slots=True)
class JobDocuments:
    """The documents of one job, for one running handoff."""

    tool_context: ToolContext
    """Access of its tools to the documents."""
    sources: Sources
    """Texts in which its quotes are looked up."""


class PayloadCache:
    """Payloads, documents and manifests in memory. The threads of a process share it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._payloads = TextCache(PAYLOAD_CHARS)
        self._documents = TextCache(DOCUMENT_CHARS)
        self._manifests: OrderedDict[str, Manifest] = OrderedDict()
        self._lock = threading.Lock()

    def get_payloads(
        self, job_id: JobId, digests: Sequence[str], *, results: Sequence[str] = ()
    ) -> dict[str, str]:
        """Return payloads of a job by digest. Only payloads outside the cache cost a round
        trip.

        The arguments and errors are those of `PayloadStore.get`.
        """
        known: dict[str, str] = {}
        scope = self._store.connection.sealing.get_scope(job_id)
        for digest in (*digests, *results):
            text = self._payloads.get(digest, scope)
            if text is not None:
                known[digest] = text
        fetched_texts = self._store.payloads.get(
            job_id,
            [digest for digest in digests if digest not in known],
            results=[digest for digest in results if digest not in known],
        )
        self.remember(filter(None, fetched_texts.values()), job_id)
        return known | fetched_texts

    def remember(self, texts: Iterable[str], job_id: JobId) -> None:
        """Add payloads of a job to the cache."""
        scope = self._store.connection.sealing.get_scope(job_id)
        for text in texts:
            self._payloads.put(text, scope)

    def parse_manifest(self, text: str) -> Manifest:
        """Return the parsed manifest from the cache, or parse it. A manifest may name 10,000
        documents.
        """
        digest = compute_digest(text)
        with self._lock:
            manifest = self._manifests.get(digest)
            if manifest is None:
                manifest = self._manifests[digest] = Manifest.from_json(text)
                while len(self._manifests) > MANIFESTS:
                    self._manifests.popitem(last=False)
            return manifest

    def get_text(self, job_id: JobId, digest: str, tenant: str = DEFAULT_TENANT) -> str:
        """Return the text of a document of a tenant, or of a page that was fetched for a job.

        Raises:
            ToolFailed: the text is no longer stored, or cannot be read.
        """
        if digest == _EMPTY:  # the store gives a missing payload as an empty text
            return ""
        scope = self._store.connection.sealing.get_scope(job_id)
        text = self._documents.get(digest, scope)
        if text is None:
            try:
                text = self._load_text(job_id, digest, tenant)
            except UnreadablePayload as error:
                raise ToolFailed(f"this document is damaged in Redis: {error}") from error
            if text is None:
                raise ToolFailed("this document is no longer stored")
            self._documents.put(text, scope)
        return text

    def _load_text(self, job_id: JobId, digest: str, tenant: str) -> str | None:
        """Return the text of a document, or of a page; None: it is not stored."""
        text = self._store.payloads.read_documents([digest], tenant).get(digest)
        if text is None:
            text = self._store.payloads.get(job_id, [], results=[digest])[digest] or None
        return text

    def open_job_documents(
        self, job_id: JobId, handoff_id: HandoffId, manifest: Manifest, deadline: float | None
    ) -> JobDocuments:
        """Return the documents that one running handoff may read.

        Args:
            deadline: deadline of the handoff, in Unix seconds; None: it has none.
        """
        sealing = self._store.connection.sealing
        tenant = sealing.get_owner(job_id)
        scope = sealing.get_scope(job_id)
        access = _DocumentAccess(self, self._store, job_id, tenant, scope, deadline)
        sources = Sources(
            text_of=access.get_text,
            manifest=manifest,
            load_fetched_pages=access.load_fetched_pages,
            results=access.results,
            load_seen_texts=lambda: access.seen,
            keep=access.keep,
            list_own_words=access.list_own_words,
        )
        context = ToolContext(
            job_id=job_id,
            handoff_id=handoff_id,
            manifest=manifest,
            text_of=access.get_text,
            keep_document=access.keep,
            remaining_s=access.compute_remaining_s,
            load_fetched_pages=access.load_fetched_pages,
            record_tool_result=access.record_tool_result,
            texts_shown=lambda: access.visible_texts,
            record_text=access.record_text,
            hide_text=access.hide_text,
            tenant=lambda: self._store.jobs.get_tenant(job_id),
            prove=sources.prove,
            record_arguments=access.record_arguments,
            has_own_sentence=sources.has_own_sentence,
        )
        return JobDocuments(context, sources)

    def remember_document(self, text: str, scope: str) -> None:
        """Keep the text of a document in memory."""
        self._documents.put(text, scope)


def _is_name_of_page(path: str) -> bool:
    """Return whether a tool gives such a name to a page, a result, a file or a note."""
    return get_host(path) is not None or path.startswith(("tool:", f"{MEMORY}:"))


@dataclass(slots=True)
class _DocumentAccess:
    """The texts that one running handoff may read and cite, for `ToolContext` and `Sources`."""

    _cache: PayloadCache
    _store: Store
    _job_id: JobId
    _tenant: str
    _scope: str
    """See `Sealing.get_scope`."""
    _deadline: float | None
    """Deadline of the handoff, in Unix seconds; None: it has none."""
    results: dict[str, str] = field(default_factory=dict)
    """Results of tools that an answer may cite, by their sources."""
    seen: list[str] = field(default_factory=list)
    """All texts that the model has seen."""
    visible_texts: list[str] = field(default_factory=list)
    """The texts that the requests still show."""
    _own_words: list[tuple[int, str]] = field(default_factory=list)
    """Texts in the arguments of the model's calls, each with the number of texts seen before."""
    _result_places: dict[str, int] = field(default_factory=dict)
    """Places of the results of tools in `seen`, by their sources."""
    _pages: list[Document] = field(default_factory=list)
    _has_read_pages: bool = False

    def load_fetched_pages(self) -> tuple[Document, ...]:
        """Return the pages that were fetched for the job, also by other handoffs and by earlier
        claims of this handoff, the newest first. The store is read once.

        A worker that was taken over may add a page with the name of a document. It is left out.
        """
        if not self._has_read_pages:
            pages = self._store.payloads.load_fetched_pages(self._job_id)
            self._pages.extend(page for page in pages if _is_name_of_page(page.path))
            self._has_read_pages = True
        return tuple(self._pages)

    def keep(self, source: str, media_type: str, text: str) -> Document:
        """Store the text of a fetched page, and return the page."""
        own_passages: tuple[str, ...] = ()
        if source in self._result_places:
            own_passages = find_own_passages(text, self.list_own_words(source))
        page = Document(
            path=source,
            digest=compute_digest(text),
            media_type=media_type,
            chars=len(text),
            own_passages=own_passages or None,
        )
        self._store.payloads.put_fetched_page(self._job_id, page, text)
        self._cache.remember_document(text, self._scope)
        self._pages.insert(0, page)
        return page

    def get_text(self, digest: str) -> str:
        """Return the text of a document. Raises as `PayloadCache.get_text`."""
        return self._cache.get_text(self._job_id, digest, self._tenant)

    def compute_remaining_s(self) -> float:
        """Return the seconds until the deadline."""
        if self._deadline is None:
            return UNLIMITED_S
        return max(0.0, self._deadline - self._store.connection.now())

    def record_tool_result(self, source: str, text: str) -> None:
        """Note a result that an answer may cite. Its text is the last that the model has seen."""
        self.results[source] = text
        self._result_places[source] = len(self.seen) - 1

    def record_arguments(self, tool: str, arguments: Any) -> None:
        """Note the words of a call. No other tool returns those of `memory`."""
        if tool != MEMORY:
            for text in list_argument_texts(arguments):
                self._own_words.append((len(self.seen), text))

    def list_own_words(self, source: str) -> list[str]:
        """Return the texts that the model wrote into calls before it saw a result or a page. Other
        agents may have written words in the URL of a page, or into the calls before a kept result.
        These words are added.
        """
        place = self._result_places.get(source)
        quoted_path = json.dumps(source, ensure_ascii=False)
        texts = list_url_texts(source) if get_host(source) is not None else []
        if place is None:
            matching = [index for index, text in enumerate(self.seen) if quoted_path in text]
            place = matching[0] if matching else -1
        for written_at, text in self._own_words:
            if written_at <= place:
                texts.append(text)
        if source not in self._result_places and find_tool(source) is not None:
            texts += self._list_own_passages(source)
        return texts

    def _list_own_passages(self, source: str) -> list[str]:
        """Return the words that other agents wrote into the calls before a kept result of a tool,
        the oldest first, with at most `MAX_OWN_CHARS` characters.
        """
        passages: list[str] = []
        left = MAX_OWN_CHARS
        for page in reversed(self.load_fetched_pages()):
            if page.path != source:
                continue
            for passage in page.own_passages or ():
                left -= len(passage)
                if left < 0:
                    return passages
                passages.append(passage)
        return passages

    def record_text(self, text: str) -> None:
        """Note a text that a request shows."""
        self.seen.append(text)
        self.visible_texts.append(text)

    def hide_text(self, text: str) -> None:
        """Note that the requests no longer show a text."""
        with suppress(ValueError):
            self.visible_texts.remove(text)
