"""Splits documents into passages, and writes them to the index."""

from __future__ import annotations

import json
import random
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from handoff_queue.shared.agent.tool import ToolFailed
from handoff_queue.shared.types.handoff import Manifest
from handoff_queue.workers.index.database import Database
from handoff_queue.workers.index.query_builder import index_text

AIM_CHARS = 700
"""Characters after which a passage gets no further paragraph: about five sentences. This is
enough for a quote, and short enough to show eight passages.
"""
MOST_CHARS = 1_400
"""Longest passage in characters. A longer paragraph is cut after a sentence, a line or a word,
or else at this length.
"""

_HEADING = re.compile(r"#{1,6}[ \t]+(\S.*)")
_CUTS = (
    re.compile(r"(?<=[.!?。！？])[\"')\]]*\s+|(?<=[。！？])"),
    re.compile(r"\n"),
    re.compile(r"\s"),
)
"""Places to cut a long paragraph, best first."""


@dataclass(frozen=True, slots=True)
class Passage:
    """The part `text[start:end]` of a document, without white space at its ends."""

    start: int
    end: int
    heading: str
    """The document's first heading, and the heading above the passage."""


def passages(text: str) -> Iterator[Passage]:
    """Yield the passages of a text in order. They do not overlap, and they cover the whole
    text except white space.
    """
    title = section = ""
    start = end = -1
    for piece_start, piece_end in _pieces(text):
        heading = _HEADING.match(text, piece_start, piece_end)
        is_full = start >= 0 and (
            heading is not None or piece_end - start > MOST_CHARS or end - start >= AIM_CHARS
        )
        if is_full:
            yield Passage(start, end, _trail(title, section))
            start = -1
        if heading is not None:
            section = heading.group(1).strip()[:200]
            title = title or section
        start, end = (piece_start if start < 0 else start), piece_end
    if start >= 0:
        yield Passage(start, end, _trail(title, section))


def _trail(title: str, section: str) -> str:
    """Return the title and the heading of the section, or the title alone if both are the same."""
    if section == title:
        return section
    return f"{title} {section}".strip()


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of paragraphs, and of parts of long paragraphs."""
    for first, end in _paragraphs(text):
        start = first
        while end - start > MOST_CHARS:
            cut = _best_cut(text, start)
            piece_end = start + len(text[start:cut].rstrip())
            yield start, piece_end
            start = cut + len(text[cut:end]) - len(text[cut:end].lstrip())
        if start < end:
            yield start, end


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of paragraphs: lines without a blank line between them. A heading begins
    a new span.
    """
    start = end = -1
    position = 0
    for line in text.splitlines(keepends=True):
        stripped = line.strip()
        is_heading = _HEADING.match(stripped) is not None
        if start >= 0 and (not stripped or is_heading):
            yield start, end
            start = -1
        if stripped:
            first = position + line.index(stripped)
            start, end = (first if start < 0 else start), first + len(stripped)
        position += len(line)
    if start >= 0:
        yield start, end


def _best_cut(text: str, start: int) -> int:
    """Return the index at which a long paragraph is cut: the last good place in the first
    `MOST_CHARS`.
    """
    window_end = start + MOST_CHARS
    for cut in _CUTS:
        ends: list[int] = []
        for match in cut.finditer(text, start + 1, window_end):
            if match.end() - start <= MOST_CHARS:
                ends.append(match.end())
        if ends and ends[-1] - start >= AIM_CHARS // 2:
            return ends[-1]
    return window_end


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
        wanted = sizes.keys() - unavailable
        with database.connection() as (_, connection):
            missing = sorted(wanted - find_indexed_ids(connection, wanted).keys())
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


def find_indexed_ids(connection: sqlite3.Connection, digests: Iterable[str]) -> dict[str, int]:
    """Return the ids of the documents that are in the index, by digest."""
    rows = connection.execute(
        "SELECT digest, id FROM documents WHERE digest IN (SELECT value FROM json_each(?))",
        (json.dumps(list(digests)),),
    )
    return dict(rows.fetchall())


def _batch(missing: list[str], sizes: dict[str, int]) -> list[str]:
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
        passages_by_digest[digest] = list(islice(passages(text), 1 << ORDINAL_BITS))
    connection.execute("BEGIN IMMEDIATE")
    for digest, text in texts.items():
        added = connection.execute(
            "INSERT INTO documents (digest) VALUES (?) ON CONFLICT DO NOTHING RETURNING id",
            (digest,),
        ).fetchall()
        if not added:
            continue
        first = added[0][0] << ORDINAL_BITS
        passage_rows: list[tuple[int, int, int, str]] = []
        word_rows: list[tuple[int, str, str]] = []
        for number, passage in enumerate(passages_by_digest[digest], first):
            snippet = text[passage.start : passage.end]
            passage_rows.append((number, passage.start, passage.end, snippet))
            word_rows.append((number, index_text(passage.heading), index_text(snippet)))
        connection.executemany(
            "INSERT INTO passages (id, first, last, snippet) VALUES (?, ?, ?, ?)", passage_rows
        )
        connection.executemany(
            "INSERT INTO words (rowid, heading, body) VALUES (?, ?, ?)", word_rows
        )
    connection.execute("COMMIT")
