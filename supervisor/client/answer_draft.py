"""The draft of the answer while the synthesizer writes it, with the final numbers of the
sources.
"""

from __future__ import annotations

from collections.abc import Iterable

from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.citation_markers import MARKER
from handoff_queue.shared.types.events import HandoffFinished
from handoff_queue.shared.types.handoff import Claim, parse_result
from handoff_queue.shared.types.ids import HandoffId, JobId, parse_step_id
from handoff_queue.supervisor.lifecycle.citation_numbers import number_citations
from handoff_queue.supervisor.lifecycle.result_texts import UNPROVEN
from handoff_queue.supervisor.text.sanitizing import replace_unsafe


class AnswerDraft:
    """The draft of one job's answer. Each part is returned once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._claims: dict[str, Claim] = {}
        self._read_handoffs: set[HandoffId] = set()
        self.returned_text = ""
        """The text that was returned so far."""

    def take_new_part(
        self, job_id: JobId, writer: HandoffId, finished_events: Iterable[HandoffFinished]
    ) -> str:
        """Return the new part of the draft, or an empty text.

        The text is also empty if the model has started the draft again.

        Args:
            writer: the newest handoff of the synthesizer.
            finished_events: the results of the job so far.

        Raises:
            StoreUnavailable: Redis is away.
        """
        draft = self._store.payloads.draft(job_id, writer)
        if not draft:
            return ""
        self._learn_claims(job_id, finished_events)
        text = replace_unsafe(get_stable_part(draft, self._claims))
        if not text.startswith(self.returned_text):
            return ""
        new, self.returned_text = text[len(self.returned_text) :], text
        return new

    def _learn_claims(self, job_id: JobId, finished_events: Iterable[HandoffFinished]) -> None:
        """Read the claims of the results that ended since the last call. Only the results of a step
        state the claims with its name.

        Raises:
            StoreUnavailable: Redis is away.
        """
        results: dict[HandoffId, str] = {}
        for event in finished_events:
            if event.claims and event.handoff_id not in self._read_handoffs:
                results[event.handoff_id] = event.result.digest
        texts = self._store.payloads.get(job_id, [], results=list(results.values()))
        for handoff_id, digest in results.items():
            self._read_handoffs.add(handoff_id)
            step = parse_step_id(handoff_id)
            for claim in parse_result(texts[digest]).claims:
                if claim.id.startswith(f"{step}."):
                    self._claims[claim.id] = claim


def get_stable_part(draft: str, claims: dict[str, Claim]) -> str:
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
