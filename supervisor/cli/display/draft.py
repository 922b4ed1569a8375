"""The draft of the answer while the synthesizer writes it, with the final numbers of the sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from handoff_queue.shared.types.citation_markers import MARKER
from handoff_queue.shared.types.errors import StoreUnavailable
from handoff_queue.shared.types.handoff import Claim
from handoff_queue.shared.types.ids import HandoffId
from handoff_queue.shared.types.results import result_in
from handoff_queue.supervisor.cli.display.job_view import JobView
from handoff_queue.supervisor.lifecycle.answer import number_citations
from handoff_queue.supervisor.lifecycle.result_texts import UNPROVEN
from handoff_queue.supervisor.text.sanitizing import plain

if TYPE_CHECKING:
    from handoff_queue.supervisor.client.client import Client

_SYNTHESIZER = "synthesizer"


class Draft:
    """The draft of one job's answer. Each part is returned once."""

    def __init__(self, jobs: Client) -> None:
        self._jobs = jobs
        self._claims: dict[str, Claim] = {}
        self._read: set[HandoffId] = set()
        self.shown = ""
        """The text that was returned so far."""

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
            draft = self._jobs.store.payloads.draft(view.job_id, handoff_id)
            if not draft:
                return ""
            self._learn_claims(view)
        except StoreUnavailable:  # the next read of the job reports the error, or finds Redis again
            return ""
        text = plain(stable_part(draft, self._claims))
        if not text.startswith(self.shown):
            return ""
        new, self.shown = text[len(self.shown) :], text
        return new

    def _learn_claims(self, view: JobView) -> None:
        """Read the claims of the results that ended since the last call.

        Raises:
            StoreUnavailable: Redis is away.
        """
        results: dict[HandoffId, str] = {}
        for done in view.finished.values():
            if done.claims and done.handoff_id not in self._read:
                results[done.handoff_id] = done.result.digest
        texts = self._jobs.store.payloads.get(view.job_id, [], results=list(results.values()))
        for handoff_id, digest in results.items():
            self._read.add(handoff_id)
            for claim in result_in(texts[digest]).claims:
                self._claims[claim.id] = claim


def _newest_writer(view: JobView) -> HandoffId | None:
    """Return the newest handoff of the synthesizer, or None before the first."""
    newest = None
    for event in view.issued:
        if event.assigned_to == _SYNTHESIZER:
            newest = event.handoff_id
    return newest


def _is_form(view: JobView) -> bool:
    """Return whether the job has an answer schema. Its answer is JSON and is printed as a whole."""
    return view.state is not None and view.state.submitted.answer_schema is not None


def stable_part(draft: str, claims: dict[str, Claim]) -> str:
    """Return the part of a draft that cannot change, with numbered markers.

    The part ends before an incomplete marker, and before a marker of the writer's own claim.
    """
    start = draft.rfind("[")
    if start >= 0 and "]" not in draft[start:]:
        draft = draft[:start]
    for match in MARKER.finditer(draft):
        if number_citations(match[0], claims)[0] == UNPROVEN:
            draft = draft[: match.start()]
            break
    return number_citations(draft, claims)[0]
