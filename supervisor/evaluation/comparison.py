"""Comparison of two ways to do one request: the quality and cost of each answer, and one sentence
of advice from pure code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.gates import Gates
from handoff_queue.shared.types.review import Rubric
from handoff_queue.supervisor.client.report import JobResult
from handoff_queue.supervisor.evaluation.answer_judge import (
    AnswerJudge,
    PairwiseJudgement,
    Preference,
    duel_in,
    mean_of,
    settle,
)
from handoff_queue.supervisor.evaluation.figures import (
    ResourceUse,
    faults_of,
    is_cut,
    text_of,
    times,
    took_by,
    took_together,
)
from handoff_queue.supervisor.evaluation.job_runner import EvaluationJob, JobRunner
from handoff_queue.supervisor.evaluation.trials import Variant


@dataclass(frozen=True, slots=True)
class ComparedAnswer:
    """One of the two compared answers."""

    name: str
    status: str
    faults: tuple[str, ...]
    """Reasons why it does not pass its gates, or the reason why there is no answer."""
    took: ResourceUse
    score: float | None = None
    """The mean of both judges' scores, 1 to 5. None: it was not judged."""
    job_id: str = ""
    is_cut: bool = False
    """True if it ran out of budget."""
    is_unanswered: bool = False


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both answers, and the judge's preference."""

    first: ComparedAnswer
    second: ComparedAnswer
    better: Preference | None = None
    """The judge's preference in both orders. Neither: the two orders disagree, or it was a draw.
    None: it was not judged.
    """
    duels: tuple[PairwiseJudgement | None, ...] = ()
    """The judge's statements: first for the order (first, second), then for the other order."""
    judging_took: ResourceUse = field(default_factory=ResourceUse)
    judged_by: tuple[str, ...] = ()

    @property
    def advice(self) -> str:
        return advice_on(self.first, self.second, self.better)


def advice_on(first: ComparedAnswer, second: ComparedAnswer, better: Preference | None) -> str:
    """Return the answer to take, with the reason.

    A passing answer wins over a failing answer. Then the judge's preference in both orders decides,
    then the cost.
    """
    if first.is_cut or second.is_cut:
        who = " and ".join(side.name for side in (first, second) if side.is_cut)
        return f"Nothing can be said: {who} ran out of money."
    if bool(first.faults) != bool(second.faults):
        if first.faults:
            good, bad = (second, first)
        else:
            good, bad = (first, second)
        return f"Take {good.name}: its answer passes, and the answer of {bad.name} does not{_at(good, bad)}."
    if first.faults:
        return f"Take neither as it is: {first.name} does not pass ({first.faults[0].rstrip('.')}), nor does {second.name}."
    if better in (Preference.FIRST, Preference.SECOND):
        if better is Preference.FIRST:
            good, bad = (first, second)
        else:
            good, bad = (second, first)
        return f"Take {good.name}: its answer was found better in both orders{_at(good, bad)}."
    same = "both pass, and more was not judged"
    if better:
        same = "no difference was found that holds in both orders"
    measure, (of_first, of_second) = _prices(first, second)
    if of_first == of_second:
        return f"Take either: {same}, at the same price."
    if of_first < of_second:
        cheap, dear = (first, second)
    else:
        cheap, dear = (second, first)
    ratio = times(max(of_first, of_second), min(of_first, of_second))
    return f"Take {cheap.name}: {same}, and {dear.name} takes {ratio} the {measure}."


def _at(good: ComparedAnswer, bad: ComparedAnswer) -> str:
    """Return the resources that the better answer takes more or less."""
    measure, (of_good, of_bad) = _prices(good, bad)
    if of_good == of_bad:
        return ""
    if of_good > of_bad:
        return f", at {times(of_good, of_bad)} the {measure}"
    return f", and {bad.name} takes {times(of_bad, of_good)} the {measure}"


def _prices(first: ComparedAnswer, second: ComparedAnswer) -> tuple[str, tuple[float, float]]:
    """Return the costs in a unit that both have: money, or tokens if a price is unknown or zero."""
    if first.took.cost_usd and second.took.cost_usd:
        return "money", (first.took.cost_usd, second.took.cost_usd)
    return "tokens", (first.took.tokens, second.took.tokens)


@dataclass(slots=True)
class ComparisonRun:
    """Two jobs, and then the judge's two."""

    runner: JobRunner
    errands: Sequence[tuple[Variant, EvaluationJob]]
    """The two jobs."""
    request: str
    gates: Gates | None
    rubric: Rubric
    judging: AnswerJudge | None
    _results: dict[str, JobResult] = field(default_factory=dict)

    def run(self) -> Comparison:
        """Run both jobs and the judge.

        Raises:
            UserError: as `JobRunner.run`, or the budget did not suffice for both jobs.
            StoreUnavailable: as `JobRunner.run`.
        """
        self.runner.add(errand for _, errand in self.errands)
        self._collect()
        if self.runner.waiting:
            raise UserError("there was no money left for the second answer: raise --max-usd")
        one, other = (self._results[errand.key] for _, errand in self.errands)
        first, second = (self._side(variant, errand) for variant, errand in self.errands)
        if (
            self.judging is None
            or not (text_of(one) and text_of(other))
            or first.is_cut
            or second.is_cut
        ):
            return Comparison(first, second)
        keys = (f"{self.errands[0][1].key} judged", f"{self.errands[1][1].key} judged")
        orders = ((one, other), (other, one))
        self.runner.add(
            EvaluationJob(key, self.judging.duel(self.request, self.rubric, *pair))
            for key, pair in zip(keys, orders, strict=True)
        )
        self._collect()
        judged = [self._results[key] for key in keys if key in self._results]
        return _judged(first, second, judged, self.rubric)

    def _collect(self) -> None:
        self._results |= {errand.key: result for errand, result in self.runner.run()}

    def _side(self, variant: Variant, errand: EvaluationJob) -> ComparedAnswer:
        result = self._results[errand.key]
        faults = faults_of(result, self.gates)
        return ComparedAnswer(
            variant.name,
            result.status.value,
            faults,
            took_by(result),
            job_id=result.job_id,
            is_cut=is_cut(result),
            is_unanswered=not text_of(result),
        )


def _judged(
    first: ComparedAnswer, second: ComparedAnswer, judged: Sequence[JobResult], rubric: Rubric
) -> Comparison:
    """Return the comparison with its judgements.

    Args:
        judged: results of the judge, in this order, then in the swapped order. Fewer if the
            budget did not suffice.
    """
    duels = [duel_in(result, rubric) for result in judged]
    if len(duels) == 2:
        in_order, swapped = (duels[0], duels[1])
    else:
        in_order, swapped = (None, None)
    scores = [(duel.first, duel.second) for duel in (in_order,) if duel] + [
        (duel.second, duel.first) for duel in (swapped,) if duel
    ]
    return Comparison(
        first=replace(first, score=mean_of([score for mine, _ in scores for score in mine])),
        second=replace(second, score=mean_of([score for _, mine in scores for score in mine])),
        better=settle(in_order, swapped),
        duels=tuple(duels),
        judging_took=took_together(map(took_by, judged)),
        judged_by=tuple(result.job_id for result in judged),
    )
