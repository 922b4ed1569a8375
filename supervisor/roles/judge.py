"""The judge's brief, which holds contradicting claims and their evidence, and its answer: the
claims of each conflict that stand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field, JsonValue, field_validator

from handoff_queue.shared.agent.answer_format import AcceptedAnswer, InvalidAnswer
from handoff_queue.shared.agent.lenient_answer import LenientAnswer
from handoff_queue.shared.types.events import ConflictsFound
from handoff_queue.shared.types.handoff import Claim, ResultStatus
from handoff_queue.shared.types.origins import is_output_of_code
from handoff_queue.shared.types.review import (
    MAX_WHY_CHARS,
    ClaimConflict,
    Conflicts,
    Settlement,
    Settlements,
)
from handoff_queue.supervisor.roles.answer_text import build_object_schema, clip, parse

MAX_SHOWN_CHARS = 80_000
"""Most characters of conflicts in one brief. Conflicts that do not fit stay disputed."""
MAX_TEXT_CHARS = 600
"""Most characters of a claim's text, and of a quote."""
MAX_SOURCES = 3
"""Most sources of a claim in a brief."""
_JOB = "Decide, for each conflict below, which of its claims stand. One a line:"


def build_judge_brief(conflicts: Conflicts) -> str:
    """Return the judge's brief: contradicting claims, and their quotes."""
    return "\n".join([_JOB, *map(_format_conflict, select_conflicts_for_brief(conflicts))])


def select_conflicts_for_brief(conflicts: Conflicts) -> tuple[ClaimConflict, ...]:
    """Return the first conflicts, as many as fit into the brief."""
    visible_conflicts: list[ClaimConflict] = []
    chars = 0
    for conflict in conflicts.conflicts:
        chars += len(_format_conflict(conflict))
        if chars > MAX_SHOWN_CHARS:
            break
        visible_conflicts.append(conflict)
    return tuple(visible_conflicts)


class SettlementAnswer(LenientAnswer):
    conflict: str
    stands: list[str] = Field(default_factory=list)
    why: str | None = None

    @field_validator("stands", mode="before")
    @classmethod
    def _wrap_single_value(cls, value: Any) -> Any:
        if isinstance(value, str) and value:
            return [value]
        return value or []


class SettlementsAnswer(LenientAnswer):
    settlements: list[SettlementAnswer] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class JudgeFormat:
    """Format of the answer to `build_judge_brief`. `AcceptedAnswer.output` is the JSON form of
    `Settlements`.
    """

    conflicts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Ids of the claims, by conflict."""

    @property
    def schema(self) -> Mapping[str, Any]:
        text = {"type": "string"}
        claims: dict[str, None] = {}
        for claim_ids in self.conflicts.values():
            claims |= dict.fromkeys(claim_ids)
        item = {
            "conflict": {**text, "enum": list(self.conflicts)},
            "why": {**text, "description": "one or two sentences for the reader of the answer"},
            "stands": {
                "type": "array",
                "items": {**text, "enum": list(claims)},
                "description": (
                    "the claims of this conflict that stand; none: disputed; all: they do not"
                    " contradict each other"
                ),
            },
        }
        settlements = {
            "type": "array",
            "items": build_object_schema(item),
            "description": "exactly one for each conflict",
        }
        return build_object_schema({"settlements": settlements})

    def read(self, text: str, *, last_try: bool) -> AcceptedAnswer:
        """Read the settlements.

        Raises:
            InvalidAnswer: the text has no settlements, a conflict has none, or a claim is not part
                of its conflict. On the last try, such a conflict stays disputed instead, with a
                note.
        """
        answers: dict[str, SettlementAnswer] = {}
        for raw in parse(SettlementsAnswer, text).settlements:
            answers.setdefault(raw.conflict.strip(), raw)
        missing: list[str] = []
        mixed_up: list[str] = []
        for conflict, claim_ids in self.conflicts.items():
            if conflict not in answers:
                missing.append(conflict)
            elif not {*answers[conflict].stands} <= {*claim_ids}:
                mixed_up.append(conflict)
        if (missing or mixed_up) and not last_try:
            problems = [f"{conflict} is missing" for conflict in missing]
            for conflict in mixed_up:
                claim_ids = self.conflicts[conflict]
                problems.append(f"{conflict} has only the claims {', '.join(claim_ids)}")
            raise InvalidAnswer(
                "every conflict needs one settlement that names its own claims:"
                f" {'; '.join(problems)}"
            )
        settlements: list[Settlement] = []
        for conflict, raw in answers.items():
            if conflict in self.conflicts and conflict not in mixed_up:
                stands = tuple(dict.fromkeys(raw.stands))
                why = clip(raw.why or "", MAX_WHY_CHARS)
                settlements.append(Settlement(conflict=conflict, stands=stands, why=why))
        notes: list[str] = []
        for conflict in (*missing, *mixed_up):
            notes.append(f"the judge said nothing usable of {conflict}")
        output = Settlements(settlements=tuple(settlements)).model_dump(mode="json")
        return AcceptedAnswer(ResultStatus.OK, output, notes=tuple(notes))


def build_judge_format(conflicts: Conflicts) -> JudgeFormat:
    """Return the answer format for the conflicts that `build_judge_brief` shows."""
    claim_ids: dict[str, tuple[str, ...]] = {}
    for conflict in select_conflicts_for_brief(conflicts):
        claim_ids[conflict.id] = tuple(claim.id for claim in conflict.claims)
    return JudgeFormat(claim_ids)


def parse_judge_format(schema: Mapping[str, Any], event: ConflictsFound) -> JudgeFormat:
    """Return the format of a handoff with this `JudgeFormat.schema`, for the conflicts in the
    schema.

    Args:
        event: the event with the claims of all conflicts. Conflict `k1` is the first.
    """
    item = (
        schema.get("properties", {}).get("settlements", {}).get("items", {}).get("properties", {})
    )
    questions = item.get("conflict", {}).get("enum", ())
    claim_ids: dict[str, tuple[str, ...]] = {}
    for number, ids in enumerate(event.conflicts, start=1):
        if f"k{number}" in questions:
            claim_ids[f"k{number}"] = ids
    return JudgeFormat(claim_ids)


def _format_conflict(conflict: ClaimConflict) -> str:
    """Return the JSON line of a conflict."""
    claims: list[JsonValue] = [*map(show_claim, conflict.claims)]
    return json.dumps({"conflict": conflict.id, "claims": claims}, ensure_ascii=False)


def show_claim(claim: Claim) -> JsonValue:
    """Return a claim and its quotes as the judge sees them."""
    evidence: list[JsonValue] = []
    for source in claim.sources[:MAX_SOURCES]:
        source_item: dict[str, JsonValue] = {"source": source.source}
        if is_output_of_code(source.source):
            source_item["is"] = "output of code that the author of the claim wrote"
        evidence.append({**source_item, "quote": clip(source.quote, MAX_TEXT_CHARS)})
    parts: dict[str, Any] = {}
    for part in ("subject", "attribute", "value", "unit", "date"):
        if value := getattr(claim, part):
            parts[part] = value
    return {
        "id": claim.id,
        "text": clip(claim.text, MAX_TEXT_CHARS),
        **parts,
        "evidence": evidence,
    }
