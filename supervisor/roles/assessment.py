"""The assessor's answer: a verdict on a round of results."""

from __future__ import annotations

from collections.abc import Mapping
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
from handoff_queue.supervisor.roles.answer_text import (
    clip,
    closed_object,
    name_of,
    parse,
    values_of,
)

LONGEST_POINT = 4_000
LONGEST_WHY = 1_000
MOST_SCORES = 80
"""Most scores of one verdict. Each costs about 40 output tokens. If the steps need more
scores, only the results as a whole are scored.
"""
WHOLE = "*"
"""The `step` of a score for the results as a whole. No step can have this id."""


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
    """Format of the answer to `briefs.assessment_brief`. `AcceptedAnswer.output` is the JSON
    form of a `Verdict`.
    """

    steps: tuple[str, ...]
    """Steps that can be sent back."""
    rubric: Rubric = DEFAULT_RUBRIC

    @property
    def scored(self) -> tuple[str, ...]:
        """Return the steps that are scored separately, in addition to the results as a whole."""
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
        properties = {
            "scores": {
                "type": "array",
                "items": self._score,
                "description": "one for each criterion, of the whole and of each step",
            },
            "verdict": {**text, "enum": values_of(Decision)},
            "revisions": {
                "type": "array",
                "items": closed_object(revision),
                "description": "for REVISE: one for each step to do again; for PASS: []",
            },
            "open_points": {
                "type": "array",
                "items": text,
                "description": (
                    "points that the reader must know and that no further work would settle"
                ),
            },
        }
        return closed_object(properties)

    @property
    def _score(self) -> Mapping[str, Any]:
        """Return the JSON Schema of one score."""
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
        return closed_object(score)

    def read(self, text: str, *, last_try: bool) -> AcceptedAnswer:  # noqa: ARG002 (the last try accepts no contradiction either)
        """Read a verdict.

        A problem that names no step which can be sent back becomes an open point of a REVISE.

        Raises:
            InvalidAnswer: there is no verdict, or it contradicts itself: a PASS with revisions, or
                a REVISE without revisions. A contradiction is refused on the last try, too.
        """
        answer = parse(VerdictAnswer, text)
        decision = _decision_of(answer.verdict)
        revisions, strays = self._revisions_of(answer)
        if decision is Decision.PASS and (revisions or strays):
            remarks = [f"{revision.step}: {revision.problem}" for revision in revisions]
            remarks += strays
            raise InvalidAnswer(
                "PASS names no step to do again: answer REVISE, or make these open points:"
                f" {'; '.join(remarks)}"
            )
        if decision is Decision.REVISE and not revisions:
            remedy = "; ".join(["or answer PASS", *strays])
            raise InvalidAnswer(
                "REVISE must name, for each step to do again, the step (one of"
                f" {', '.join(self.steps)}) and its problem; {remedy}"
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
        """Return one revision for each step, and the problems that name no step of `steps`."""
        problems: dict[str, list[str]] = {}
        strays: list[str] = []
        for raw in answer.revisions:
            problem = clip(raw.problem, LONGEST_POINT)
            if not problem:
                continue
            step = name_of(raw.step)
            if step in self.steps:
                problems.setdefault(step, []).append(problem)
            else:
                strays.append(problem)
        revisions: list[Revision] = []
        for step, texts in problems.items():
            problem = clip("\n".join(texts), LONGEST_POINT)
            revisions.append(Revision(step=StepId(step), problem=problem))
        return revisions, strays

    def _scores_of(self, answer: VerdictAnswer) -> tuple[Score, ...]:
        """Return the first valid score for each criterion and step. Invalid scores are left
        out, because a verdict is valid without scores.
        """
        scores: dict[tuple[str, StepId | None], Score] = {}
        for raw in answer.scores:
            score = self._score_in(raw)
            if score is not None:
                scores.setdefault((score.criterion, score.step), score)
        return tuple(scores.values())

    def _score_in(self, value: Any) -> Score | None:
        """Return a score. None: it is malformed, out of range, or for another step or criterion."""
        try:
            raw = ScoreAnswer.model_validate(value)
        except ValidationError:
            return None
        criterion = name_of(raw.criterion)
        if criterion not in self.rubric.names or not LOWEST <= raw.score <= HIGHEST:
            return None
        step = None
        if raw.step.strip() != WHOLE:
            step = StepId(name_of(raw.step))
            if step not in self.scored:
                return None
        return Score(
            criterion=criterion,
            score=round(raw.score),
            why=clip(raw.why, LONGEST_WHY),
            step=step,
        )


def verdict_format(state: JobState) -> VerdictFormat:
    """Return the format of the verdict on the next round of a job."""
    return VerdictFormat(reviewed_steps(state), state.submitted.rubric or DEFAULT_RUBRIC)


def _decision_of(text: str) -> Decision:
    """Return the decision in a text.

    Raises:
        InvalidAnswer: the text is neither PASS nor REVISE.
    """
    try:
        return Decision(text.strip().strip(".!*").upper())
    except ValueError as error:
        raise InvalidAnswer(f"verdict must be PASS or REVISE, not {clip(text, 40)!r}") from error
