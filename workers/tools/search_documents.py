"""`search_documents`: the tool for full-text search in the job's documents."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import asdict

from pydantic import Field

from handoff_queue.shared.agent.tool import Tool, ToolContext, ToolFailed, ToolOutput
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.origins import DOCUMENT
from handoff_queue.workers.index.index import DocumentIndex, SearchResult
from handoff_queue.workers.tools.arguments import Arguments, make_builtin_tool

MOST_HITS = 20
_DESCRIPTION = (
    "Full-text search in the documents of this job. Returns the best passages, each with its source"
    " (the document's path), its place (start and end, in characters) and the verbatim snippet,"
    " from which you can quote. Search for the few words that matter; search again with other words"
    " if nothing fits. `searched` is the number of documents that were searched."
)


class _Search(Arguments):
    query: str = Field(description="The words to look for. Any of them may match; no operators.")
    limit: int = Field(default=8, description=f"The most passages to return, 1 to {MOST_HITS}.")


def search_documents_tool(index: DocumentIndex) -> Tool:
    """Return the tool. It searches the document index of this host."""

    def search(arguments: _Search, context: ToolContext) -> ToolOutput:
        limit = min(max(arguments.limit, 1), MOST_HITS)
        try:
            result = index.search(
                context.manifest, arguments.query, text_of=context.text_of, limit=limit
            )
        except (sqlite3.DatabaseError, UserError) as error:
            raise ToolFailed(
                f"the search failed ({error}): read the documents with read_document instead"
            ) from error
        return _answer(result)

    return make_builtin_tool("search_documents", _DESCRIPTION, _Search, search, origins=(DOCUMENT,))


def _answer(result: SearchResult) -> ToolOutput:
    """Return the hits. Without a hit, no text of a document is in the result."""
    answer: dict[str, object] = {
        "hits": [asdict(hit) for hit in result.hits],
        "searched": result.searched,
    }
    if result.missing:
        answer["not_searched"] = list(result.missing[:20])
    origins = (DOCUMENT,) if result.hits else ()
    return ToolOutput(json.dumps(answer, ensure_ascii=False), origins=origins)
