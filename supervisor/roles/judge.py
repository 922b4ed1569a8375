"""The judge's brief, which holds claims and their evidence and nothing else, and its answer:
which claims of each conflict stand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field, JsonValue, field_validator

from handoff_queue.shared.agent.answer_format import AcceptedAnswer, InvalidAnswer
from handoff_queue.shared.agent.json_answers import LenientAnswer
from handoff_queue.shared.types.events import ConflictsFound
from handoff_queue.shared.types.handoff import Claim, ResultStatus
from handoff_queue.shared.types.review import Conflict, Conflicts, Settlement, Settlements
from handoff_queue.supervisor.roles.answer_text import clip, parse

LONGEST_WHY = 1_000
MOST_SHOWN_CHARS = 80_000
"""Characters of conflicts in one brief. Conflicts beyond it stay disputed."""
MOST_TEXT_CHARS = 600
"""Characters of a claim, and of a quote."""
MOST_SOURCES = 3
"""Sources of a claim."""
_JOB = "Decide, for each conflict below, which of its claims stand. One a line:"


def judge_brief(conflicts: Conflicts) -> str:
    """Return the judge's brief: contradicting claims, and their quotes."""
    return "\n".join([_JOB, *(_line(conflict) for conflict in show_conflicts(conflicts))])


def show_conflicts(conflicts: Conflicts) -> tuple[Conflict, ...]:
    """Return the leading conflicts that fit into the brief."""
    kept, chars = [], 0
    for conflict in conflicts.conflicts:
        chars += len(_line(conflict))
        if chars > MOST_SHOWN_CHARS:
            break
        kept.append(conflict)
    return tuple(kept)


class SettlementAnswer(LenientAnswer):
    conflict: str
    stands: list[str] = Field(default_factory=list)
    why: str | None = None

    @field_validator("stands", mode="before")
    @classmethod
    def _none_or_one_is_a_list(cls, value: Any) -> Any:
        if isinstance(value, str) and value:
            return [value]
        return value or []


class SettlementsAnswer(LenientAnswer):
    settlements: list[SettlementAnswer] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class JudgeFormat:
    """Reads the answer to `judge_brief`. `AcceptedAnswer.output` is `Settlements` as JSON;
    `Settlements.of` makes it one again.
    """

    conflicts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The claims of each."""

    @property
    def schema(self) -> Mapping[str, Any]:
        text = {"type": "string"}
        claims = list(dict.fromkeys(claim for ids in self.conflicts.values() for claim in ids))
        item = {
            "conflict": {**text, "enum": list(self.conflicts)},
            "why": {**text, "description": "one or two sentences for the reader of the answer"},
            "stands": {
                "type": "array",
                "items": {**text, "enum": claims},
                "description": "the claims of this conflict that stand; none: disputed; all: they do not contradict each other",
            },
        }
        settlement = {
            "type": "object",
            "properties": item,
            "required": list(item),
            "additionalProperties": False,
        }
        many = {
            "type": "array",
            "items": settlement,
            "description": "exactly one for each conflict",
        }
        return {
            "type": "object",
            "properties": {"settlements": many},
            "required": ["settlements"],
            "additionalProperties": False,
        }

    def read(self, text: str, *, last_try: bool) -> AcceptedAnswer:
        """Read the settlements.

        Raises:
            InvalidAnswer: a conflict has no settlement, or a claim is not part of its conflict. On
                the last try the conflict stays disputed instead.
        """
        given: dict[str, SettlementAnswer] = {}
        for raw in parse(SettlementsAnswer, text).settlements:
            given.setdefault(raw.conflict.strip(), raw)
        silent = [conflict for conflict in self.conflicts if conflict not in given]
        strange = [
            conflict
            for conflict, ids in self.conflicts.items()
            if conflict in given and not {*given[conflict].stands} <= {*ids}
        ]
        if (silent or strange) and not last_try:
            wrong = [f"{conflict} is missing" for conflict in silent]
            wrong += [
                f"{conflict} has only the claims {', '.join(self.conflicts[conflict])}"
                for conflict in strange
            ]
            raise InvalidAnswer(
                f"every conflict needs one settlement that names its own claims: {'; '.join(wrong)}"
            )
        kept = [
            Settlement(
                conflict=conflict,
                stands=tuple(dict.fromkeys(raw.stands)),
                why=clip(raw.why or "", LONGEST_WHY),
            )
            for conflict, raw in given.items()
            if conflict in self.conflicts and conflict not in strange
        ]
        notes = tuple(
            f"the judge said nothing usable of {conflict}" for conflict in (*silent, *strange)
        )
        return AcceptedAnswer(
            ResultStatus.OK,
            Settlements(settlements=tuple(kept)).model_dump(mode="json"),
            notes=notes,
        )


def reading_of(conflicts: Conflicts) -> JudgeFormat:
    """Return the answer format for the conflicts that `judge_brief` shows."""
    return JudgeFormat(
        {
            conflict.id: tuple(claim.id for claim in conflict.claims)
            for conflict in show_conflicts(conflicts)
        }
    )


def reading_again(schema: Mapping[str, Any], conflicts: ConflictsFound) -> JudgeFormat:
    """Return the answer format with the schema of a handoff, for the conflicts that it asks about."""
    item = (
        schema.get("properties", {}).get("settlements", {}).get("items", {}).get("properties", {})
    )
    asked = item.get("conflict", {}).get("enum", ())
    return JudgeFormat(
        {
            f"k{number}": ids
            for number, ids in enumerate(conflicts.conflicts, start=1)
            if f"k{number}" in asked
        }
    )


def _line(conflict: Conflict) -> str:
    claims: list[JsonValue] = [show_claim(claim) for claim in conflict.claims]
    return json.dumps({"conflict": conflict.id, "claims": claims}, ensure_ascii=False)


def show_claim(claim: Claim) -> JsonValue:
    """Return a claim and its quotes as the judge sees them."""
    evidence: list[JsonValue] = [
        {"source": source.source, "quote": clip(source.quote, MOST_TEXT_CHARS)}
        for source in claim.sources[:MOST_SOURCES]
    ]
    parts: dict[str | str | str | str | str, Any] = {}
    for part in ("subject", "attribute", "value", "unit", "date"):
        if value := getattr(claim, part):
            parts[part] = value
    return {
        "id": claim.id,
        "text": clip(claim.text, MOST_TEXT_CHARS),
        **parts,
        "evidence": evidence,
    }
