"""`search_documents`: the tool for full-text search in the job's documents."""

from __future__ import annotations

import json
import sqlite3

from pydantic import Field

from handoff_queue.shared.agent.prompt_documents import (
    format_whole_texts,
    load_short_documents,
    was_shown,
)
from handoff_queue.shared.agent.tool import Tool, ToolContext, ToolFailed, ToolOutput
from handoff_queue.shared.agent.tool_calls import REPEATED_OUTPUT
from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.origins import DOCUMENT
from handoff_queue.workers.index.index import DocumentIndex, SearchResult
from handoff_queue.workers.tools.read_document import MAX_CHARS
from handoff_queue.workers.tools.tool_arguments import Arguments, make_builtin_tool

MAX_HITS = 20
"""Most passages of one search."""
_log = get_log(__name__)
_DESCRIPTION = (
    "Searches the documents. Returns the best passages, each with its source, its text and, in a"
    " long document, its `offset` for read_document. Short documents are returned whole. Search for"
    " the few words that matter; search again with other words if nothing fits."
)


class _Search(Arguments):
    query: str = Field(description="words; a passage need not have all words")
    limit: int = Field(default=8, description=f"most passages, 1 to {MAX_HITS}")


def build_search_documents_tool(index: DocumentIndex) -> Tool:
    """Return the tool. It searches the document index of this host."""

    def search(arguments: _Search, context: ToolContext) -> ToolOutput:
        full_texts = _show_whole_documents(context)
        if full_texts is not None:
            return full_texts
        if not context.manifest.documents:
            return _build_answer(SearchResult(hits=(), searched=0), context)
        limit = min(max(arguments.limit, 1), MAX_HITS)
        try:
            result = index.search(
                context.manifest, arguments.query, text_of=context.text_of, limit=limit
            )
        except (sqlite3.DatabaseError, UserError) as error:
            # the text may name a folder of this host, which is not for the model
            _log.error("the worker cannot search documents", problem=str(error))
            raise ToolFailed(
                "the search failed: read the documents with read_document instead"
            ) from error
        return _build_answer(result, context)

    return make_builtin_tool(
        "search_documents",
        _DESCRIPTION,
        _Search,
        search,
        is_lookup=True,
        reads_documents=True,
        origins=(DOCUMENT,),
    )


def _show_whole_documents(context: ToolContext) -> ToolOutput | None:
    """Return all documents of the job if they are short, or one line if the model has seen them.
    None: they are too long, or one cannot be read.
    """
    try:
        documents = load_short_documents(context.manifest, context.text_of)
    except ToolFailed:
        return None
    if not documents:
        return None
    shown_texts = context.texts_shown()
    if all(was_shown(text, shown_texts) for _, text in documents):
        return REPEATED_OUTPUT
    return ToolOutput(format_whole_texts(documents), origins=(DOCUMENT,))


def _build_answer(result: SearchResult, context: ToolContext) -> ToolOutput:
    """Return the hits. Without a hit, no text of a document is in the result."""
    long_ones = {item.path for item in context.manifest.documents if item.chars > MAX_CHARS}
    hits: list[dict[str, object]] = []
    for hit in result.hits:
        hit_item: dict[str, object] = {"source": hit.source}
        if hit.source in long_ones:
            hit_item["offset"] = hit.start
        hit_item["snippet"] = hit.snippet
        hits.append(hit_item)
    answer: dict[str, object] = {"hits": hits, "searched": result.searched}
    if result.missing:
        answer["not_searched"] = list(result.missing[:20])
    origins = (DOCUMENT,) if result.hits else ()
    return ToolOutput(json.dumps(answer, ensure_ascii=False), origins=origins)
