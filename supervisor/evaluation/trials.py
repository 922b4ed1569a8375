"""Trials of a golden set in several modes and with several models: their jobs and outcomes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from handoff_queue.shared.documents.folder import FolderReading
from handoff_queue.shared.types.job_options import NOBODY_THERE, Mode
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.review import Score
from handoff_queue.supervisor.client.client import Request
from handoff_queue.supervisor.client.report import JobResult
from handoff_queue.supervisor.evaluation.answer_judge import AnswerJudge, mean_of, scores_in
from handoff_queue.supervisor.evaluation.figures import (
    ResourceUse,
    faults_of,
    is_cut,
    text_of,
    took_by,
)
from handoff_queue.supervisor.evaluation.golden_set import GoldenCase
from handoff_queue.supervisor.evaluation.job_runner import EvaluationJob, JobRunner
from handoff_queue.supervisor.workflows import Workflow


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to do requests: a mode and a model."""

    mode: Mode
    model: str | None = None
    """None: the model in the workers' settings."""

    @property
    def name(self) -> str:
        if self.model:
            return f"{self.mode} {self.model}"
        return self.mode.value

    def request(
        self,
        text: str,
        documents: FolderReading | None,
        limits: JobLimits,
        workflow: Workflow | None,
    ) -> Request:
        """Return the request of a trial, without questions to a person.

        Args:
            workflow: needed by mode `pipeline`.
        """
        steps = None
        if self.mode is Mode.PIPELINE:
            steps = workflow
        return Request(
            text,
            documents=documents,
            limits=limits,
            model=self.model,
            mode=self.mode,
            workflow=steps,
            approvals=NOBODY_THERE,
        )


@dataclass(frozen=True, slots=True)
class Trial:
    """A request that runs once in one variant."""

    case: GoldenCase
    variant: Variant
    number: int
    """Number of the trial of its case, from 1."""


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """Outcome of a trial."""

    trial: Trial
    job_id: str
    status: str
    faults: tuple[str, ...]
    """Reasons why it did not pass; empty: it passed."""
    took: ResourceUse
    is_cut: bool = False
    """True if it ran out of budget. It then counts as neither passed nor failed."""
    scores: tuple[Score, ...] = ()
    judged_by: str | None = None
    """The judge's job. None: there was none."""
    judging_took: ResourceUse = field(default_factory=ResourceUse)

    @property
    def passed(self) -> bool:
        return not self.faults

    @property
    def score(self) -> float | None:
        """Return the score; None if it was not judged, or the judge failed."""
        return mean_of(self.scores)


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """The cases, variants and number of trials of an evaluation."""

    name: str
    """Name of the run. The same name with the same set continues an earlier run."""
    cases: Sequence[GoldenCase]
    variants: Sequence[Variant]
    repeat: int = 1
    workflow: Workflow | None = None
    """Workflow of mode `pipeline`."""
    documents: Mapping[str, FolderReading] = field(default_factory=dict)
    """Documents of the cases, by `docs`. Each folder is read once for all its jobs."""
    limits: JobLimits = field(default_factory=JobLimits)
    judging: AnswerJudge | None = None
    """None: no judge."""

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Return the trials round by round, so that an interrupted evaluation has tried all
        variants equally often.
        """
        numbers = range(1, self.repeat + 1)
        trials: list[Trial] = []
        for number in numbers:
            for case in self.cases:
                for variant in self.variants:
                    trials.append(Trial(case, variant, number))
        return tuple(trials)

    @property
    def judgements(self) -> int:
        """Return the maximum number of judgements."""
        total = 0
        for trial in self.trials:
            total += self.is_judged(trial)
        return total

    def is_judged(self, trial: Trial) -> bool:
        return self.judging is not None and trial.case.rubric is not None

    def errand(self, trial: Trial) -> EvaluationJob:
        documents = None
        if trial.case.docs:
            documents = self.documents[trial.case.docs]
        return EvaluationJob(
            self._key(trial),
            trial.variant.request(trial.case.request, documents, self.limits, self.workflow),
        )

    def judge_errand(self, trial: Trial, result: JobResult) -> EvaluationJob:
        assert self.judging is not None
        assert trial.case.rubric is not None
        return EvaluationJob(
            f"{self._key(trial)} judged",
            self.judging.scoring(
                trial.case.request, trial.case.rubric, result, trial.case.reference
            ),
        )

    def _key(self, trial: Trial) -> str:
        return f"eval {self.name}: {trial.case.id}, {trial.variant.name}, {trial.number}"


@dataclass(slots=True)
class Evaluation:
    """A plan that is being carried out."""

    plan: EvaluationPlan
    runner: JobRunner
    _trials: dict[str, Trial] = field(default_factory=dict)
    _answered: dict[str, tuple[Trial, JobResult]] = field(default_factory=dict)
    """Judged trials by the key of the judge's job."""
    _cut_judges: int = 0

    def outcomes(self) -> Iterator[TrialOutcome]:
        """Yield each outcome when it is complete, including the judge's scores.

        Raises:
            UserError, StoreUnavailable: as `JobRunner.run`.
        """
        for trial in self.plan.trials:
            errand = self.plan.errand(trial)
            self._trials[errand.key] = trial
            self.runner.add([errand])
        for errand, result in self.runner.run():
            if errand.key in self._answered:
                trial, answered = self._answered.pop(errand.key)
                self._cut_judges += is_cut(result) and not self._scores(trial, result)
                yield _outcome(trial, answered, self._scores(trial, result), result)
                continue
            trial = self._trials[errand.key]
            if self.plan.is_judged(trial) and text_of(result) and not is_cut(result):
                judge = self.plan.judge_errand(trial, result)
                self._answered[judge.key] = (trial, result)
                self.runner.add_next(judge)
            else:
                yield _outcome(trial, result)
        yield from (
            _outcome(*answered) for answered in self._answered.values()
        )  # there was no money for their judge

    @property
    def not_run(self) -> tuple[Trial, ...]:
        """Return the trials that did not fit into the budget."""
        items: list[Trial] = []
        for errand in self.runner.waiting:
            if errand.key in self._trials:
                items.append(self._trials[errand.key])
        return tuple(items)

    @property
    def not_judged(self) -> int:
        """Answers that there was no money left to judge, or not enough."""
        return len(self._answered) + self._cut_judges

    def _scores(self, trial: Trial, judged: JobResult) -> tuple[Score, ...]:
        assert trial.case.rubric is not None
        return scores_in(judged, trial.case.rubric)


def _outcome(
    trial: Trial, result: JobResult, scores: tuple[Score, ...] = (), judged: JobResult | None = None
) -> TrialOutcome:
    return TrialOutcome(
        trial=trial,
        job_id=result.job_id,
        status=result.status.value,
        faults=faults_of(result, trial.case.gates),
        took=took_by(result),
        is_cut=is_cut(result),
        scores=scores,
        judged_by=judged.job_id if judged else None,
        judging_took=took_by(judged) if judged else ResourceUse(),
    )
