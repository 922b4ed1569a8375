"""The judge's second brief, about points that the assessor repeats, and its answer: whether the
writer or the assessor is right.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field, JsonValue

from handoff_queue.shared.agent.answer_format import AcceptedAnswer, InvalidAnswer
from handoff_queue.shared.agent.lenient_answer import LenientAnswer
from handoff_queue.shared.types.handoff import BlobRef, HandoffResult, ResultStatus
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.review import MAX_WHY_CHARS, Revision, Ruling, Rulings, Side
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
from handoff_queue.supervisor.roles.judge import build_judge_brief, build_judge_format, show_claim

MAX_SHOWN_CHARS = 80_000
"""Most characters of results and their evidence in one brief. Each point gets an equal part."""
MAX_CLAIMS = 100
"""Most claims of one result in a brief."""
_JOB = (
    "Decide for each point below who is right: the writer, with the result shown, or the assessor,"
    " with the repeated demand. One point a line:"
)


def list_judge_payloads(state: JobState) -> tuple[BlobRef, ...]:
    """Return the payloads that `build_judge_task` reads."""
    if is_for_arbitration(state):
        refs: list[BlobRef] = []
        if state.last_round and state.last_round.result:
            refs.append(state.last_round.result)
        for step_id in find_disagreements(state):
            result = state.steps[step_id].result
            if result:
                refs.append(result)
        return tuple(refs)
    if state.conflicts and state.conflicts.payload:
        return (state.conflicts.payload,)
    return ()


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
    results: dict[StepId, HandoffResult] = {}
    for step in disputed_steps:
        if ref := state.steps[step].result:
            results[step] = texts.get_result(ref)
    lines = [_JOB]
    for point in points:
        lines.append(_format_point(point, results.get(point.step), MAX_SHOWN_CHARS // len(points)))
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
