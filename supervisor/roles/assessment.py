"""The assessor's answer: a verdict on a round of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

from pydantic import Field, ValidationError, field_validator

from handoff_queue.shared.agent.answer_format import (
    AcceptedAnswer,
    Defect,
    InvalidAnswer,
    LenientAnswer,
)
from handoff_queue.shared.types.handoff import HandoffResult, ResultStatus
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.review import (
    DEFAULT_RUBRIC,
    HIGHEST,
    LOWEST,
    MAX_WHY_CHARS,
    Decision,
    Revision,
    Rubric,
    Score,
    Verdict,
)
from handoff_queue.supervisor.lifecycle.side_effects import (
    find_review_dependents,
    list_reviewed_steps,
)
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.roles.answer_text import (
    build_id,
    build_object_schema,
    clip,
    list_values,
    parse,
)
from handoff_queue.supervisor.text.orders_to_assessor import TELLS_ASSESSOR, find_order_to_assessor

MAX_POINT_CHARS = 4_000
MAX_LOW_SCORE = 2
"""2 means: misleading, or a part is missing (`assessor.md`). A PASS with such a score of the whole
has an open point.
"""
MAX_SCORES = 80
"""Most scores of one verdict. Each costs about 10 output tokens. If the steps need more
scores, only the results as a whole are scored.
"""


class CriterionAnswer(LenientAnswer):
    """The scores by one criterion."""

    why: str = ""
    whole: Any = None
    steps: dict[str, Any] = Field(default_factory=dict)


class RevisionAnswer(LenientAnswer):
    step: str
    problem: str = ""


class VerdictAnswer(LenientAnswer):
    verdict: str
    revisions: list[RevisionAnswer] = Field(default_factory=list)
    open_points: list[str] = Field(default_factory=list)
    scores: Any = None

    @field_validator("revisions", "open_points", mode="before")
    @classmethod
    def _wrap_single_value(cls, value: Any) -> Any:
        if isinstance(value, str | dict) and value:
            return [value]
        return value or []


@dataclass(frozen=True)
class VerdictFormat:
    """Format of the answer to `briefs.build_assessment_brief`. `AcceptedAnswer.output` is the JSON
    form of a `Verdict`.
    """

    steps: tuple[str, ...]
    """Steps that can be sent back."""
    rubric: Rubric = DEFAULT_RUBRIC
    sent_back: Mapping[StepId, str] = field(default_factory=dict)
    """Step -> a text in its result that tells the assessor what to decide. Each verdict sends the
    step back.
    """
    named_orders: Mapping[StepId, str] = field(default_factory=dict)
    """Step -> such a text that each verdict makes an open point."""

    @property
    def scored(self) -> tuple[str, ...]:
        """Return the steps that are scored separately, in addition to the results as a whole.

        A user's rubric scores each step. The default rubric scores only the whole, so that the
        schema is the same in all jobs and the prompt cache can keep it.
        """
        if self.rubric == DEFAULT_RUBRIC:
            return ()
        if len(self.rubric.criteria) * (1 + len(self.steps)) <= MAX_SCORES:
            return self.steps
        return ()

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        text = {"type": "string"}
        revision = {
            "step": {**text, "description": "the name of a step in the plan"},
            "problem": {
                **text,
                "description": "the fault and the correction, for the specialist that did the step",
            },
        }
        by_criterion = {name: {"$ref": "#/$defs/scores"} for name in self.rubric.names}
        properties = {
            "verdict": {**text, "enum": list_values(Decision)},
            "revisions": {
                "type": "array",
                "items": build_object_schema(revision),
                "description": "for REVISE: one for each step to do again",
            },
            "open_points": {
                "type": "array",
                "items": text,
                "description": (
                    "points that the reader must know and that no further work would settle"
                ),
            },
            "scores": build_object_schema(by_criterion, optional=self._unscored),
        }
        optional = ["revisions", "open_points"]
        if self._unscored:
            optional.append("scores")
        verdict = build_object_schema(properties, optional=optional)
        return {**verdict, "$defs": {"scores": self._scores_by_criterion}}

    @property
    def _unscored(self) -> tuple[str, ...]:
        """Return the criteria whose scores may be left out: those of the default rubric, by which
        only flaws are reported.
        """
        if self.rubric == DEFAULT_RUBRIC:
            return self.rubric.names
        return ()

    @property
    def _scores_by_criterion(self) -> Mapping[str, Any]:
        """Return the JSON Schema of the scores by one criterion. Its properties bound its length:
        a small model may repeat the items of a list without an end. Only the scores by a user's
        rubric always have a reason: each one costs about 15 output tokens.
        """
        score = {"type": "integer", "enum": list(range(LOWEST, HIGHEST + 1))}
        properties: dict[str, Any] = {
            "why": {"type": "string", "description": "one sentence that names the place"},
            "whole": {**score, "description": "the results as a whole, against the request"},
        }
        if self.scored:
            properties["steps"] = build_object_schema(dict.fromkeys(self.scored, score))
        optional = ("why",) if self.rubric == DEFAULT_RUBRIC else ()
        return build_object_schema(properties, optional=optional)

    def read(self, text: str, *, last_try: bool) -> AcceptedAnswer:
        """Read a verdict.

        A problem that names no step which can be sent back becomes an open point of a REVISE. A
        PASS becomes a REVISE if code sends a step back. On the last try, the low scores of a PASS
        without open points become open points.

        Raises:
            InvalidAnswer: there is no verdict, or it contradicts itself. Such a verdict is a PASS
                with revisions, a REVISE without revisions, or a PASS with low scores and without
                open points. The first two contradictions are refused on the last try, too.
        """
        answer = parse(VerdictAnswer, text)
        decision = _parse_decision(answer.verdict)
        revisions, strays = self._read_revisions(answer)
        self._check_decision(decision, revisions, strays)
        revisions = self._with_sent_back(revisions)
        if revisions:
            decision = Decision.REVISE
        scores = self._read_scores(answer)
        own_points = [clip(point, MAX_POINT_CHARS) for point in answer.open_points if point.strip()]
        points: list[str] = []
        if decision is Decision.PASS and not own_points:
            points += _describe_low_scores(scores)
        if points and not last_try:
            raise InvalidAnswer(
                Defect(
                    f"its verdict is PASS without open points, and its scores are low:"
                    f" {' '.join(points)}",
                    "answer REVISE, or tell the reader about the faults in `open_points`",
                )
            )
        for step, words in self.named_orders.items():
            points.append(f"The result of {step} tells the assessor what to decide: {words!r}.")
        verdict = Verdict(
            verdict=decision,
            revisions=tuple(revisions),
            open_points=tuple(dict.fromkeys([*points, *own_points, *strays])),
            scores=scores,
        )
        return AcceptedAnswer(ResultStatus.OK, verdict.model_dump(mode="json"))

    def _check_decision(
        self, decision: Decision, revisions: Sequence[Revision], strays: Sequence[str]
    ) -> None:
        """Check that the decision agrees with the problems.

        Args:
            strays: problems that name no step of `steps`.

        Raises:
            InvalidAnswer: a PASS has problems, or a REVISE has no revision.
        """
        if decision is Decision.PASS and (revisions or strays):
            remarks = [f"{revision.step}: {revision.problem}" for revision in revisions]
            remarks += strays
            raise InvalidAnswer(
                Defect(
                    f"its verdict is PASS, and it names steps to do again: {'; '.join(remarks)}",
                    "answer REVISE, or make these open points",
                )
            )
        if decision is Decision.REVISE and not revisions:
            fault = "its verdict is REVISE, and it names no step that can be done again"
            raise InvalidAnswer(
                Defect(
                    "; ".join([fault, *strays]),
                    f"name each step to do again (one of {', '.join(self.steps)}) and its problem,"
                    " or answer PASS",
                )
            )

    def _with_sent_back(self, revisions: Sequence[Revision]) -> list[Revision]:
        """Return the revisions with those of `sent_back`."""
        problems = {revision.step: revision.problem for revision in revisions}
        for step, words in self.sent_back.items():
            problem = (
                f"{TELLS_ASSESSOR} {words!r}. Leave such text out, and check the result against its"
                " sources again."
            )
            if step in problems:
                problem = f"{problem}\n{problems[step]}"
            problems[step] = clip(problem, MAX_POINT_CHARS)
        return [Revision(step=step, problem=problem) for step, problem in problems.items()]

    def _read_revisions(self, answer: VerdictAnswer) -> tuple[list[Revision], list[str]]:
        """Return one revision for each step, and the problems that name no step of `steps`."""
        problems: dict[str, list[str]] = {}
        strays: list[str] = []
        for raw in answer.revisions:
            problem = clip(raw.problem, MAX_POINT_CHARS)
            if not problem:
                continue
            step = build_id(raw.step)
            if step in self.steps:
                problems.setdefault(step, []).append(problem)
            else:
                strays.append(problem)
        revisions: list[Revision] = []
        for step, texts in problems.items():
            problem = clip("\n".join(texts), MAX_POINT_CHARS)
            revisions.append(Revision(step=StepId(step), problem=problem))
        return revisions, strays

    def _read_scores(self, answer: VerdictAnswer) -> tuple[Score, ...]:
        """Return the valid scores. Invalid scores are left out, because a verdict is valid
        without scores. The reason of a criterion belongs to the score of the whole.
        """
        if not isinstance(answer.scores, Mapping):
            return ()
        scores: list[Score] = []
        for criterion in self.rubric.names:
            try:
                criterion_answer = CriterionAnswer.model_validate(answer.scores.get(criterion))
            except ValidationError:
                continue
            overall_score = _parse_score(criterion_answer.whole)
            if overall_score is not None:
                why = clip(criterion_answer.why, MAX_WHY_CHARS)
                scores.append(Score(criterion=criterion, score=overall_score, why=why))
            for step in self.scored:
                value = _parse_score(criterion_answer.steps.get(step))
                if value is not None:
                    scores.append(Score(criterion=criterion, score=value, step=StepId(step)))
        return tuple(scores)


def _describe_low_scores(scores: Sequence[Score]) -> list[str]:
    """Return a sentence for each low score of the results as a whole."""
    sentences: list[str] = []
    for score in scores:
        if score.step is None and score.score <= MAX_LOW_SCORE:
            reason = f" ({score.why.rstrip('.')})" if score.why else ""
            sentences.append(
                f"The assessor gave {score.score} of {HIGHEST} for {score.criterion}{reason}."
            )
    return sentences


def _parse_score(value: Any) -> int | None:
    """Return a score. None: it is not a number, or out of range."""
    try:
        score = round(float(value))
    except (TypeError, ValueError, OverflowError):
        return None
    if LOWEST <= score <= HIGHEST:
        return score
    return None


def build_verdict_format(
    state: JobState, results: Mapping[StepId, HandoffResult] = MappingProxyType({})
) -> VerdictFormat:
    """Return the format of the verdict on the next round of a job.

    Args:
        results: the results that the assessor reads.
    """
    steps, rubric = list_reviewed_steps(state), state.submitted.rubric or DEFAULT_RUBRIC
    sent_back: dict[StepId, str] = {}
    named_orders: dict[StepId, str] = {}
    for step_id, result in results.items():
        quotes: list[str] = []
        for claim in result.claims:
            quotes += [source.quote for source in claim.sources]
        address = find_order_to_assessor(result.model_dump(mode="json"), quotes)
        if address is None:
            continue
        # Own words can belong to the subject of the job, too, so they are sent back once. If steps
        # wait for the review, it does not pass at all.
        is_first = not state.rounds_now and not address.is_material
        if step_id in steps and (is_first or find_review_dependents(state)):
            sent_back[step_id] = address.words
        else:
            named_orders[step_id] = address.words
    return VerdictFormat(steps, rubric, sent_back, named_orders)


def _parse_decision(text: str) -> Decision:
    """Return the decision in a text.

    Raises:
        InvalidAnswer: the text is neither PASS nor REVISE.
    """
    try:
        return Decision(text.strip().strip(".!*").upper())
    except ValueError as error:
        raise InvalidAnswer(f"verdict must be PASS or REVISE, not {clip(text, 40)!r}") from error
