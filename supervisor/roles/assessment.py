"""The assessor's answer: a verdict on a round of results that names only steps which it was shown."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import Field, ValidationError, field_validator

from handoff_queue.shared.agent.answer_format import AcceptedAnswer, InvalidAnswer
from handoff_queue.shared.agent.json_answers import LenientAnswer
from handoff_queue.shared.types.handoff import ResultStatus
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.review import (
    DEFAULT_RUBRIC,
    HIGHEST,
    LOWEST,
    Decision,
    Revision,
    Rubric,
    Score,
    Verdict,
)
from handoff_queue.supervisor.lifecycle.effects import reviewed_steps
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.roles.answer_text import clip, name_of, parse

LONGEST_POINT = 4_000
LONGEST_WHY = 1_000
MOST_SCORES = 80
"""Scores of one verdict. Each costs about 40 output tokens. If the steps need more scores, only the
whole answer is scored.
"""
WHOLE = "*"
"""Stands in a score for the results as a whole; no step can be called so."""


class ScoreAnswer(LenientAnswer):
    step: str = WHOLE
    criterion: str
    score: float
    why: str = ""


class RevisionAnswer(LenientAnswer):
    step: str
    problem: str = ""


class VerdictAnswer(LenientAnswer):
    scores: list[Any] = Field(default_factory=list)
    verdict: str
    revisions: list[RevisionAnswer] = Field(default_factory=list)
    open_points: list[str] = Field(default_factory=list)

    @field_validator("scores", "revisions", "open_points", mode="before")
    @classmethod
    def _none_or_one_is_a_list(cls, value: Any) -> Any:
        if isinstance(value, str | dict) and value:
            return [value]
        return value or []


@dataclass(frozen=True)
class VerdictFormat:
    """Reads the answer to `briefs.assessment_brief`. `AcceptedAnswer.output` is a `Verdict` as JSON;
    `Verdict.of` makes it one again.
    """

    steps: tuple[str, ...]
    """Steps that can be sent back."""
    rubric: Rubric = DEFAULT_RUBRIC

    @property
    def scored(self) -> tuple[str, ...]:
        """Return the steps that are scored separately, in addition to the whole answer."""
        if len(self.rubric.criteria) * (1 + len(self.steps)) <= MOST_SCORES:
            return self.steps
        return ()

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        text = {"type": "string"}
        revision = {
            "step": {**text, "enum": list(self.steps)},
            "problem": {
                **text,
                "description": "the fault and the correction, for the specialist that did the step",
            },
        }
        revision_schema = {
            "type": "object",
            "properties": revision,
            "required": list(revision),
            "additionalProperties": False,
        }
        properties = {
            "scores": {
                "type": "array",
                "items": self._score,
                "description": "one for each criterion, of the whole and of each step",
            },
            "verdict": {**text, "enum": [decision.value for decision in Decision]},
            "revisions": {
                "type": "array",
                "items": revision_schema,
                "description": "for REVISE: one for each step to do again; for PASS: []",
            },
            "open_points": {
                "type": "array",
                "items": text,
                "description": "points that the reader must know and that no further work would settle",
            },
        }
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    @property
    def _score(self) -> Mapping[str, Any]:
        text = {"type": "string"}
        score = {
            "step": {
                **text,
                "enum": [WHOLE, *self.scored],
                "description": f"`{WHOLE}`: the results as a whole, against the request",
            },
            "criterion": {**text, "enum": list(self.rubric.names)},
            "why": {**text, "description": "one sentence that names the place"},
            "score": {"type": "integer", "enum": list(range(LOWEST, HIGHEST + 1))},
        }
        return {
            "type": "object",
            "properties": score,
            "required": list(score),
            "additionalProperties": False,
        }

    def read(self, text: str, *, last_try: bool) -> AcceptedAnswer:  # noqa: ARG002 (a verdict that contradicts itself is none, however often)
        """Read a verdict.

        Raises:
            InvalidAnswer: there is no verdict, or it contradicts itself: a PASS with revisions, or
                a REVISE without revisions. A contradiction is refused on the last try, too.
        """
        answer = parse(VerdictAnswer, text)
        decision = _decision_of(answer.verdict)
        revisions, strays = self._revisions_of(answer)
        if decision is Decision.PASS and (revisions or strays):
            remarks = "; ".join(
                [*(f"{revision.step}: {revision.problem}" for revision in revisions), *strays]
            )
            raise InvalidAnswer(
                f"PASS names no step to do again: answer REVISE, or make these open points: {remarks}"
            )
        if decision is Decision.REVISE and not revisions:
            steps, remarks = ", ".join(self.steps), "".join(f"; {problem}" for problem in strays)
            raise InvalidAnswer(
                f"REVISE must name, for each step to do again, the step (one of {steps}) and its problem; or answer PASS{remarks}"
            )
        points: list[str] = []
        for raw in answer.open_points:
            if point := clip(raw, LONGEST_POINT):
                points.append(point)
        verdict = Verdict(
            verdict=decision,
            revisions=tuple(revisions),
            open_points=tuple(dict.fromkeys([*points, *strays])),
            scores=self._scores_of(answer),
        )
        return AcceptedAnswer(ResultStatus.OK, verdict.model_dump(mode="json"))

    def _revisions_of(self, answer: VerdictAnswer) -> tuple[list[Revision], list[str]]:
        """Return one revision for each step, and the problems that name no step of the plan."""
        problems: dict[str, list[str]] = {}
        strays: list[str] = []
        for raw in answer.revisions:
            if not (problem := clip(raw.problem, LONGEST_POINT)):
                continue
            if (step := name_of(raw.step)) in self.steps:
                problems.setdefault(step, []).append(problem)
            else:
                strays.append(problem)
        kept = [
            Revision(step=StepId(step), problem=clip("\n".join(texts), LONGEST_POINT))
            for step, texts in problems.items()
        ]
        return kept, strays

    def _scores_of(self, answer: VerdictAnswer) -> tuple[Score, ...]:
        """Return the first score for each criterion and step. Scores outside the rubric are left
        out: a verdict is valid without scores.
        """
        kept: dict[tuple[str, str], Score] = {}
        for raw in map(_score_in, answer.scores):
            if raw is None:
                continue
            step, criterion = (
                raw.step.strip() if raw.step.strip() == WHOLE else name_of(raw.step),
                name_of(raw.criterion),
            )
            if (
                step not in (WHOLE, *self.scored)
                or criterion not in self.rubric.names
                or not LOWEST <= raw.score <= HIGHEST
            ):
                continue
            if step == WHOLE:
                of = None
            else:
                of = StepId(step)
            kept.setdefault(
                (step, criterion),
                Score(
                    criterion=criterion,
                    score=round(raw.score),
                    why=clip(raw.why, LONGEST_WHY),
                    step=of,
                ),
            )
        return tuple(kept.values())


def reading_of(state: JobState) -> VerdictFormat:
    """Return the answer format of the verdict on a job's next round."""
    return VerdictFormat(reviewed_steps(state), state.submitted.rubric or DEFAULT_RUBRIC)


def _score_in(value: Any) -> ScoreAnswer | None:
    with suppress(ValidationError):
        return ScoreAnswer.model_validate(value)
    return None


def _decision_of(text: str) -> Decision:
    try:
        return Decision(text.strip().strip(".!*").upper())
    except ValueError as error:
        raise InvalidAnswer(f"verdict must be PASS or REVISE, not {clip(text, 40)!r}") from error
