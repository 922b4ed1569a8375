"""Writes the passages of documents to the index."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable, Iterable
from itertools import islice

from handoff_queue.shared.agent.tool import ToolFailed
from handoff_queue.shared.text.search_words import separate_cjk
from handoff_queue.shared.types.handoff import Manifest
from handoff_queue.workers.index.database import Database
from handoff_queue.workers.index.passages import Passage, split_passages

BATCH_DOCUMENTS = 250
"""Most documents of one transaction."""
BATCH_CHARS = 4_000_000
"""Most characters of one transaction, unless a single document has more. They are in memory."""
ORDINAL_BITS = 20
"""Bits of a passage's id for its number in the document. The higher bits are the document's
id. A document has at most 2**20 passages in the index.
"""


def fill(database: Database, manifest: Manifest, text_of: Callable[[str], str]) -> None:
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
            missing = sorted(wanted_digests - find_indexed_ids(connection, wanted_digests).keys())
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
            _add(connection, texts)


def find_indexed_ids(connection: sqlite3.Connection, digests: Iterable[str]) -> dict[str, int]:
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


def _add(connection: sqlite3.Connection, texts: dict[str, str]) -> None:
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
