"""Limits of a job and of one handoff, and the bounds of each number that a user can set.

All numbers stay below 2**53, because Lua computes with doubles.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from handoff_queue.shared.types.message import Message, PublicMessage

MAX_DEPTH = 8
"""Most levels of child jobs below the job of a user."""
MAX_COUNT = 10_000_000
"""Most turns, handoffs or steps. The largest workflow has 100,000 steps and gets 10 turns for
each.
"""
MAX_TOKENS = 1_000_000_000_000_000
MAX_OUTPUT_TOKENS = 10_000_000
"""Most output tokens of one model call."""
MAX_USD = 1_000_000_000
MAX_MICROUSD = MAX_USD * 1_000_000
MAX_SECONDS = 365 * 86_400
"""Longest time that a user can set, in seconds."""
MAX_SLOTS = 10_000
"""Most threads of one worker process."""
MAX_TOOL_TIMEOUT_S = 3_600.0
"""Highest `timeout_s` of a user's tool, and of a server of tools."""
MAX_DOCUMENT_BYTES = 20_000_000
"""Bytes of the largest document, if no setting states another number."""
MAX_DOCUMENTS = 10_000
"""Most files of one job, if no setting states another number."""
MAX_MODEL_ERROR_CHARS = 300
"""Most characters of a server's message in the error of a model call, and of an announced error."""

Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Tokens = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
OutputTokens = Annotated[int, Field(ge=1, le=MAX_OUTPUT_TOKENS)]
Microusd = Annotated[int, Field(ge=1, le=MAX_MICROUSD)]
"""An amount in millionths of a US dollar, the unit of all budgets."""
Dollars = Annotated[float, Field(ge=0.000_001, le=MAX_USD, allow_inf_nan=False)]
"""An amount in US dollars of at least one micro-dollar."""
Seconds = Annotated[int, Field(ge=1, le=MAX_SECONDS)]
Rounds = Annotated[int, Field(ge=0, le=10)]
Depth = Annotated[int, Field(ge=0, le=MAX_DEPTH)]


class HandoffLimits(Message):
    """The local budget of one handoff. A handoff that reaches one of these limits ends as
    `partial`.
    """

    max_turns: Count = 8
    """Model calls, with repairs and retries."""
    max_tokens: Tokens = 200_000
    """Input and output tokens over all turns."""
    max_output_tokens: OutputTokens = 8_192
    """Output tokens of one model call."""
    max_microusd: Microusd | None = None
    """Money over all turns, including calls that were cut off. None: only the job's budget
    counts.
    """
    max_seconds: Seconds | None = None
    """Seconds from the first claim. None: until the deadline."""
    deadline: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Time at which the handoff must end, in Unix seconds by Redis's clock; None: no deadline."""


class OnLimit(StrEnum):
    """Action when the budget of the job or of the day is spent."""

    STOP = "stop"
    """The job ends at once with its results so far. Running calls are cut off."""
    WRAP_UP = "wrap-up"
    """No new step begins. Running steps end, and a reserve pays for the review and the answer."""
    ASK = "ask"
    """The job waits for a decision of its user until its time is over."""


class BudgetLimits(PublicMessage):
    """Limits of a job that its budget account checks before each model call. Each is the limit of
    a `Measure` (`budget_measures.py`). None: no limit.
    """

    max_turns: Count | None = None
    """Turns of the whole job: the model calls of all handoffs together."""
    max_tokens: Tokens | None = None
    """Input and output tokens of all handoffs together."""
    max_microusd: Microusd | None = None
    """Money, in millionths of a US dollar. The prices of all models must be known."""


class JobLimits(BudgetLimits):
    """The budget of a whole job, over all processes. None: no limit."""

    max_turns: Count | None = 200
    """Turns of the whole job: the model calls of all handoffs together."""
    max_seconds: Seconds = 3_600
    """Seconds from submission to answer. Then the job ends with its results so far."""
    max_rounds: Rounds = 2
    """Most rounds of review, and most changes of the plan of an adaptive job, counted
    separately.
    """
    max_handoffs: Count = 200
    """Most attempts at steps, including the handoffs of the supervisor's roles."""
    max_steps: Count = 20
    """Most steps of a plan, and most steps that a replanner adds."""
    max_depth: Depth = 2
    """Most levels of child jobs below the job. 0: no child jobs."""
    on_limit: OnLimit = OnLimit.WRAP_UP
    """Action when turns, tokens or money are spent."""
    max_turns_per_handoff: Count | None = None
    """Upper bound for the max_turns of every specialist (`--max-turns-per-handoff`)."""


class NewLimits(BudgetLimits):
    """New limits of a job that has ended or waits for a decision. They count from the
    submission. None: unchanged.
    """


def raise_limits(limits: JobLimits, by: NewLimits) -> JobLimits:
    """Return the limits of a job with the new limits that are not None."""
    changes: dict[str, int] = {}
    for name in NewLimits.model_fields:
        value = getattr(by, name)
        if value is not None:
            changes[name] = value
    return limits.model_copy(update=changes)
