"""Upper bounds of calls before they are made: the calls that bring a job to its end, and the first
call of a sub-team.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil

from handoff_queue.shared.agent.prices import HIDDEN_TOKENS, Prices
from handoff_queue.shared.agent.prompt import (
    ENVELOPE_RULES,
    LEAST_PASTED_CHARS,
    MOST_PASTED_CHARS,
    MOST_SHOWN_BYTES,
    STANDING_RULES,
)
from handoff_queue.shared.runtime.models import Models
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.errors import MissingCredentials
from handoff_queue.shared.types.model import ModelCall
from handoff_queue.shared.types.names import CLOSING_ROLES
from handoff_queue.shared.types.review import DEFAULT_RUBRIC
from handoff_queue.shared.types.specialist import SpecialistSpec
from handoff_queue.supervisor.lifecycle.budget import closers, reserved_budget
from handoff_queue.supervisor.lifecycle.disputes import JUDGE
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.lifecycle.teams import has_teams, lacking
from handoff_queue.supervisor.roles.briefs import MAX_REQUEST_CHARS
from handoff_queue.supervisor.roles.instructions import read_role

FRAME_BYTES = 4_000
"""Bytes around the texts of a closing call: its job, its tags, the schema of its answer."""
UNWRITTEN_CHARS = 6_000
"""Assumed characters of a missing result: two pages and their claims. An existing result counts
with its own length.
"""
ESCAPED = 1.25
"""Bytes of a request for each character of a result: it is JSON within JSON there, full of quotes.
"""


class CostForecast:
    """Foresees them. Bytes count as tokens, as everywhere in the budgets; of texts whose
    characters are known, a character as a byte.
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
        self._specs = {role: read_role(role) for role in (*CLOSING_ROLES, JUDGE, "planner")}

    def fields(self, state: JobState) -> dict[str, str | int]:
        """Return fields of the job's hash: the reserve that steps may not use, and the resource
        that its sub-teams lack. Costs of calls are computed only if a limit needs them.
        """
        limits = state.submitted.limits
        kept = reserved_budget(
            state, self.foreseen(state) if limits.max_tokens or limits.max_microusd else ()
        )
        lacks = ""
        if has_teams(state):
            lacks = lacking(state, self.first_of_a_team(state))
        return {"teams_lack": lacks, **kept}

    def foreseen(self, state: JobState) -> Sequence[WorstCase]:
        """Return the upper bound of each call after the end of all steps."""
        roles = closers(state)
        read = 0
        if roles:
            read = _read(state)
        worst_cases: list[WorstCase] = []
        for role in roles:
            worst_cases.append(self._most(role, state, read))
        return worst_cases

    def first_of_a_team(self, state: JobState) -> WorstCase:
        """Return the upper bound of the first call of a sub-team's planner, without the texts of
        its step. Every team needs at least that.
        """
        return self._most("planner", state, HIDDEN_TOKENS)

    def _most(self, role: str, state: JobState, read: int) -> WorstCase:
        """Return the upper bound of a role's call.

        Args:
            read: tokens of input in addition to the role's instructions.
        """
        spec = self._specs.get(role) or self._fact_checker(state)
        try:
            model = self._models.name_of(state.submitted.model, spec)
        except (
            MissingCredentials
        ):  # the role makes no call in this process; the process that makes one knows its cost
            return WorstCase(0, 0, 0)
        call = ModelCall(model, system="", messages=(), max_output_tokens=spec.max_output_tokens)
        return self._prices.worst(call, len(spec.instructions.encode()) + read)


def _read(state: JobState) -> int:
    """Return the tokens of input in addition to the role's instructions."""
    submitted, plan = state.submitted, state.plan
    frame = HIDDEN_TOKENS + FRAME_BYTES + len(STANDING_RULES) + len(ENVELOPE_RULES)
    asked = min(submitted.request.size, MAX_REQUEST_CHARS) + (plan.plan.size if plan else 0)
    rubric = 2 * len(
        (submitted.rubric or DEFAULT_RUBRIC).to_json().encode()
    )  # what its criteria mean is said, their names are enforced
    schema = (
        2 * submitted.answer_schema.size if submitted.answer_schema else 0
    )  # it is said, and it is enforced
    results = state.overview.written + UNWRITTEN_CHARS * state.overview.unwritten
    most = min(MOST_SHOWN_BYTES, max(MOST_PASTED_CHARS, LEAST_PASTED_CHARS * len(state.steps)))
    return frame + asked + rubric + schema + ceil(ESCAPED * min(results, most))
