"""Adding texts to the index: in small transactions, so that a kill costs one batch and other processes hardly wait."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable, Iterable
from itertools import islice

from handoff_queue.shared.agent.tool import ToolFailed
from handoff_queue.shared.types.documents import Manifest
from handoff_queue.workers.index.database import Database
from handoff_queue.workers.index.passages import passages
from handoff_queue.workers.index.queries import spaced

BATCH_DOCUMENTS = 250
BATCH_CHARS = 4_000_000
"""Of one transaction, and held in memory."""
ORDINAL_BITS = 20
"""A passage's id is its document's id and its number in it; a million passages are more than the largest document has."""


def fill(database: Database, manifest: Manifest, text_of: Callable[[str], str]) -> None:
    """Index what is not yet. Texts that cannot be had are left out.

    Processes that fill at the same time take batches at random and look again after each: they share the work without knowing of each
    other, and a process that dies leaves nothing to clean up.
    """
    sizes = {document.digest: document.chars for document in manifest.documents}
    unavailable: set[str] = set()
    while True:
        wanted = sizes.keys() - unavailable
        with database.connection() as (_, connection):
            missing = sorted(wanted - indexed_ids(connection, wanted).keys())
        if not missing:
            return
        random.shuffle(missing)
        texts: dict[str, str] = {}
        for digest in _batch(missing, sizes):
            try:
                texts[digest] = text_of(digest)
            except ToolFailed:
                unavailable.add(digest)
        with database.connection() as (_, connection):
            _add(connection, texts)


def indexed_ids(connection: sqlite3.Connection, digests: Iterable[str]) -> dict[str, int]:
    """The ids of those texts that are in the index."""
    rows = connection.execute(
        "SELECT digest, id FROM documents WHERE digest IN (SELECT value FROM json_each(?))",
        (json.dumps(list(digests)),),
    )
    return dict(rows.fetchall())


def _batch(missing: list[str], sizes: dict[str, int]) -> list[str]:
    batch: list[str] = []
    chars = 0
    for digest in missing[:BATCH_DOCUMENTS]:
        chars += sizes[digest]
        if batch and chars > BATCH_CHARS:
            break
        batch.append(digest)
    return batch


def _add(connection: sqlite3.Connection, texts: dict[str, str]) -> None:
    """One transaction; a text that another process has added meanwhile is passed over."""
    cut = {
        digest: list(islice(passages(text), 1 << ORDINAL_BITS)) for digest, text in texts.items()
    }
    connection.execute("BEGIN IMMEDIATE")
    for digest, text in texts.items():
        added = connection.execute(
            "INSERT INTO documents (digest) VALUES (?) ON CONFLICT DO NOTHING RETURNING id",
            (digest,),
        ).fetchall()
        if not added:
            continue
        first = added[0][0] << ORDINAL_BITS
        numbered = list(enumerate(cut[digest], first))
        connection.executemany(
            "INSERT INTO passages (id, first, last, snippet) VALUES (?, ?, ?, ?)",
            [
                (number, passage.start, passage.end, text[passage.start : passage.end])
                for number, passage in numbered
            ],
        )
        connection.executemany(
            "INSERT INTO words (rowid, heading, body) VALUES (?, ?, ?)",
            [
                (number, spaced(passage.heading), spaced(text[passage.start : passage.end]))
                for number, passage in numbered
            ],
        )
    connection.execute("COMMIT")
