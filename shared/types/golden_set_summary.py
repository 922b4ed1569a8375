"""Summaries of ended evaluations, which `handoff eval` stores."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, NonNegativeInt, StringConstraints

from handoff_queue.shared.types.message import Message

MAX_NAME_CHARS = 200
MAX_VARIANTS = 100
ShortName = Annotated[str, StringConstraints(max_length=MAX_NAME_CHARS)]


class EvaluatedVariant(Message):
    """Figures of all trials of one mode with one model."""

    mode: ShortName
    model: ShortName | None
    """None: the models of the workers."""
    trials: NonNegativeInt
    """Trials that count."""
    passed: NonNegativeInt
    score: float | None
    """Mean of the judge's scores, 1 to 5. None: nothing was judged."""
    tokens: NonNegativeInt
    microusd: NonNegativeInt | None
    """None: a price is unknown."""

    @property
    def passing(self) -> float | None:
        """Return the share of passing trials. None: there is no trial."""
        if not self.trials:
            return None
        return self.passed / self.trials


class EvaluationRun(Message):
    """One ended evaluation."""

    run: ShortName
    golden: ShortName
    """Name of the file with the requests, without its folder."""
    ended_at: float
    """Unix time in seconds, by Redis's clock."""
    variants: Annotated[tuple[EvaluatedVariant, ...], Field(max_length=MAX_VARIANTS)]
    not_run: NonNegativeInt = 0
    """Jobs for which the budget had no room."""
    microusd: NonNegativeInt | None
    """Cost of all jobs and of the judge. None: a price is unknown."""
