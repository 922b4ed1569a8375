"""How much a job, and one handoff of it, may use; and the bounds of every number that a user
can give.

All numbers stay below 2**53: Lua, in which Redis keeps the books, counts in doubles.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from handoff_queue.shared.types.message import Message

MOST_DEPTH = 8
"""Levels of child jobs below the job of a user."""
MOST_COUNT = 10_000_000
"""Turns, handoffs or steps. The largest workflow has 100,000 steps and gets 10 turns for each."""
MOST_TOKENS = 1_000_000_000_000_000
MOST_OUTPUT_TOKENS = 10_000_000
"""Output tokens of one model call."""
MOST_USD = 1_000_000_000
MOST_MICROUSD = MOST_USD * 1_000_000
MOST_SECONDS = 365 * 86_400
"""The longest time that a user can ask for. `threading.Event.wait` takes at most 292 years."""
MOST_SLOTS = 10_000
"""Threads of one worker process."""

Count = Annotated[int, Field(ge=1, le=MOST_COUNT)]
Tokens = Annotated[int, Field(ge=1, le=MOST_TOKENS)]
OutputTokens = Annotated[int, Field(ge=1, le=MOST_OUTPUT_TOKENS)]
Microusd = Annotated[int, Field(ge=1, le=MOST_MICROUSD)]
"""Millionths of a US dollar: the unit of the books."""
Dollars = Annotated[float, Field(ge=0.000_001, le=MOST_USD, allow_inf_nan=False)]
"""An amount that the books can count."""
Seconds = Annotated[int, Field(ge=1, le=MOST_SECONDS)]
Rounds = Annotated[int, Field(ge=0, le=10)]
Depth = Annotated[int, Field(ge=0, le=MOST_DEPTH)]


class HandoffLimits(Message):
    """The local budget of one handoff. Hitting any of them ends it as `partial`."""

    max_turns: Count = 8
    """Model calls, repairs and retries included."""
    max_tokens: Tokens = 200_000
    """Input and output tokens over all turns."""
    max_output_tokens: OutputTokens = 8_192
    """Output tokens of one model call."""
    max_microusd: Microusd | None = None
    """Over all turns, calls that a kill cut off included. None: only the job's."""
    max_seconds: Seconds | None = None
    """From its first claim. None: until the deadline."""
    deadline: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Unix time in seconds, by Redis's clock."""


class OnLimit(StrEnum):
    """What becomes of a job whose budget, or whose day's, is spent."""

    STOP = "stop"
    """It ends at once with what it has; calls in the air are cut."""
    WRAP_UP = "wrap-up"
    """Nothing new is begun; what runs comes to its end, and enough was kept to review and
    write the answer.
    """
    ASK = "ask"
    """It waits for a decision, until its time is over."""


class JobLimits(Message):
    """The budget of a whole job, over all processes. None: no limit."""

    max_turns: Count | None = 200
    max_tokens: Tokens | None = None
    max_microusd: Microusd | None = None
    max_seconds: Seconds = 3_600
    """From submit to answer; then the job ends with what it has."""
    max_rounds: Rounds = 2
    """Times that the reviewer may send work back; and, counted apart, that the plan of an
    adaptive job may be changed.
    """
    max_handoffs: Count = 200
    max_steps: Count = 20
    """What a planner may ask for, and a replanner add to."""
    max_depth: Depth = 2
    """How far below a job there may be child jobs, with sub-supervisors of their own; 0: it
    has none.
    """
    on_limit: OnLimit = OnLimit.WRAP_UP
    """When turns, tokens or money are spent."""
    max_turns_per_handoff: Count | None = None
    """Caps every specialist's own max_turns (`--max-turns`)."""


class NewLimits(Message):
    """Of a job that has ended, or waits for a decision: of all of it, from its beginning.
    None: as it was.
    """

    max_turns: Count | None = None
    max_tokens: Tokens | None = None
    max_microusd: Microusd | None = None


def raise_limits(limits: JobLimits, by: NewLimits) -> JobLimits:
    new = {"max_turns": by.max_turns, "max_tokens": by.max_tokens, "max_microusd": by.max_microusd}
    return limits.model_copy(
        update={name: value for name, value in new.items() if value is not None}
    )
