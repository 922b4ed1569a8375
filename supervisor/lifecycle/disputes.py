"""Disputes: claims that contradict each other. They are searched when all steps are settled, judged
once, and reported in the answer.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from handoff_queue.shared.types.citation_markers import MARKER
from handoff_queue.shared.types.events import ConflictsFound, Judged
from handoff_queue.shared.types.handoff import BlobRef, Claim, HandoffResult, ref
from handoff_queue.shared.types.review import Conflict, Settlement, Settlements
from handoff_queue.supervisor.lifecycle.commands import Command, FindConflicts
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.routing import ask_role
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.text.claim_conflicts import conflicts_in

JUDGE = "judge"


def look_into(state: JobState, now: float) -> tuple[Command, ...] | None:
    """Return the commands for contradictions before the results are reviewed; None if there is
    nothing to do.
    """
    if sum(step.comparable for step in state.steps.values() if step.usable) < 2:
        return None
    if state.conflicts is None or state.conflicts_of != results_in(state):
        return (FindConflicts(),)
    if state.has_open(JUDGE):
        return ()
    if (
        state.conflicts.conflicts
        and state.judged is None
        and state.spent is None
        and now < state.working_deadline
    ):
        return (ask_role(state, JUDGE),)
    return None


def results_in(state: JobState) -> tuple[BlobRef, ...]:
    """Return the results whose claims are compared."""
    results: list[BlobRef] = []
    for step in state.steps.values():
        if step.usable and step.comparable and step.result:
            results.append(step.result)
    return tuple(results)


def find_conflicts(state: JobState, words: ResultTexts) -> tuple[ConflictsFound, str | None]:
    """Return the event with the found conflicts, and the payload that it refers to.

    Args:
        words: texts of `results_in`.
    """
    conflicts, left_out = conflicts_in(
        claim for result in results_in(state) for claim in words.result(result).claims
    )
    ledger = None
    if conflicts.conflicts:
        ledger = conflicts.to_json()
    named = tuple(tuple(claim.id for claim in conflict.claims) for conflict in conflicts.conflicts)
    return ConflictsFound(
        conflicts=named, ledger=ref(ledger) if ledger else None, left_out=left_out
    ), ledger


def apply_conflicts(state: JobState, event: ConflictsFound | Judged) -> dict[str, Any]:
    """Return the changes of such an event. Conflicts that another round finds again are not judged
    again.
    """
    if isinstance(event, Judged):
        return {"judged": event, "fruitless": 0}
    is_known = state.conflicts is not None and state.conflicts.ledger == event.ledger
    return {
        "conflicts": event,
        "conflicts_of": results_in(state),
        "judged": state.judged if is_known else None,
    }


def keep_good_judgement(state: JobState) -> Judged | None:
    """Return the judge's event to keep when the job is retried. A judge that failed is asked again."""
    if state.judged and state.judged.problem is None:
        return state.judged
    return None


def payloads_for_disputes(state: JobState) -> tuple[BlobRef, ...]:
    """Return the payloads that `disputes_of` reads."""
    conflicts, judged = state.conflicts, state.judged
    if conflicts is None or conflicts.ledger is None:
        return ()
    if judged:
        return (conflicts.ledger, judged.result)
    return (conflicts.ledger,)


@dataclass(frozen=True, slots=True)
class Dispute:
    """A conflict, and the judge's settlement."""

    conflict: Conflict
    settlement: Settlement

    @property
    def is_settled(self) -> bool:
        return bool(self.settlement.stands)

    @property
    def stands(self) -> tuple[Claim, ...]:
        stands: list[Claim] = []
        for claim in self.conflict.claims:
            if claim.id in self.settlement.stands:
                stands.append(claim)
        return tuple(stands)

    @property
    def falls(self) -> tuple[Claim, ...]:
        """The claims that are not to be used; none, while it is disputed."""
        falls: list[Claim] = []
        for claim in self.conflict.claims:
            if self.is_settled and claim.id not in self.settlement.stands:
                falls.append(claim)
        return tuple(falls)

    @property
    def about(self) -> str:
        first = self.conflict.claims[0]
        return f"{first.subject}, {first.attribute}"

    def line(self, *, marked: bool) -> str:
        """Return the line for the reader of the answer.

        Args:
            marked: True to name sources by markers, which become numbers; False to name them by
                their names.
        """
        if not self.is_settled:
            return f"{self.about}: " + "; against: ".join(
                _said(claim, marked=marked) for claim in self.conflict.claims
            )
        stands, falls = (
            ", ".join(_said(claim, marked=marked) for claim in claims)
            for claims in (self.stands, self.falls)
        )
        why = ""
        if self.settlement.why:
            why = f" {self.settlement.why}"
        return f"{self.about}: {stands}; not: {falls}.{why}"

    def brief(self) -> dict[str, JsonValue]:
        """Return the conflict for the roles that follow the judge."""
        if not self.is_settled:
            return {"about": self.about, "disputed": [claim.id for claim in self.conflict.claims]}
        stands, falls = ([claim.id for claim in claims] for claims in (self.stands, self.falls))
        return {
            "about": self.about,
            "stands": list[JsonValue](stands),
            "do_not_use": list[JsonValue](falls),
            "why": self.settlement.why,
        }


def disputes_of(state: JobState, words: ResultTexts) -> tuple[Dispute, ...]:
    """Return every conflict among the results of the answer.

    Args:
        words: texts of `payloads_for_disputes`.
    """
    conflicts, judged = state.conflicts, state.judged
    if conflicts is None or conflicts.ledger is None:
        return ()
    settlements: dict[str, Settlement] = {}
    if judged is not None and judged.settled:
        kept = Settlements.of(words.result(judged.result).output).settlements
        settlements = {}
        for settlement in kept:
            if settlement.conflict in judged.settled:
                settlements[settlement.conflict] = settlement
    disputes: list[Dispute] = []
    for conflict in words.conflicts(conflicts.ledger).conflicts:
        disputes.append(
            Dispute(conflict, settlements.get(conflict.id, Settlement(conflict=conflict.id)))
        )
    return tuple(disputes)


def section(disputes: Collection[Dispute], body: str) -> str:
    """Return the section below an answer: open disputes, and rejected claims that the answer uses."""
    used: set[str | Any] = set()
    for match in MARKER.finditer(body):
        for claim_id in re.split(r"\s*[,;]\s*", match[1]):
            used.add(claim_id)
    blocks = []
    for title, told in (
        ("Disputed", _disputed(disputes)),
        ("Contradicted, and settled", _settled_against(disputes, used)),
    ):
        if told:
            blocks.append(
                "\n".join(
                    [
                        "",
                        "",
                        f"**{title}:**",
                        "",
                        *(f"- {dispute.line(marked=True)}" for dispute in told),
                    ]
                )
            )
    return "".join(blocks)


def beside(disputes: Collection[Dispute], form: HandoffResult) -> tuple[str, ...]:
    """Return the disputes as notes, for an answer that is a form."""
    used = {claim.id for claim in form.claims}
    disputed = [f"Disputed: {dispute.line(marked=False)}" for dispute in _disputed(disputes)]
    return (
        *disputed,
        *(
            f"Contradicted, and settled: {dispute.line(marked=False)}"
            for dispute in _settled_against(disputes, used)
        ),
    )


def _disputed(disputes: Collection[Dispute]) -> list[Dispute]:
    ones: list[Dispute] = []
    for dispute in disputes:
        if not dispute.is_settled:
            ones.append(dispute)
    return ones


def _settled_against(disputes: Collection[Dispute], used: Collection[str]) -> list[Dispute]:
    ones: list[Dispute] = []
    for dispute in disputes:
        if any(claim.id in used for claim in dispute.falls):
            ones.append(dispute)
    return ones


def _said(claim: Claim, *, marked: bool) -> str:
    text, value = (
        " ".join(claim.text.split()).rstrip("."),
        " ".join(part for part in (claim.value, claim.unit) if part),
    )
    if any(part and not _stands_in(text, part) for part in (claim.value, claim.unit)):
        text = f"{text}: {value}"
    if marked:
        return f"{text} [{claim.id}]"
    return f"{text} ({', '.join(dict.fromkeys(source.source for source in claim.sources)) or 'no source'})"


def _stands_in(text: str, part: str) -> bool:
    """Return whether the part is in the text as a separate word. A unit may follow its figure
    without a space.
    """
    words = re.escape(" ".join(part.split()))
    return re.search(rf"(?<![^\W\d]){words}(?![^\W\d])", text, re.IGNORECASE) is not None
