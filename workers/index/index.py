"""Full-text search in the documents of a job. All jobs of a host share one index. A search
adds the job's documents that are not in the index yet.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from handoff_queue.shared.types.handoff import Manifest
from handoff_queue.workers.index.bm25_search import find_passages
from handoff_queue.workers.index.database import Database
from handoff_queue.workers.index.writer import fill, find_indexed_ids

_REMEMBERED_SCOPES = 32
"""Manifests whose document ids are kept in memory. Each running handoff has one manifest."""


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
class _Scope:
    """The indexed documents of one manifest."""

    manifest: Manifest
    """Kept so that no other manifest gets the same `id()`."""
    generation: int
    paths: dict[int, str]
    """Path by the document's id in the index."""
    ids_json: str
    """The same ids as a JSON list, for SQL."""
    missing: tuple[str, ...]


class DocumentIndex:
    """The document index of this host. All threads of a process share one object. The first
    search opens the file.
    """

    def __init__(self, cache_dir: Path) -> None:
        self._database = Database(cache_dir)
        self._scopes: OrderedDict[int, _Scope] = OrderedDict()
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
        scope = self._scope(manifest, text_of)
        with self._database.connection() as (generation, connection):
            if generation == scope.generation:
                matches = find_passages(connection, query, scope.paths, scope.ids_json, limit)
                hits: list[SearchHit] = []
                for match in matches:
                    path = scope.paths[match.document]
                    hits.append(SearchHit(path, match.start, match.end, match.snippet, match.score))
                searched = len(manifest.documents) - len(scope.missing)
                return SearchResult(tuple(hits), searched, scope.missing)
        raise sqlite3.DatabaseError("the index was replaced during the search")

    def _scope(self, manifest: Manifest, text_of: Callable[[str], str]) -> _Scope:
        """Return the indexed documents of a manifest, after adding the missing ones. The
        result is cached, because 10,000 look-ups of ids take longer than a search.
        """
        with self._lock:
            cached = self._scopes.get(id(manifest))
            if cached is not None and cached.generation == self._database.generation:
                self._scopes.move_to_end(id(manifest))
                return cached
        with self._filling:
            fill(self._database, manifest, text_of)
        with self._database.connection() as (generation, connection):
            ids = find_indexed_ids(connection, {document.digest for document in manifest.documents})
        paths: dict[int, str] = {}
        missing: list[str] = []
        for document in manifest.documents:
            if document.digest in ids:
                paths.setdefault(ids[document.digest], document.path)
            else:
                missing.append(document.path)
        scope = _Scope(manifest, generation, paths, json.dumps(list(paths)), tuple(missing))
        if not missing:
            with self._lock:
                self._scopes[id(manifest)] = scope
                while len(self._scopes) > _REMEMBERED_SCOPES:
                    self._scopes.popitem(last=False)
        return scope
