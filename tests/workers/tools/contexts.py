"""Call tools in a test, with documents in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from handoff_queue.shared.agent.tool import Tool, ToolContext, ToolFailed, ToolOutput
from handoff_queue.shared.types.handoff import Document
from handoff_queue.shared.types.ids import JobId, build_handoff_id
from handoff_queue.shared.types.message import compute_digest
from tests.workers.index.documents_in_memory import Library


def page_in(result: str) -> dict[str, Any]:
    """Return the fields of the line above the text of a page, and the text as `text`."""
    header, _, text = result.partition("\n")
    return {**json.loads(header), "text": text}


class ToolHarness:
    """Context of a tool call, with the documents and the fetched pages of one handoff."""

    def __init__(self, texts: Mapping[str, str] | None = None, remaining_s: float = 60.0) -> None:
        self.library = Library(texts or {})
        self.kept_documents: dict[str, tuple[str, str]] = {}
        self._calls = 0
        self.context = ToolContext(
            job_id=JobId("j-0123456789ab"),
            handoff_id=build_handoff_id("research", 1),
            manifest=self.library.manifest,
            text_of=self.library.text_of,
            keep_document=self._keep,
            remaining_s=lambda: remaining_s,
        )

    def _keep(self, source: str, media_type: str, text: str) -> Document:
        self.kept_documents[source] = (media_type, text)
        self.library.add(text)
        return Document(
            path=source, digest=compute_digest(text), media_type=media_type, chars=len(text)
        )

    def call(self, tool: Tool, **arguments: object) -> str:
        """Call the tool, and return its text."""
        output = self.output(tool, **arguments)
        assert not output.images
        return output.text

    def output(self, tool: Tool, **arguments: object) -> ToolOutput:
        assert tool.run is not None
        self._calls += 1
        call_id = self.context.call_id or f"call-{self._calls}"
        output = tool.run(dict(arguments), replace(self.context, call_id=call_id))
        return ToolOutput(output) if isinstance(output, str) else output

    def failure(self, tool: Tool, **arguments: object) -> str:
        """Call the tool, and return the one line of its error."""
        with pytest.raises(ToolFailed) as caught:
            self.call(tool, **arguments)
        text = str(caught.value)
        assert "\n" not in text
        return text
