"""The draft of the answer while the synthesizer writes it, with the final numbers of the sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from handoff_queue.shared.types.errors import StoreUnavailable
from handoff_queue.shared.types.ids import HandoffId
from handoff_queue.supervisor.cli.display.job_view import JobView
from handoff_queue.supervisor.client.answer_draft import SYNTHESIZER, AnswerDraft

if TYPE_CHECKING:
    from handoff_queue.supervisor.client.client import Client


class Draft:
    """The draft of one job's answer. Each part is returned once."""

    def __init__(self, jobs: Client) -> None:
        self._draft = AnswerDraft(jobs.store)

    @property
    def shown(self) -> str:
        """The text that was returned so far."""
        return self._draft.shown

    def more(self, view: JobView) -> str:
        """Return the new part of the draft, or an empty text.

        The text is empty if no model writes an answer now, or if the answer is JSON. It is
        also empty if Redis is away, or if the model has started the draft again.
        """
        handoff_id = _newest_writer(view)
        if handoff_id is None or _is_form(view):
            return ""
        standing = view.standings.get(handoff_id)
        if standing is None or standing.state != "running":
            return ""
        try:
            return self._draft.more(view.job_id, handoff_id, view.finished.values())
        except StoreUnavailable:  # the next read of the job reports the error, or finds Redis again
            return ""


def _newest_writer(view: JobView) -> HandoffId | None:
    """Return the newest handoff of the synthesizer, or None before the first."""
    newest = None
    for event in view.issued:
        if event.assigned_to == SYNTHESIZER:
            newest = event.handoff_id
    return newest


def _is_form(view: JobView) -> bool:
    """Return whether the job has an answer schema. Its answer is JSON and is printed as a whole."""
    return view.state is not None and view.state.submitted.answer_schema is not None
