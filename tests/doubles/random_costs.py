"""Random costs and durations of jobs, for tests of quotes.

The handoffs of one job have similar costs, and jobs differ. Some handoffs and rounds repeat.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from handoff_queue.shared.types.ids import StepId
from handoff_queue.supervisor.quoting.cost_simulation import (
    CostHistory,
    CostSample,
    QuoteScore,
    RemainingWork,
    compute_quote,
    compute_score,
)

NEWEST_SAMPLES, NEWEST_SCORES = 200, 100
"""Numbers of samples and scores that the store keeps."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether the cost and the duration of a job stayed within its quote."""

    cost_held: bool
    time_held: bool


@dataclass(slots=True)
class CostSimulation:
    """Simulated installation that quotes jobs from the history of earlier jobs."""

    dice: Random
    samples: dict[str, list[CostSample]] = field(default_factory=dict)
    scores: list[QuoteScore] = field(default_factory=list)

    def past(self, jobs: int) -> CostHistory:
        self.run(jobs)
        return self._past()

    def run(self, jobs: int) -> list[Outcome]:
        return [self._job() for _ in range(jobs)]

    def _past(self) -> CostHistory:
        return CostHistory(
            {name: list(samples) for name, samples in self.samples.items()}, list(self.scores)
        )

    def _job(self) -> Outcome:
        names = [StepId(f"s{n}") for n in range(self.dice.randint(1, 8))]
        steps = {
            name: (
                self.dice.choice(["researcher", "analyst"]),
                tuple(self.dice.sample(names[:n], self.dice.randint(0, min(n, 2)))),
            )
            for n, name in enumerate(names)
        }
        work = RemainingWork(steps, ("assessor",))
        quote = compute_quote(work, self._past(), 0, 0.0, str(self.dice.random()))
        cost, seconds = self._actual_cost(work)
        if (score := compute_score(quote, cost, seconds)) is not None:
            self.scores.insert(0, score)
            del self.scores[NEWEST_SCORES:]
        cost_most = quote.microusd.most if quote.microusd else 0.0
        time_most = quote.seconds.most if quote.seconds else 0.0
        return Outcome(cost <= cost_most, seconds <= time_most)

    def _actual_cost(self, work: RemainingWork) -> tuple[int, float]:
        """Return the cost in micro-dollars and the duration in seconds of a simulated job.

        A random size scales all handoffs of the job. Every fifth job has a second round.
        """
        size, ends, cost = self.dice.lognormvariate(0, 0.6), dict[StepId, float](), 0
        for name, (role, depends_on) in work.steps.items():
            for _ in range(2 if self.dice.random() < 0.15 else 1):
                sample = self._handoff(role, size)
                cost += sample.microusd or 0
                ends[name] = (
                    max((ends[dependency] for dependency in depends_on), default=0.0)
                    + sample.seconds
                )
        end = max(ends.values())
        for _ in range(2 if self.dice.random() < 0.2 else 1):
            sample = self._handoff("assessor", size)
            cost, end = cost + (sample.microusd or 0), end + sample.seconds
        return cost, end

    def _handoff(self, role: str, size: float) -> CostSample:
        base = {"researcher": 3_000, "analyst": 8_000, "assessor": 1_500}[role]
        sample = CostSample(
            round(base * size * self.dice.lognormvariate(0, 0.4)),
            base / 500 * size * self.dice.lognormvariate(0, 0.5),
        )
        newest = self.samples.setdefault(role, [])
        newest.insert(0, sample)
        del newest[NEWEST_SAMPLES:]
        return sample
