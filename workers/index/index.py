"""Full-text search over the documents of a job: one index per host, one entry per text, filled
when a job first asks.
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
from handoff_queue.workers.index import search as matching
from handoff_queue.workers.index.database import Database
from handoff_queue.workers.index.writer import fill, find_indexed_ids

_REMEMBERED_SCOPES = 32
"""Manifests whose documents are known to be indexed; each handoff in progress has one."""


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A found passage. snippet == text[start:end] of the document's extracted text."""

    source: str
    start: int
    end: int
    snippet: str
    score: float


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Passages that a search found, and the documents that it covered."""

    hits: tuple[SearchHit, ...]
    searched: int
    """Documents of the manifest that could be searched."""
    missing: tuple[str, ...] = ()
    """Paths of documents that it could not cover, because their text is gone."""


@dataclass(frozen=True, slots=True)
class _Scope:
    """The documents of one manifest as the index knows them."""

    manifest: Manifest
    generation: int
    paths: dict[int, str]
    ids_json: str
    missing: tuple[str, ...]


class DocumentIndex:
    """The index of this host. Opens nothing until it is asked; share one between all threads
    of a process.
    """

    def __init__(self, cache_dir: Path) -> None:
        self._database = Database(cache_dir)
        self._scopes: OrderedDict[int, _Scope] = OrderedDict()
        self._lock = threading.Lock()
        self._filling = threading.Lock()

    def search(
        self, manifest: Manifest, query: str, *, text_of: Callable[[str], str], limit: int = 8
    ) -> SearchResult:
        """Return the best passages of a manifest's documents for any text. Documents that are not
        indexed yet are fetched with `text_of` and added.

        Raises:
            UserError: the cache folder cannot be used.
            sqlite3.DatabaseError: the index is busy for too long, or the disk is full.
        """
        try:
            return self._search(manifest, query, text_of, limit)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:
            return self._search(manifest, query, text_of, limit)

    def close(self) -> None:
        """Close the files; a later search opens them again."""
        self._database.close()

    def _search(
        self, manifest: Manifest, query: str, text_of: Callable[[str], str], limit: int
    ) -> SearchResult:
        scope = self._scope(manifest, text_of)
        with self._database.connection() as (generation, connection):
            if generation == scope.generation:
                matches = matching.best(connection, query, scope.paths, scope.ids_json, limit)
                hits = tuple(
                    SearchHit(
                        scope.paths[match.document],
                        match.start,
                        match.end,
                        match.snippet,
                        match.score,
                    )
                    for match in matches
                )
                return SearchResult(
                    hits, len(manifest.documents) - len(scope.missing), scope.missing
                )
        raise sqlite3.DatabaseError("the index was replaced during the search")

    def _scope(self, manifest: Manifest, text_of: Callable[[str], str]) -> _Scope:
        """Make sure that all documents are indexed, and know their ids. Remembered, because
        10,000 look-ups take longer than a search.
        """
        with self._lock:
            known = self._scopes.get(id(manifest))
            if known is not None and known.generation == self._database.generation:
                self._scopes.move_to_end(id(manifest))
                return known
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
