"""The look-up of a source by its name, for tools that open a source and for the check of quotes.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from handoff_queue.shared.text.unicode_text import to_nfc
from handoff_queue.shared.types.handoff import Document


def find_sources(name: str, documents: Iterable[Document]) -> list[Document]:
    """Return the documents with this path or URL, in the given order. Several fetched pages may
    have one name: a page, or a note, that has changed during the job.

    Without an equal path, return the documents of the only path that ends with `name`, or the
    other way round. The source of a note may lack its document: `memory:a/b` for
    `memory:a/b (guide.md)`.

    Args:
        documents: documents of the job, and then fetched pages, the newest first.
    """
    wanted_path = to_nfc(name.strip())
    equal: list[Document] = []
    similar: dict[str, list[Document]] = {}
    for document in documents:
        path = to_nfc(document.path)
        if path == wanted_path:
            equal.append(document)
            continue
        is_note = path.startswith(f"{wanted_path} (") and path.endswith(")")
        has_end = path.endswith(f"/{wanted_path}") or wanted_path.endswith(f"/{path}")
        if wanted_path and (is_note or has_end):
            similar.setdefault(path, []).append(document)
    if equal:
        return equal
    candidates: list[Document] = []
    for same_path in similar.values():
        candidates += same_path
    if len(similar) == 1 or len({document.digest for document in candidates}) == 1:
        return candidates
    return []
