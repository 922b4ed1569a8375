"""Full-text search in the documents of a job. All jobs of a host share one index. A search
adds the job's documents that are not in the index yet.
"""

from __future__ import annotations

import json
import random
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from handoff_queue.shared.agent.tool import ToolFailed
from handoff_queue.shared.text.search_words import separate_cjk
from handoff_queue.shared.types.handoff import Manifest
from handoff_queue.workers.index.bm25_search import Scope, count_passages, find_passages
from handoff_queue.workers.index.database import ORDINAL_BITS, Database
from handoff_queue.workers.index.passages import Passage, split_passages

_REMEMBERED_MANIFESTS = 32
"""Manifests whose document ids are kept in memory. Each running handoff has one manifest."""
BATCH_DOCUMENTS = 250
"""Most documents of one transaction."""
BATCH_CHARS = 4_000_000
"""Most characters of one transaction, unless a single document has more. They are in memory."""


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A passage that a search found. `snippet` is `text[start:end]` of the document's
    extracted text. A higher score is better.
    """

    source: str
    start: int
    end: int
    snippet: str
    score: float


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The passages that a search found, and the number of documents that it covered."""

    hits: tuple[SearchHit, ...]
    searched: int
    """Number of documents of the manifest that were searched."""
    missing: tuple[str, ...] = ()
    """Paths of documents that were not searched, because their text could not be fetched."""


@dataclass(frozen=True, slots=True)
class _IndexedManifest:
    """The indexed documents of one manifest."""

    manifest: Manifest
    """Kept so that no other manifest gets the same `id()`."""
    generation: int
    scope: Scope
    missing: tuple[str, ...]


class DocumentIndex:
    """The document index of this host. All threads of a process share one object. The first
    search opens the file.
    """

    def __init__(self, cache_dir: Path) -> None:
        self._database = Database(cache_dir)
        self._indexed: OrderedDict[int, _IndexedManifest] = OrderedDict()
        self._lock = threading.Lock()
        self._filling = threading.Lock()

    def search(
        self, manifest: Manifest, query: str, *, text_of: Callable[[str], str], limit: int = 8
    ) -> SearchResult:
        """Return the best passages in the documents of a manifest. Documents that are not
        indexed yet are added. After damage to the index, the search runs once more with a new
        file.

        Args:
            query: any text. Each of its words may match.
            text_of: returns the extracted text of the document with a digest. Raises ToolFailed.
            limit: largest number of passages.

        Raises:
            UserError: the cache folder cannot be used.
            sqlite3.DatabaseError: the index was busy for too long, the disk is full, or the new
                file is damaged as well.
        """
        try:
            return self._search(manifest, query, text_of, limit)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:
            return self._search(manifest, query, text_of, limit)

    def close(self) -> None:
        """Close the file of the index. A later search opens it again."""
        self._database.close()

    def _search(
        self, manifest: Manifest, query: str, text_of: Callable[[str], str], limit: int
    ) -> SearchResult:
        indexed = self._index_documents(manifest, text_of)
        with self._database.connection() as (generation, connection):
            if generation == indexed.generation:
                hits: list[SearchHit] = []
                for match in find_passages(connection, query, indexed.scope, limit):
                    path = indexed.scope.paths[match.document]
                    hits.append(SearchHit(path, match.start, match.end, match.snippet, match.score))
                searched = len(manifest.documents) - len(indexed.missing)
                return SearchResult(tuple(hits), searched, indexed.missing)
        raise sqlite3.DatabaseError("the index was replaced during the search")

    def _index_documents(
        self, manifest: Manifest, text_of: Callable[[str], str]
    ) -> _IndexedManifest:
        """Return the indexed documents of a manifest, after adding the missing ones. The
        result is cached, because 10,000 look-ups of ids take longer than a search.
        """
        with self._lock:
            cached = self._indexed.get(id(manifest))
            if cached is not None and cached.generation == self._database.generation:
                self._indexed.move_to_end(id(manifest))
                return cached
        with self._filling:
            _fill(self._database, manifest, text_of)
        with self._database.connection() as (generation, connection):
            ids = _find_indexed_ids(
                connection, {document.digest for document in manifest.documents}
            )
            paths: dict[int, str] = {}
            missing: list[str] = []
            for document in manifest.documents:
                if document.digest in ids:
                    paths.setdefault(ids[document.digest], document.path)
                else:
                    missing.append(document.path)
            ids_json = json.dumps(list(paths))
            scope = Scope(paths, ids_json, count_passages(connection, ids_json))
        indexed = _IndexedManifest(manifest, generation, scope, tuple(missing))
        if not missing:
            with self._lock:
                self._indexed[id(manifest)] = indexed
                while len(self._indexed) > _REMEMBERED_MANIFESTS:
                    self._indexed.popitem(last=False)
        return indexed


def _fill(database: Database, manifest: Manifest, text_of: Callable[[str], str]) -> None:
    """Add the documents of a manifest that are not in the index. Texts that cannot be fetched
    are left out.

    Processes that add the same documents take random batches, and check after each batch which
    documents are still missing. They share the work without a protocol, and a dead process
    leaves nothing to clean up.

    Args:
        text_of: returns the extracted text of the document with a digest. Raises ToolFailed.
    """
    sizes: dict[str, int] = {}
    for document in manifest.documents:
        sizes[document.digest] = document.chars
    unavailable: set[str] = set()
    while True:
        wanted_digests = sizes.keys() - unavailable
        with database.connection() as (_, connection):
            missing = sorted(wanted_digests - _find_indexed_ids(connection, wanted_digests).keys())
        if not missing:
            return
        random.shuffle(missing)
        texts: dict[str, str] = {}
        for digest in _choose_batch(missing, sizes):
            try:
                texts[digest] = text_of(digest)
            except ToolFailed:
                unavailable.add(digest)
        with database.connection() as (_, connection):
            _add_passages(connection, texts)


def _find_indexed_ids(connection: sqlite3.Connection, digests: Iterable[str]) -> dict[str, int]:
    """Return the ids of the documents that are in the index, by digest."""
    rows = connection.execute(
        "SELECT digest, id FROM documents WHERE digest IN (SELECT value FROM json_each(?))",
        (json.dumps(list(digests)),),
    )
    return dict(rows.fetchall())


def _choose_batch(missing: list[str], sizes: dict[str, int]) -> list[str]:
    """Return the first digests that fit into one transaction, at least one."""
    batch: list[str] = []
    chars = 0
    for digest in missing[:BATCH_DOCUMENTS]:
        chars += sizes[digest]
        if batch and chars > BATCH_CHARS:
            break
        batch.append(digest)
    return batch


def _add_passages(connection: sqlite3.Connection, texts: dict[str, str]) -> None:
    """Add texts by digest in one transaction. A text that another process has added is skipped."""
    passages_by_digest: dict[str, list[Passage]] = {}
    for digest, text in texts.items():
        passages_by_digest[digest] = list(islice(split_passages(text), 1 << ORDINAL_BITS))
    connection.execute("BEGIN IMMEDIATE")
    for digest, text in texts.items():
        added_rows = connection.execute(
            "INSERT INTO documents (digest) VALUES (?) ON CONFLICT DO NOTHING RETURNING id",
            (digest,),
        ).fetchall()
        if not added_rows:
            continue
        first = added_rows[0][0] << ORDINAL_BITS
        passage_rows: list[tuple[int, int, int, str]] = []
        word_rows: list[tuple[int, str, str]] = []
        for number, passage in enumerate(passages_by_digest[digest], first):
            snippet = text[passage.start : passage.end]
            passage_rows.append((number, passage.start, passage.end, snippet))
            word_rows.append((number, separate_cjk(passage.heading), separate_cjk(snippet)))
        connection.executemany(
            "INSERT INTO passages (id, first, last, snippet) VALUES (?, ?, ?, ?)", passage_rows
        )
        connection.executemany(
            "INSERT INTO words (rowid, heading, body) VALUES (?, ?, ?)", word_rows
        )
    connection.execute("COMMIT")
