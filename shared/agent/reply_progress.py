"""The progress of a reply that the model is writing, as heartbeats show it: the activity in words,
and the draft of the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from handoff_queue.shared.agent.json_repair import find_draft
from handoff_queue.shared.agent.markdown_answer import without_notes
from handoff_queue.shared.text.word_forms import format_count
from handoff_queue.shared.types.model import CallProgress

WAITING = "calling the model"
"""Activity until the server answers."""
SUMMARIZING = "summarizing its earlier turns"
"""Activity while the model writes a summary in place of the earlier turns."""
THINKING = "thinking"
"""Activity while the server answers, and there is no text yet."""
COUNT_EVERY_S = 2.0
"""Least seconds between two counts of the words of one reply. Each new count is a heartbeat."""
DRAFT_EVERY_S = 0.4
"""Least seconds between two drafts of one reply. Each draft parses the whole unfinished JSON."""


class ReplyProgress:
    """The progress of the replies of one handoff, one after the other."""

    def __init__(
        self, schema: Mapping[str, Any] | None, *, streams_draft: bool, now: Callable[[], float]
    ) -> None:
        """Show no progress yet.

        Args:
            schema: JSON Schema of the answer; None: the answer is Markdown.
            streams_draft: True if heartbeats have the draft of the answer.
            now: returns the Unix time in seconds.
        """
        self._schema = schema
        self._streams_draft = streams_draft
        self._now = now
        self.is_summary = False
        """True while the model writes a summary, which is not a draft of the answer."""
        self._activity = ""
        self._counted_at = -inf
        self._draft = ""
        self._drafted_at = -inf

    def begin_reply(self) -> None:
        """Forget the words of the reply before."""
        self._activity = ""
        self._counted_at = -inf

    def describe_activity(self, progress: CallProgress) -> str:
        """Return what the model does: it waits for the server, thinks, or writes this much. The
        words are counted again after `COUNT_EVERY_S`.
        """
        if self.is_summary:
            return SUMMARIZING
        if not progress.text:
            return WAITING if progress.limits is None else THINKING
        now = self._now()
        if now - self._counted_at >= COUNT_EVERY_S:
            self._activity = f"writing, {format_count(len(progress.text.split()), 'word')}"
            self._counted_at = now
        return self._activity

    def draft(self, progress: CallProgress) -> str | None:
        """Return the draft of the answer in the text so far; None: heartbeats have no draft. The
        text is parsed again after `DRAFT_EVERY_S`.
        """
        if not self._streams_draft or self.is_summary:
            return None
        now = self._now()
        if now - self._drafted_at >= DRAFT_EVERY_S:
            self._draft = self._find_draft(progress.text)
            self._drafted_at = now
        return self._draft

    def _find_draft(self, text: str) -> str:
        if self._schema is None:
            return without_notes(text)
        return find_draft(text)
