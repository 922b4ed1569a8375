"""Disputes: claims that contradict each other. Code searches for them when all steps are
settled, the judge settles each conflict once, and the answer reports them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from handoff_queue.shared.types.citation_markers import MARKER
from handoff_queue.shared.types.events import ConflictsFound, Judged
from handoff_queue.shared.types.handoff import (
    BlobRef,
    Claim,
    HandoffResult,
    make_ref,
)
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.names import Role
from handoff_queue.shared.types.review import ClaimConflict, Settlement, Settlements
from handoff_queue.supervisor.lifecycle.claim_sources import (
    collect_claims_of_steps,
    list_source_payloads,
)
from handoff_queue.supervisor.lifecycle.commands import Command, FindConflicts
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts, find_claim_ids
from handoff_queue.supervisor.lifecycle.routing import ask_role
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.text.claim_conflicts import find_claim_conflicts


def settle_conflicts(state: JobState, now: float) -> tuple[Command, ...] | None:
    """Return the commands for contradictions before the results are reviewed; None if there is
    nothing to do.
    """
    if _count_comparable_claims(state) < 2:
        return None
    if state.conflicts is None or state.conflicts_of != list_compared_results(state):
        return (FindConflicts(),)
    if state.has_open(Role.JUDGE):
        return ()
    if (
        state.conflicts.conflicts
        and state.judged is None
        and state.spent is None
        and now < state.working_deadline
    ):
        return (ask_role(state, Role.JUDGE),)
    return None


def _count_comparable_claims(state: JobState) -> int:
    """Return the number of claims of usable results that code can compare."""
    count = 0
    for step in state.steps.values():
        if step.is_usable:
            count += step.comparable_claims
    return count


def list_compared_results(state: JobState) -> tuple[BlobRef, ...]:
    """Return the results whose claims are compared."""
    return tuple(result for _, result in _iterate_compared_results(state))


def list_conflict_payloads(state: JobState) -> tuple[BlobRef, ...]:
    """Return the payloads that `find_conflicts` reads."""
    results = [*_iterate_compared_results(state)]
    return (*list_compared_results(state), *list_source_payloads(state, results))


def _iterate_compared_results(state: JobState) -> Iterator[tuple[StepId, BlobRef]]:
    for step_id, step in state.steps.items():
        if step.is_usable and step.comparable_claims and step.result:
            yield step_id, step.result


def find_conflicts(state: JobState, texts: ResultTexts) -> tuple[ConflictsFound, str | None]:
    """Return the event with the found conflicts, and the payload that it refers to; None if
    there are no conflicts.

    Args:
        texts: payloads of `list_conflict_payloads`.
    """
    claims = collect_claims_of_steps(state, [*_iterate_compared_results(state)], texts)
    conflicts, left_out = find_claim_conflicts(claims.values())
    if not conflicts.conflicts:
        return ConflictsFound(left_out=left_out), None
    payload = conflicts.to_json()
    claim_ids = [tuple(_list_ids(conflict.claims)) for conflict in conflicts.conflicts]
    event = ConflictsFound(conflicts=tuple(claim_ids), payload=make_ref(payload), left_out=left_out)
    return event, payload


def _list_ids(claims: Iterable[Claim]) -> list[str]:
    return [claim.id for claim in claims]


def apply_conflicts(state: JobState, event: ConflictsFound | Judged) -> dict[str, Any]:
    """Return the changes after a search for conflicts, or after the judge's answer. If a
    search finds the same conflicts again, the judge's earlier answer stays.
    """
    if isinstance(event, Judged):
        return {"judged": event, "fruitless": 0}
    is_known = state.conflicts is not None and state.conflicts.payload == event.payload
    return {
        "conflicts": event,
        "conflicts_of": list_compared_results(state),
        "judged": state.judged if is_known else None,
    }


def keep_good_judgement(state: JobState) -> Judged | None:
    """Return the judge's event that a retry keeps; None if the judge failed, and is asked again."""
    if state.judged and state.judged.problem is None:
        return state.judged
    return None


def list_dispute_payloads(state: JobState) -> tuple[BlobRef, ...]:
    """Return the payloads that `find_disputes` reads."""
    conflicts, judged = state.conflicts, state.judged
    if conflicts is None or conflicts.payload is None:
        return ()
    if judged:
        return (conflicts.payload, judged.result)
    return (conflicts.payload,)


@dataclass(frozen=True, slots=True)
class Dispute:
    """A conflict, and the judge's settlement."""

    conflict: ClaimConflict
    settlement: Settlement

    @property
    def is_settled(self) -> bool:
        return bool(self.settlement.stands)

    @property
    def stands(self) -> tuple[Claim, ...]:
        """Return the claims that the judge confirmed."""
        claims = self.conflict.claims
        return tuple(claim for claim in claims if claim.id in self.settlement.stands)

    @property
    def falls(self) -> tuple[Claim, ...]:
        """Return the claims that the judge rejected; none while the conflict is disputed."""
        if not self.is_settled:
            return ()
        claims = self.conflict.claims
        return tuple(claim for claim in claims if claim.id not in self.settlement.stands)

    @property
    def about(self) -> str:
        """Return the subject and the attribute of the claims."""
        first = self.conflict.claims[0]
        return f"{first.subject}, {first.attribute}"

    def format_line(self, *, has_markers: bool) -> str:
        """Return the line for the reader of the answer.

        Args:
            has_markers: True to refer to claims by markers, which become numbers; False to name
                their sources.
        """
        if not self.is_settled:
            sides = "; against: ".join(_format_claims(self.conflict.claims, has_marker=has_markers))
            return f"{self.about}: {sides}"
        stands = ", ".join(_format_claims(self.stands, has_marker=has_markers))
        falls = ", ".join(_format_claims(self.falls, has_marker=has_markers))
        why = ""
        if self.settlement.why:
            why = f" {self.settlement.why}"
        return f"{self.about}: {stands}; not: {falls}.{why}"

    def build_brief(self) -> dict[str, JsonValue]:
        """Return the conflict for the roles that follow the judge."""
        if not self.is_settled:
            return {
                "about": self.about,
                "disputed": list[JsonValue](_list_ids(self.conflict.claims)),
            }
        return {
            "about": self.about,
            "stands": list[JsonValue](_list_ids(self.stands)),
            "do_not_use": list[JsonValue](_list_ids(self.falls)),
            "why": self.settlement.why,
        }


def find_disputes(state: JobState, texts: ResultTexts) -> tuple[Dispute, ...]:
    """Return the conflicts between the results of steps, with the judge's settlements.

    Args:
        texts: payloads of `list_dispute_payloads`.
    """
    conflicts, judged = state.conflicts, state.judged
    if conflicts is None or conflicts.payload is None:
        return ()
    settlements: dict[str, Settlement] = {}
    if judged is not None and judged.settled:
        for settlement in Settlements.from_value(
            texts.get_result(judged.result).output
        ).settlements:
            if settlement.conflict in judged.settled:
                settlements[settlement.conflict] = settlement
    disputes: list[Dispute] = []
    for conflict in texts.get_conflicts(conflicts.payload).conflicts:
        unsettled = Settlement(conflict=conflict.id)
        disputes.append(Dispute(conflict, settlements.get(conflict.id, unsettled)))
    return tuple(disputes)


def list_disputed_claims(disputes: Iterable[Dispute]) -> list[Claim]:
    """Return the claims of all conflicts, settled or not."""
    claims: list[Claim] = []
    for dispute in disputes:
        claims.extend(dispute.conflict.claims)
    return claims


def format_disputes(disputes: Collection[Dispute], body: str) -> str:
    """Return the section below an answer: open disputes, and settled disputes whose rejected
    claims the answer uses. '' if there are none.
    """
    used_claims: set[str] = set()
    for marker in MARKER.finditer(body):
        used_claims.update(find_claim_ids(marker))
    disputed_block = _format_block("Disputed", _find_open_disputes(disputes))
    settled_block = _format_block(
        "Contradicted, and settled", _find_disputes_with_rejected_claim(disputes, used_claims)
    )
    return f"{disputed_block}{settled_block}"


def _format_block(title: str, disputes: Sequence[Dispute]) -> str:
    if not disputes:
        return ""
    lines = "\n".join(f"- {dispute.format_line(has_markers=True)}" for dispute in disputes)
    return f"\n\n**{title}:**\n\n{lines}"


def build_dispute_notes(disputes: Collection[Dispute], form: HandoffResult) -> tuple[str, ...]:
    """Return the disputes as notes, for an answer that is a form."""
    notes = [
        f"Disputed: {dispute.format_line(has_markers=False)}"
        for dispute in _find_open_disputes(disputes)
    ]
    for dispute in _find_disputes_with_rejected_claim(disputes, _list_ids(form.claims)):
        notes.append(f"Contradicted, and settled: {dispute.format_line(has_markers=False)}")
    return tuple(notes)


def _find_open_disputes(disputes: Collection[Dispute]) -> list[Dispute]:
    return [dispute for dispute in disputes if not dispute.is_settled]


def _find_disputes_with_rejected_claim(
    disputes: Collection[Dispute], used_claims: Collection[str]
) -> list[Dispute]:
    """Return the disputes whose rejected claims are in use."""
    in_use = set(used_claims)
    return [dispute for dispute in disputes if not in_use.isdisjoint(_list_ids(dispute.falls))]


def _format_claims(claims: Iterable[Claim], *, has_marker: bool) -> list[str]:
    return [_format_claim(claim, has_marker=has_marker) for claim in claims]


def _format_claim(claim: Claim, *, has_marker: bool) -> str:
    """Return a claim with its value, unless its text has the value, and with its source."""
    text = " ".join(claim.text.split()).rstrip(".")
    parts = list(filter(None, (claim.value, claim.unit)))
    for part in parts:
        if not _has_separate_word(text, part):
            text = f"{text}: {' '.join(parts)}"
            break
    if has_marker:
        return f"{text} [{claim.id}]"
    sources = dict.fromkeys(source.source for source in claim.sources)
    return f"{text} ({', '.join(sources) or 'no source'})"


def _has_separate_word(text: str, part: str) -> bool:
    """Return whether the text has the part as a separate word. A unit may follow its figure
    without a space.
    """
    part_pattern = re.escape(" ".join(part.split()))
    return re.search(rf"(?<![^\W\d]){part_pattern}(?![^\W\d])", text, re.IGNORECASE) is not None
