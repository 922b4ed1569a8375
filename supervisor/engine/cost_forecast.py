"""Upper bounds of calls before they are made: the calls that bring a job to its end, and the
first call of a child job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil

from handoff_queue.shared.agent.opening_message import (
    MAX_PASTED_CHARS,
    MAX_SHOWN_BYTES,
    MIN_PASTED_CHARS,
    TOOL_RULES,
)
from handoff_queue.shared.agent.prices import HIDDEN_TOKENS, Prices
from handoff_queue.shared.agent.system_prompt import ENVELOPE_RULES
from handoff_queue.shared.runtime.models import Models
from handoff_queue.shared.types.budget_measures import MEASURES
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.errors import MissingCredentials
from handoff_queue.shared.types.model import ModelCall, SystemPrompt
from handoff_queue.shared.types.names import CLOSING_ROLES, Role
from handoff_queue.shared.types.review import DEFAULT_RUBRIC
from handoff_queue.shared.types.specialist import SpecialistSpec
from handoff_queue.supervisor.lifecycle.child_jobs import (
    describe_child_job_shortage,
    has_child_jobs,
)
from handoff_queue.supervisor.lifecycle.job_budget import (
    list_closing_roles,
    reserve_for_closing_roles,
)
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.lifecycle.user_messages import MAX_CHARS_IN_A_BRIEF
from handoff_queue.supervisor.roles.briefs import MAX_REQUEST_CHARS, read_role_once

FRAME_BYTES = 4_000
"""Bytes around the texts of a closing call: its job, its tags, the schema of its answer."""
UNWRITTEN_CHARS = 6_000
"""Assumed characters of a missing result: two pages and their claims. An existing result
counts with its own length.
"""
MESSAGE_HEAD_BYTES = 100
"""Assumed bytes of the recipients in front of a message of a user."""
ESCAPED = 1.25
"""Bytes in a request for each byte of a result. A request holds a result as JSON within JSON,
where each quote is escaped.
"""


class CostForecast:
    """Forecast of the highest cost of later model calls.

    A byte counts as a token, as in all budgets. Where only the characters of a text are known,
    a character counts as a byte.
    """

    def __init__(
        self, models: Models, prices: Prices, fact_checker: Callable[[JobState], SpecialistSpec]
    ) -> None:
        """Make a forecast.

        Args:
            fact_checker: returns the spec of a job's fact-checker.
        """
        self._models = models
        self._prices = prices
        self._fact_checker = fact_checker
        self._specs: dict[str, SpecialistSpec] = {}
        for role in (*CLOSING_ROLES, Role.JUDGE, Role.PLANNER):
            self._specs[role] = read_role_once(role)

    def build_fields(self, state: JobState) -> dict[str, str | int]:
        """Return fields of the job's hash: the reserve that steps may not use, and a text
        about the resources that its child jobs lack.

        The costs of closing calls are computed only for a job with a limit on tokens or money.
        """
        limits = state.submitted.limits
        closing_calls: Sequence[WorstCase] = ()
        for measure in MEASURES:
            if measure.get_limit(limits) and not measure.counts_calls:
                closing_calls = self.compute_foreseen_calls(state)
                break
        lacks = ""
        if has_child_jobs(state):
            lacks = describe_child_job_shortage(state, self.compute_first_child_job_call(state))
        return {"child_jobs_lack": lacks, **reserve_for_closing_roles(state, closing_calls)}

    def compute_foreseen_calls(self, state: JobState) -> Sequence[WorstCase]:
        """Return the upper bound of one call of each closing role and of the fact-checker."""
        roles = list_closing_roles(state)
        if not roles:
            return []
        input_tokens = _estimate_input_tokens(state)
        return [self._compute_worst_call(role, state, input_tokens) for role in roles]

    def compute_first_child_job_call(self, state: JobState) -> WorstCase:
        """Return the upper bound of the first call of a child job's planner, without the texts
        of its step. Every child job needs at least that.
        """
        return self._compute_worst_call(Role.PLANNER, state, HIDDEN_TOKENS)

    def _compute_worst_call(self, role: str, state: JobState, input_tokens: int) -> WorstCase:
        """Return the upper bound of a role's call, or of the fact-checker's.

        Args:
            input_tokens: tokens of input in addition to the instructions.
        """
        spec = self._specs.get(role) or self._fact_checker(state)
        try:
            model = self._models.choose_name(state.submitted.model, spec)
        except MissingCredentials:
            # This process makes no model calls. A process that makes them knows their cost.
            return WorstCase(0, 0, 0)
        call = ModelCall(model, SystemPrompt(""), (), spec.max_output_tokens)
        return self._prices.compute_worst_case(call, len(spec.instructions.encode()) + input_tokens)


def _estimate_input_tokens(state: JobState) -> int:
    """Return the most input tokens of a closing call, without the instructions.

    The rubric and the answer schema count twice: each is in the prompt and in the output
    schema.
    """
    submitted = state.submitted
    frame = HIDDEN_TOKENS + FRAME_BYTES + len(TOOL_RULES) + len(ENVELOPE_RULES)
    brief = min(submitted.request.size, MAX_REQUEST_CHARS)
    if state.plan:
        brief += state.plan.plan.size
    messages = sum(message.text.size + MESSAGE_HEAD_BYTES for message in state.messages)
    brief += min(messages, MAX_CHARS_IN_A_BRIEF)
    rubric = submitted.rubric or DEFAULT_RUBRIC
    schemas = 2 * len(rubric.to_json().encode())
    if submitted.answer_schema:
        schemas += 2 * submitted.answer_schema.size
    index = state.step_index
    results = index.result_bytes + UNWRITTEN_CHARS * index.steps_without_result
    limit = min(MAX_SHOWN_BYTES, max(MAX_PASTED_CHARS, MIN_PASTED_CHARS * len(state.steps)))
    return frame + brief + schemas + ceil(ESCAPED * min(results, limit))
