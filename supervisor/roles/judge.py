"""The judge's brief, which holds contradicting claims and their evidence, and its answer: the
claims of each conflict that stand.

The judge's second brief is about points that the assessor repeats. Its answer says whether the
writer or the assessor is right.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field, JsonValue, field_validator

from handoff_queue.shared.agent.answer_format import AcceptedAnswer, InvalidAnswer, LenientAnswer
from handoff_queue.shared.types.events import ConflictsFound
from handoff_queue.shared.types.handoff import BlobRef, Claim, HandoffResult, ResultStatus
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.origins import is_output_of_code
from handoff_queue.shared.types.review import (
    MAX_WHY_CHARS,
    ClaimConflict,
    Conflicts,
    Revision,
    Ruling,
    Rulings,
    Settlement,
    Settlements,
    Side,
)
from handoff_queue.supervisor.lifecycle.claim_sources import (
    collect_claims_of_steps,
    list_source_payloads,
)
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.review_arbitration import (
    find_disagreements,
    is_for_arbitration,
)
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.roles.answer_text import (
    build_id,
    build_object_schema,
    clip,
    list_values,
    parse,
)

MAX_SHOWN_CHARS = 80_000
"""Most characters of conflicts in one brief. Conflicts that do not fit stay disputed."""
MAX_TEXT_CHARS = 600
"""Most characters of a claim's text, and of a quote."""
MAX_SOURCES = 3
"""Most sources of a claim in a brief."""
_JOB = "Decide, for each conflict below, which of its claims stand. One a line:"
MAX_RESULT_CHARS = 80_000
"""Most characters of results and their evidence in one brief. Each point gets an equal part."""
MAX_CLAIMS = 100
"""Most claims of one result in a brief."""
_REVIEW_JOB = (
    "Decide for each point below who is right: the writer, with the result shown, or the assessor,"
    " with the repeated demand. One point a line:"
)


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


def list_judge_payloads(state: JobState) -> tuple[BlobRef, ...]:
    """Return the payloads that `build_judge_task` reads."""
    if is_for_arbitration(state):
        refs: list[BlobRef] = []
        if state.last_round and state.last_round.result:
            refs.append(state.last_round.result)
        results = _list_disputed_results(state)
        refs += [result for _, result in results]
        return (*refs, *list_source_payloads(state, results))
    if state.conflicts and state.conflicts.payload:
        return (state.conflicts.payload,)
    return ()


def _list_disputed_results(state: JobState) -> list[tuple[StepId, BlobRef]]:
    """Return the results of the steps with a disputed point, each with its step."""
    results: list[tuple[StepId, BlobRef]] = []
    for step_id in find_disagreements(state):
        result = state.steps[step_id].result
        if result:
            results.append((step_id, result))
    return results


def build_judge_task(state: JobState, texts: ResultTexts) -> tuple[str, Mapping[str, Any]]:
    """Return the judge's brief, and the JSON Schema of its answer. The brief holds all that the
    judge sees of the results.

    Args:
        texts: payloads of `list_judge_payloads(state)`.
    """
    if is_for_arbitration(state):
        return build_arbitration_brief(state, texts), RulingFormat(find_disagreements(state)).schema
    (payload,) = list_judge_payloads(state)
    conflicts = texts.get_conflicts(payload)
    return build_judge_brief(conflicts), build_judge_format(conflicts).schema


def is_arbitration(schema: Mapping[str, Any]) -> bool:
    """Return whether the handoff with this schema asks whether the writer or the assessor is
    right.
    """
    return bool(find_schema_points(schema))


def build_arbitration_brief(state: JobState, texts: ResultTexts) -> str:
    """Return the judge's brief about the points that the last review repeats.

    Args:
        texts: payloads of `list_judge_payloads(state)`.
    """
    disputed_steps = find_disagreements(state)
    verdict = texts.get_verdict(state.last_round)
    points: list[Revision] = []
    if verdict:
        points = [revision for revision in verdict.revisions if revision.step in disputed_steps]
    refs = _list_disputed_results(state)
    claims = collect_claims_of_steps(state, refs, texts)
    results: dict[StepId, HandoffResult] = {}
    for step, ref in refs:
        result = texts.get_result(ref)
        used = tuple(claims[claim.id] for claim in result.claims if claim.id in claims)
        results[step] = result.model_copy(update={"claims": used})
    lines = [_REVIEW_JOB]
    for point in points:
        lines.append(_format_point(point, results.get(point.step), MAX_RESULT_CHARS // len(points)))
    return "\n".join(lines)


def _format_point(point: Revision, result: HandoffResult | None, limit: int) -> str:
    """Return the JSON line of a point. The result and its evidence get half of `limit` each."""
    if result is None:
        output_text = ""
    elif isinstance(result.output, str):
        output_text = result.output
    else:
        output_text = json.dumps(result.output, ensure_ascii=False)
    evidence: list[JsonValue] = []
    left = limit // 2
    claims = result.claims[:MAX_CLAIMS] if result else ()
    for claim in claims:
        claim_json = show_claim(claim)
        left -= len(json.dumps(claim_json, ensure_ascii=False))
        if left < 0:
            break
        evidence.append(claim_json)
    line = {
        "point": point.step,
        "assessor": point.problem,
        "writer": clip(output_text, limit // 2),
        "evidence": evidence,
    }
    return json.dumps(line, ensure_ascii=False)


class RulingAnswer(LenientAnswer):
    point: str
    right: str = ""
    why: str = ""


class RulingsAnswer(LenientAnswer):
    rulings: list[RulingAnswer] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RulingFormat:
    """Format of the answer to `build_arbitration_brief`. `AcceptedAnswer.output` is the JSON form
    of `Rulings`.
    """

    points: tuple[str, ...]
    """Steps with a disputed point."""

    @property
    def schema(self) -> Mapping[str, Any]:
        text = {"type": "string"}
        item = {
            "point": {**text, "enum": list(self.points)},
            "why": {**text, "description": "one or two sentences for the reader of the answer"},
            "right": {**text, "enum": list_values(Side)},
        }
        rulings = {
            "type": "array",
            "items": build_object_schema(item),
            "description": "exactly one for each point",
        }
        return build_object_schema({"rulings": rulings})

    def read(self, text: str, *, last_try: bool) -> AcceptedAnswer:
        """Read the rulings.

        Raises:
            InvalidAnswer: the text has no rulings, or a point has no valid ruling. On the last try,
                a point without a valid ruling stays undecided instead (`Side.NEITHER`).
        """
        rulings_by_point: dict[str, Ruling] = {}
        for raw in parse(RulingsAnswer, text).rulings:
            point, right = build_id(raw.point), raw.right.strip().lower()
            if point in self.points and right in list(Side):
                rulings_by_point.setdefault(
                    point,
                    Ruling(step=StepId(point), right=Side(right), why=clip(raw.why, MAX_WHY_CHARS)),
                )
        missing = [point for point in self.points if point not in rulings_by_point]
        if missing and not last_try:
            raise InvalidAnswer(
                f"every point needs one ruling, with {', '.join(Side)}: of {', '.join(missing)}"
                " there is none"
            )
        rulings: list[Ruling] = []
        for point in self.points:
            undecided_ruling = Ruling(step=StepId(point), right=Side.NEITHER)
            rulings.append(rulings_by_point.get(point, undecided_ruling))
        output = Rulings(rulings=tuple(rulings)).model_dump(mode="json")
        return AcceptedAnswer(ResultStatus.OK, output)


def find_schema_points(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the points in a `RulingFormat.schema`; empty if it is another schema."""
    item = schema.get("properties", {}).get("rulings", {}).get("items", {}).get("properties", {})
    return tuple(item.get("point", {}).get("enum", ()))
