"""The judge's second brief: a point that a reviewer repeats, with the writer's result and its
evidence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field, JsonValue

from handoff_queue.shared.agent.answer_format import AcceptedAnswer, InvalidAnswer
from handoff_queue.shared.agent.json_answers import LenientAnswer
from handoff_queue.shared.types.handoff import BlobRef, HandoffResult, ResultStatus
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.review import Revision, Ruling, Rulings, Side
from handoff_queue.supervisor.lifecycle.arbitration import is_for_arbitration, quarrels
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.roles.answer_text import clip, name_of, parse
from handoff_queue.supervisor.roles.judge import judge_brief, reading_of, show_claim

LONGEST_WHY = 1_000
MOST_SHOWN_CHARS = 80_000
"""Characters of results and their evidence in one brief, in equal parts."""
MOST_CLAIMS = 100
"""Claims of one result."""
_JOB = (
    "Decide for each point below who is right: the writer, with the result shown, or the reviewer, with the repeated demand. "
    "One point a line:"
)


def judging_wants(state: JobState) -> tuple[BlobRef, ...]:
    """Return the payloads that `judging` reads."""
    if is_for_arbitration(state):
        review = None
        if state.last_round:
            review = state.last_round.result
        wants: list[BlobRef] = []
        for ref in (review, *(state.steps[step].result for step in quarrels(state))):
            if ref:
                wants.append(ref)
        return tuple(wants)
    if state.conflicts and state.conflicts.ledger:
        return (state.conflicts.ledger,)
    return ()


def judging(
    state: JobState, words: ResultTexts
) -> tuple[str, tuple[StepId, ...], Mapping[str, Any]]:
    """Return the judge's brief, the results that it sees unchanged (none), and the schema of its
    answer.

    Args:
        words: texts of `judging_wants(state)`.
    """
    if is_for_arbitration(state):
        return quarrel_brief(state, words), (), RulingFormat(quarrels(state)).schema
    (ledger,) = judging_wants(state)
    conflicts = words.conflicts(ledger)
    return judge_brief(conflicts), (), reading_of(conflicts).schema


def is_of_a_quarrel(schema: Mapping[str, Any]) -> bool:
    """Return whether the handoff with this schema asks who is right, writer or reviewer."""
    return bool(points_of_schema(schema))


def quarrel_brief(state: JobState, words: ResultTexts) -> str:
    """Return the judge's brief about writer and reviewer.

    Args:
        words: texts of `judging_wants(state)`.
    """
    verdict = None
    if state.last_round:
        verdict = words.verdict(state.last_round)
    if verdict:
        points = [revision for revision in verdict.revisions if revision.step in quarrels(state)]
    else:
        points = []
    results: dict[StepId, HandoffResult] = {}
    for step in quarrels(state):
        if ref := state.steps[step].result:
            results[step] = words.result(ref)
    return "\n".join(
        [
            _JOB,
            *(
                _line(revision, results.get(revision.step), MOST_SHOWN_CHARS // len(points))
                for revision in points
            ),
        ]
    )


def _line(point: Revision, result: HandoffResult | None, most: int) -> str:
    if result is None:
        written = ""
    elif isinstance(result.output, str):
        written = result.output
    else:
        written = json.dumps(result.output, ensure_ascii=False)
    evidence: list[JsonValue] = []
    left = most // 2
    for claim in (result.claims if result else ())[:MOST_CLAIMS]:
        shown = show_claim(claim)
        left -= len(json.dumps(shown, ensure_ascii=False))
        if left < 0:
            break
        evidence.append(shown)
    line = {
        "point": point.step,
        "reviewer": point.problem,
        "writer": clip(written, most // 2),
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
    """Reads the answer to `quarrel_brief`. `AcceptedAnswer.output` is `Rulings` as JSON; `Rulings.of`
    makes it one again.
    """

    points: tuple[str, ...]

    @property
    def schema(self) -> Mapping[str, Any]:
        text = {"type": "string"}
        item = {
            "point": {**text, "enum": list(self.points)},
            "why": {**text, "description": "one or two sentences for the reader of the answer"},
            "right": {**text, "enum": [side.value for side in Side]},
        }
        ruling = {
            "type": "object",
            "properties": item,
            "required": list(item),
            "additionalProperties": False,
        }
        many = {"type": "array", "items": ruling, "description": "exactly one for each point"}
        return {
            "type": "object",
            "properties": {"rulings": many},
            "required": ["rulings"],
            "additionalProperties": False,
        }

    def read(self, text: str, *, last_try: bool) -> AcceptedAnswer:
        """Read the rulings.

        Raises:
            InvalidAnswer: a point has no valid ruling. On the last try it stays undecided instead.
        """
        given: dict[str, Ruling] = {}
        for raw in parse(RulingsAnswer, text).rulings:
            point, right = name_of(raw.point), raw.right.strip().lower()
            if point in self.points and right in list(Side):
                given.setdefault(
                    point,
                    Ruling(step=StepId(point), right=Side(right), why=clip(raw.why, LONGEST_WHY)),
                )
        silent = [point for point in self.points if point not in given]
        if silent and not last_try:
            raise InvalidAnswer(
                f"every point needs one ruling, with {', '.join(Side)}: of {', '.join(silent)} there is none"
            )
        kept = tuple(
            given.get(point, Ruling(step=StepId(point), right=Side.NEITHER))
            for point in self.points
        )
        return AcceptedAnswer(ResultStatus.OK, Rulings(rulings=kept).model_dump(mode="json"))


def points_of_schema(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the points of the handoff with this schema; empty if it asks for something else."""
    item = schema.get("properties", {}).get("rulings", {}).get("items", {}).get("properties", {})
    return tuple(item.get("point", {}).get("enum", ()))
