"""`read_document`: the tool that reads a document of the job in parts."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from pydantic import Field

from handoff_queue.shared.agent.prompt_documents import was_shown
from handoff_queue.shared.agent.quote_verification import find_sources
from handoff_queue.shared.agent.tool import Tool, ToolContext, ToolFailed, ToolOutput
from handoff_queue.shared.agent.tool_calls import REPEATED_OUTPUT
from handoff_queue.shared.text.unicode_text import to_nfc
from handoff_queue.shared.text.word_forms import close_names
from handoff_queue.shared.types.handoff import Document
from handoff_queue.shared.types.memory_notes import MEMORY
from handoff_queue.shared.types.origins import (
    DOCUMENT,
    UNKNOWN,
    WEB,
    Origin,
    build_tool_origin,
    find_tool,
    union,
)
from handoff_queue.workers.tools.tool_arguments import Arguments, make_builtin_tool

MAX_CHARS = 12_000
"""Characters of one result: about 3,000 tokens."""
_DESCRIPTION = f"Reads a document, {MAX_CHARS:,} characters at a time."


_DIGEST = re.compile(r"[0-9a-f]{64}")
_SIZE = re.compile(r" \([\d,]+ characters\).*\Z", re.DOTALL)
"""Text after a path in the list of documents (`prompt_documents`). Models copy the whole line."""


class _Read(Arguments):
    source: str = Field(description="path, label (doc-1) or URL")
    offset: int = Field(default=0, description="where to read on")


def read_document_tool() -> Tool:
    """Return the tool. It reads the job's documents from its context."""
    return make_builtin_tool(
        "read_document",
        _DESCRIPTION,
        _Read,
        _read,
        is_lookup=True,
        reads_documents=True,
        origins=(DOCUMENT,),
    )


def _read(arguments: _Read, context: ToolContext) -> ToolOutput:
    document = open_source(arguments.source, context)
    text = context.text_of(document.digest)
    offset = min(max(arguments.offset, 0), len(text))
    piece = text[offset : offset + MAX_CHARS]
    if piece.strip() and was_shown(piece, context.texts_shown()):
        return REPEATED_OUTPUT
    return ToolOutput(cut_part(document, text, offset), origins=_find_origins(document, context))


def cut_part(document: Document, text: str, offset: int) -> str:
    """Return at most `MAX_CHARS` of the text of a document, after a line of JSON that names it.
    The text itself is not JSON, which escapes each line break and each quotation mark.
    """
    header = {"source": document.path, "offset": offset, "total_chars": len(text)}
    return f"{json.dumps(header, ensure_ascii=False)}\n{text[offset : offset + MAX_CHARS]}"


def _find_origins(document: Document, context: ToolContext) -> tuple[Origin, ...]:
    """Return the origins of a document of the job, a fetched page, a stored result of a tool, or
    the quote of a note. A note may come from a private document. A page with the text of a document
    of the job is private, too: a worker that was taken over may add such a page.
    """
    if document.digest in {own.digest for own in context.manifest.documents}:
        return (DOCUMENT,)
    if document.path.startswith(f"{MEMORY}:"):
        return union(UNKNOWN, (build_tool_origin(MEMORY),))
    tool = find_tool(document.path)
    if tool is not None:
        return (build_tool_origin(tool),)
    return (WEB,)


def open_source(name: str, context: ToolContext) -> Document:
    """Return the document or the fetched page with this label, path, URL or digest. Of several
    pages with one name, it is the newest.

    Raises:
        ToolFailed: see `find_document`, or nothing has this digest.
    """
    name = name.strip()
    labelled = context.manifest.find_document_with_label(name)
    if labelled is not None:
        return labelled
    documents = (*context.manifest.documents, *context.load_fetched_pages())
    if not _DIGEST.fullmatch(name):
        return find_document(name, documents)
    for document in documents:
        if document.digest == name:
            return document
    raise ToolFailed(f"no document of this job has the digest {name}")


def find_document(source: str, documents: Sequence[Document]) -> Document:
    """Return the first document with this path. Models add `./` and forget folders, so the only
    document with the same file name is accepted, too.

    Raises:
        ToolFailed: no document or several documents match. The message names the most likely paths.
    """
    wanted_path = to_nfc(source.strip().removeprefix("./"))
    by_path: dict[str, Document] = {}
    for document in documents:
        by_path.setdefault(to_nfc(document.path), document)
    if wanted_path not in by_path:
        wanted_path = _SIZE.sub("", wanted_path)
    sources = find_sources(wanted_path, documents)
    if sources:
        return sources[0]
    same_name: list[str] = []
    for path in by_path:
        if path.rpartition("/")[2].casefold() == wanted_path.rpartition("/")[2].casefold():
            same_name.append(path)
    if len(same_name) == 1:
        return by_path[same_name[0]]
    if not by_path:
        raise ToolFailed("this job has no documents")
    close = same_name or close_names(wanted_path, by_path, limit=5, alike=0.4)
    if close:
        others = f"did you mean {', '.join(close[:5])}?"
    else:
        others = f"the documents are {', '.join([*by_path][:5])}"
        if len(by_path) > 5:
            others += f" and {len(by_path) - 5} more"
    raise ToolFailed(f"no document {wanted_path[:200]!r}; {others} (search_documents finds more)")
