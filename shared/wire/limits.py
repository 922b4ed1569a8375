"""How much a job, and one handoff of it, may use."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field, PositiveInt

from shared.wire.message import Message

MOST_DEPTH = 8
"""Of child jobs below a user's."""


class HandoffLimits(Message):
    """The local budget of one handoff. Hitting any of them ends it as `partial`."""

    max_turns: PositiveInt = 8
    """Model calls, repairs and retries included."""
    max_tokens: PositiveInt = 200_000
    """Input and output tokens over all turns."""
    max_output_tokens: PositiveInt = 8_192
    """Output tokens of one model call."""
    max_microusd: PositiveInt | None = None
    """Over all turns, calls that a kill cut off included. None: only the job's."""
    max_seconds: PositiveInt | None = None
    """From its first claim. None: until the deadline."""
    deadline: float | None = None
    """Unix time in seconds, by Redis's clock."""


class OnLimit(StrEnum):
    """What becomes of a job whose budget, or whose day's, is spent."""

    STOP = "stop"
    """It ends at once with what it has; calls in the air are cut."""
    WRAP_UP = "wrap-up"
    """Nothing new is begun; what runs comes to its end, and enough was kept to review and write the answer."""
    ASK = "ask"
    """It waits for a decision, until its time is over."""


class JobLimits(Message):
    """The budget of a whole job, over all processes. None: no limit."""

    max_turns: PositiveInt | None = 200
    max_tokens: PositiveInt | None = None
    max_microusd: PositiveInt | None = None
    max_seconds: PositiveInt = 3_600
    """From submit to answer; then the job ends with what it has."""
    max_rounds: int = Field(default=2, ge=0, le=10)
    """Times that the reviewer may send work back; and, counted apart, that the plan of an adaptive job may be changed."""
    max_handoffs: PositiveInt = 200
    max_steps: PositiveInt = 20
    """What a planner may ask for, and a replanner add to."""
    max_depth: int = Field(default=2, ge=0, le=MOST_DEPTH)
    """How far below a job there may be child jobs, with sub-supervisors of their own; 0: it has none."""
    on_limit: OnLimit = OnLimit.WRAP_UP
    """When turns, tokens or money are spent."""
    max_turns_per_handoff: PositiveInt | None = None
    """Caps every specialist's own max_turns (`--max-turns`)."""


class NewLimits(Message):
    """Of a job that has ended, or waits for a decision: of all of it, from its beginning. None: as it was."""

    max_turns: PositiveInt | None = None
    max_tokens: PositiveInt | None = None
    max_microusd: PositiveInt | None = None


def raised(limits: JobLimits, by: NewLimits) -> JobLimits:
    new = {"max_turns": by.max_turns, "max_tokens": by.max_tokens, "max_microusd": by.max_microusd}
    return limits.model_copy(
        update={name: value for name, value in new.items() if value is not None}
    )
