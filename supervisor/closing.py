"""What the calls that bring a job to its end can cost: known before they are made, as far as it can be."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from shared.agent.model import ModelCall
from shared.agent.price import HIDDEN_TOKENS, Prices
from shared.agent.prompt import ENVELOPE_RULES, LEAST_PASTED_CHARS, MOST_PASTED_CHARS, STANDING_RULES
from shared.models import Models
from shared.wire.checkpoints import WorstCase
from shared.wire.errors import MissingCredentials
from shared.wire.names import CLOSING_ROLES
from supervisor.lifecycle.budget import closers
from supervisor.lifecycle.state import JobState
from supervisor.roles import read_role
from supervisor.roles.briefs import MAX_REQUEST_CHARS

FRAME_BYTES = 2_500
"""Of what stands around the texts of a closing call: its job, its tags, the schema of its answer."""
UNWRITTEN_CHARS = 6_000
"""Of a result that is not there yet: two pages and the claims below them. One that is there counts as it is."""
ESCAPED = 1.25
"""Bytes of a request for each character of a result: it is JSON within JSON there, full of quotes."""


class Closing:
    """Foresees them. Bytes count as tokens, as everywhere in the budgets; of texts whose characters are known, a character as a byte."""

    def __init__(self, models: Models, prices: Prices) -> None:
        self._models = models
        self._prices = prices
        self._specs = {role: read_role(role) for role in CLOSING_ROLES}

    def foreseen(self, state: JobState) -> Sequence[WorstCase]:
        """The most that each of the calls can use which are to come when all steps are done."""
        return [self._most(role, state) for role in closers(state)]

    def _most(self, role: str, state: JobState) -> WorstCase:
        spec = self._specs[role]
        try:
            model = self._models.name_of(state.submitted.model, spec)
        except MissingCredentials:  # then it makes no call in this process, and where it does, that one says what it costs
            return WorstCase(0, 0, 0)
        call = ModelCall(model, system="", messages=(), max_output_tokens=spec.max_output_tokens)
        return self._prices.worst(call, len(spec.instructions.encode()) + _read(state))


def _read(state: JobState) -> int:
    """Tokens of input beside the role's own instructions."""
    submitted, plan = state.submitted, state.plan
    frame = HIDDEN_TOKENS + FRAME_BYTES + len(STANDING_RULES) + len(ENVELOPE_RULES)
    asked = min(submitted.request.size, MAX_REQUEST_CHARS) + (plan.plan.size if plan else 0)
    schema = 2 * submitted.answer_schema.size if submitted.answer_schema else 0  # it is said, and it is enforced
    results = sum(step.result.size if step.result else UNWRITTEN_CHARS for step in state.steps.values())
    most = max(MOST_PASTED_CHARS, LEAST_PASTED_CHARS * len(state.steps))
    return frame + asked + schema + ceil(ESCAPED * min(results, most))
