"""The documents of a job as a specialist sees them: whole if they are short, otherwise listed.

A search in a short document costs more tokens than its text, and the model may read the text again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from handoff_queue.shared.agent.tool import ToolFailed
from handoff_queue.shared.types.handoff import Document, Manifest

MAX_WHOLE_BYTES = 12_000
"""Bytes of all documents that are shown whole: about 3,000 tokens of English."""
MIN_SHOWN_CHARS = 200
"""Characters of the shortest text that is not shown a second time."""
MAX_LISTED = 50
"""Documents that the opening message lists."""
MAX_HEADINGS = 20
"""Listed documents whose first heading is read."""
MAX_HEADING_CHARS = 80
_HEADING = re.compile(r"^ {0,3}#{1,6}\s+(\S.*)$", re.MULTILINE)
_HEADING_WITHIN = 2_000
"""Characters from the start of a document in which its first heading is searched."""
_NAMED_AMONG = 1_000
"""Most documents of a job whose names are searched in a task."""
_LABEL = re.compile(r"\bdoc-\d{1,5}\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ShownDocuments:
    """The contents of documents that the opening message shows."""

    whole_documents: tuple[tuple[Document, str], ...] = ()
    """Documents with their whole texts."""
    headings: Mapping[str, str] = field(default_factory=dict)
    """First headings of other documents, by path."""

    def __bool__(self) -> bool:
        return bool(self.whole_documents or self.headings)

    def are_all_of(self, manifest: Manifest) -> bool:
        """Return whether all documents of a job are shown whole."""
        return bool(self.whole_documents) and len(self.whole_documents) == len(manifest.documents)


NOTHING_SHOWN = ShownDocuments()


def choose_shown(manifest: Manifest, task: str, text_of: Callable[[str], str]) -> ShownDocuments:
    """Return the contents that the opening message of a specialist shows.

    If the task names documents, only these documents can be shown whole. A step that is repeated
    for each document then sees its own document.

    Args:
        text_of: returns the text of the document with a digest. Raises ToolFailed.
    """
    named_documents = _find_named_documents(manifest, task)
    try:
        whole_documents = _load_short_documents(named_documents or manifest.documents, text_of)
        whole_paths = {document.path for document, _ in whole_documents}
        headings: dict[str, str] = {}
        for document in manifest.documents[:MAX_HEADINGS]:
            if document.path in whole_paths:
                continue
            heading = _find_heading(text_of(document.digest))
            if heading:
                headings[document.path] = heading
    except ToolFailed:
        return NOTHING_SHOWN
    return ShownDocuments(whole_documents, headings)


def load_short_documents(
    manifest: Manifest, text_of: Callable[[str], str]
) -> tuple[tuple[Document, str], ...]:
    """Return all documents of a job with their texts, or nothing if they are too long.

    Raises:
        ToolFailed: the text of a document cannot be read.
    """
    return _load_short_documents(manifest.documents, text_of)


def was_shown(text: str, seen_texts: Iterable[str]) -> bool:
    """Return whether a text that the model has seen has the whole text of a document, as
    `format_whole_texts` writes it. A short text may be there by chance.
    """
    full_text = text.strip()
    return len(full_text) >= MIN_SHOWN_CHARS and any(full_text in seen for seen in seen_texts)


def format_whole_texts(documents: Sequence[tuple[Document, str]]) -> str:
    """Return the documents, each after a line of JSON that names it."""
    parts: list[str] = []
    for document, text in documents:
        stripped_text = text.strip()
        header = {"source": document.path, "chars": len(stripped_text)}
        parts.append(f"{json.dumps(header, ensure_ascii=False)}\n{stripped_text}")
    return "\n\n".join(parts)


def format_documents_tag(manifest: Manifest, contents: ShownDocuments, *, with_names: bool) -> str:
    """Return the part of the opening message about the documents, without escapes.

    Args:
        with_names: False for a role. The author of a document chose its name and its headings, and
            these can be instructions. A role decides about other agents, so it sees labels.
    """
    blocks: list[str] = []
    if contents.whole_documents:
        blocks.append(format_whole_texts(contents.whole_documents))
    are_whole = {document.path for document, _ in contents.whole_documents}
    lines: list[str] = []
    for number, document in enumerate(manifest.documents[:MAX_LISTED], start=1):
        size = f"{document.chars:,} characters"
        if not with_names:
            lines.append(f"{manifest.build_label(number)} ({document.media_type}, {size})")
        elif document.path not in are_whole:
            heading = contents.headings.get(document.path)
            begins = f": {heading}" if heading else ""
            lines.append(f"{' '.join(document.path.split())} ({size}){begins}")
    if lines:
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _load_short_documents(
    documents: Sequence[Document], text_of: Callable[[str], str]
) -> tuple[tuple[Document, str], ...]:
    """Return the documents with their texts, or nothing if they exceed `MAX_WHOLE_BYTES`."""
    if not documents or sum(document.chars for document in documents) > MAX_WHOLE_BYTES:
        return ()
    documents_with_texts: list[tuple[Document, str]] = []
    size = 0
    for document in documents:
        text = text_of(document.digest)
        size += len(text.encode("utf-8", "replace")) + len(document.path)
        if size > MAX_WHOLE_BYTES:
            return ()
        documents_with_texts.append((document, text))
    return tuple(documents_with_texts)


def _find_named_documents(manifest: Manifest, task: str) -> tuple[Document, ...]:
    """Return the documents whose path or label is in a task."""
    labels = {label.casefold() for label in _LABEL.findall(task)}
    named_documents: list[Document] = []
    for number, document in enumerate(manifest.documents[:_NAMED_AMONG], start=1):
        if manifest.build_label(number) in labels or _has_whole_path(task, document.path):
            named_documents.append(document)
    return tuple(named_documents)


def _has_whole_path(task: str, path: str) -> bool:
    """Return whether a task has a path, and not only as a part of a longer name."""
    if path not in task:
        return False
    return re.search(rf"(?<![\w/.-]){re.escape(path)}(?![\w/-]|\.\w)", task) is not None


def _find_heading(text: str) -> str | None:
    """Return the first Markdown heading at the beginning of a text, or None."""
    match = _HEADING.search(text[:_HEADING_WITHIN])
    if match is None:
        return None
    return " ".join(match[1].rstrip("# ").split())[:MAX_HEADING_CHARS]
