"""Trials of a golden set with several modes and models: their jobs and outcomes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from handoff_queue.shared.documents.folder import FolderReading
from handoff_queue.shared.types.job_options import APPROVE_AT_ONCE, Mode, Priority
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.review import Score
from handoff_queue.supervisor.client.job_result import JobResult
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.evaluation.answer_faults import find_faults, format_answer, is_cut
from handoff_queue.supervisor.evaluation.answer_grader import (
    AnswerGrader,
    compute_mean,
    parse_scores,
)
from handoff_queue.supervisor.evaluation.golden_set import GoldenCase
from handoff_queue.supervisor.evaluation.job_runner import EvaluationJob, JobRunner
from handoff_queue.supervisor.evaluation.resource_use import ResourceUse, get_usage
from handoff_queue.supervisor.workflows import Workflow


@dataclass(frozen=True, slots=True)
class Variant:
    """A mode and a model with which requests are done."""

    mode: Mode
    model: str | None = None
    """None: the model in the workers' settings."""

    @property
    def name(self) -> str:
        if self.model:
            return f"{self.mode} {self.model}"
        return self.mode.value

    def build_request(
        self,
        text: str,
        documents: FolderReading | None,
        limits: JobLimits,
        workflow: Workflow | None,
    ) -> Request:
        """Return the request of a trial, without questions to a person.

        Args:
            workflow: workflow of mode `pipeline`; other modes ignore it.
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
            approvals=APPROVE_AT_ONCE,
        )


@dataclass(frozen=True, slots=True)
class Trial:
    """A request that runs once in one variant."""

    case: GoldenCase
    variant: Variant
    number: int
    """Counts the trials of a case in a variant, from 1."""


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """Outcome of a trial."""

    trial: Trial
    job_id: str
    status: str
    faults: tuple[str, ...]
    """Reasons why it did not pass; empty: it passed."""
    usage: ResourceUse
    is_cut: bool = False
    """True if its job ran out of budget. The trial then counts as neither passed nor failed."""
    scores: tuple[Score, ...] = ()
    graded_by: str | None = None
    """Id of the grader's job. None: there was none."""
    grader_usage: ResourceUse = field(default_factory=ResourceUse)
    """Resources of the grader's job."""

    @property
    def passed(self) -> bool:
        return not self.faults

    @property
    def score(self) -> float | None:
        """Return the mean score; None if the answer was not graded, or the grader failed."""
        return compute_mean(self.scores)


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """The cases, variants and number of trials of an evaluation."""

    name: str
    """Name of the run. The same name with the same set continues an earlier run."""
    cases: Sequence[GoldenCase]
    variants: Sequence[Variant]
    repeat: int = 1
    """Trials of each case in each variant."""
    workflow: Workflow | None = None
    """Workflow of mode `pipeline`."""
    documents: Mapping[str, FolderReading] = field(default_factory=dict)
    """Documents of the cases, by `GoldenCase.docs`. Each folder is read once for all jobs."""
    limits: JobLimits = field(default_factory=JobLimits)
    grader: AnswerGrader | None = None
    """None: no grader."""
    priority: Priority | None = None
    """Priority of each job."""
    deadline_s: int | None = None
    """Deadline of each job, as in `Request`, also of the grader's jobs."""

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Return the trials round by round, so that an interrupted evaluation has tried all
        variants about equally often.
        """
        trials: list[Trial] = []
        for number in range(1, self.repeat + 1):
            for case in self.cases:
                for variant in self.variants:
                    trials.append(Trial(case, variant, number))
        return tuple(trials)

    @property
    def first_trials(self) -> tuple[Trial, ...]:
        """Return the trials of the first round: each case with each variant once."""
        return tuple(trial for trial in self.trials if trial.number == 1)

    @property
    def grades(self) -> int:
        """Return the number of trials whose answers a grader would score."""
        return sum(self.is_graded(trial) for trial in self.trials)

    def is_graded(self, trial: Trial) -> bool:
        """Return whether a grader scores the answer of a trial."""
        return self.grader is not None and trial.case.rubric is not None

    def build_job(self, trial: Trial) -> EvaluationJob:
        """Return the job of a trial."""
        case = trial.case
        documents = None
        if case.docs:
            documents = self.documents[case.docs]
        request = trial.variant.build_request(case.request, documents, self.limits, self.workflow)
        return self._build_job(self._build_key(trial), request)

    def build_grader_job(self, trial: Trial, result: JobResult) -> EvaluationJob:
        """Return the grader's job that scores the answer of a trial."""
        case = trial.case
        assert self.grader is not None
        assert case.rubric is not None
        request = self.grader.build_scoring_request(
            case.request, case.rubric, result, case.reference
        )
        return self._build_job(f"{self._build_key(trial)} graded", request)

    def _build_job(self, key: str, request: Request) -> EvaluationJob:
        request = replace(request, priority=self.priority, deadline_s=self.deadline_s)
        return EvaluationJob(key, request)

    def _build_key(self, trial: Trial) -> str:
        return f"eval {self.name}: {trial.case.id}, {trial.variant.name}, {trial.number}"


@dataclass(slots=True)
class Evaluation:
    """The run of an `EvaluationPlan`."""

    plan: EvaluationPlan
    runner: JobRunner
    _trials: dict[str, Trial] = field(default_factory=dict)
    """Trials by the key of their job."""
    _ungraded: dict[str, tuple[Trial, JobResult]] = field(default_factory=dict)
    """Trials with an answer that waits for its grader, by the key of the grader's job."""
    _cut_graders: int = 0
    """Grader's jobs that ran out of budget without scores."""

    def iterate_outcomes(self) -> Iterator[TrialOutcome]:
        """Yield each outcome when it is complete, including the grader's scores.

        Raises:
            UserError: as `JobRunner.run`.
            StoreUnavailable: as `JobRunner.run`.
        """
        for trial in self.plan.trials:
            job = self.plan.build_job(trial)
            self._trials[job.key] = trial
            self.runner.add([job])
        for job, result in self.runner.run():
            if job.key in self._ungraded:
                yield self._build_graded_outcome(job.key, result)
                continue
            trial = self._trials[job.key]
            if self.plan.is_graded(trial) and format_answer(result) and not is_cut(result):
                grader_job = self.plan.build_grader_job(trial, result)
                self._ungraded[grader_job.key] = (trial, result)
                self.runner.add_next(grader_job)
            else:
                yield _build_outcome(trial, result)
        # The budget did not suffice for the grader of these answers.
        for trial, answer_result in self._ungraded.values():
            yield _build_outcome(trial, answer_result)

    @property
    def not_run(self) -> tuple[Trial, ...]:
        """Return the trials that did not fit into the budget."""
        trials: list[Trial] = []
        for job in self.runner.waiting:
            if job.key in self._trials:
                trials.append(self._trials[job.key])
        return tuple(trials)

    @property
    def not_graded(self) -> int:
        """Return the number of answers for whose grader the budget did not suffice."""
        return len(self._ungraded) + self._cut_graders

    def _build_graded_outcome(self, grader_key: str, grader_result: JobResult) -> TrialOutcome:
        """Return the outcome of a trial whose grader has ended."""
        trial, answer_result = self._ungraded.pop(grader_key)
        assert trial.case.rubric is not None
        scores = parse_scores(grader_result, trial.case.rubric)
        if is_cut(grader_result) and not scores:
            self._cut_graders += 1
        return _build_outcome(trial, answer_result, scores, grader_result)


def _build_outcome(
    trial: Trial,
    result: JobResult,
    scores: tuple[Score, ...] = (),
    grader_result: JobResult | None = None,
) -> TrialOutcome:
    """Return the outcome of a trial.

    Args:
        grader_result: result of the grader's job; None: there was none.
    """
    graded_by = None
    grader_usage = ResourceUse()
    if grader_result:
        graded_by = grader_result.job_id
        grader_usage = get_usage(grader_result)
    return TrialOutcome(
        trial=trial,
        job_id=result.job_id,
        status=result.status.value,
        faults=find_faults(result, trial.case.gates),
        usage=get_usage(result),
        is_cut=is_cut(result),
        scores=scores,
        graded_by=graded_by,
        grader_usage=grader_usage,
    )
