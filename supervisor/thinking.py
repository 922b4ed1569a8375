"""The supervisor's own model calls: a role's handoff, run where the decision was made, or on the think queue."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from shared.agent.envelope import EnvelopeReading
from shared.agent.prompt import ENVELOPE_RULES, Loaded
from shared.agent.reading import Reading
from shared.attempt import Attempts, Consequences, Ended, Fitting
from shared.library import JobLibrary
from shared.wire.handoff import AgentHandoff, HandoffResult
from shared.wire.specialist import SpecialistSpec
from supervisor.lifecycle.state import JobState
from supervisor.roles.assessment import VerdictReading
from supervisor.roles.needs import NeedsReading, steps_asked_in
from supervisor.roles.outcomes import outcome_of
from supervisor.roles.planner import PlanReading, specialists_offered_in


class Thinker:
    """Runs roles' handoffs in this process, at most `slots` at once in place of other work."""

    def __init__(self, attempts: Attempts, slots: int) -> None:
        self._attempts = attempts
        self._slots = threading.BoundedSemaphore(max(1, slots))

    @contextmanager
    def slot(self) -> Iterator[bool]:
        """Whether a role may run in place: half of a supervisor's slots stay free for decisions."""
        free = self._slots.acquire(blocking=False)
        try:
            yield free
        finally:
            if free:
                self._slots.release()

    def think(self, state: JobState, handoff: AgentHandoff, text: str) -> Ended:
        """Run the handoff; what follows from its result is in the journal with it."""
        role = handoff.assigned_to

        def fit(_handoff: AgentHandoff, _spec: SpecialistSpec, loaded: Loaded, books: JobLibrary) -> Fitting:
            if role == "synthesizer":
                reading = EnvelopeReading(handoff.step_id, handoff.expected_output_format, books.sources, loaded.known_claims())
                return Fitting(reading, answer_rules=ENVELOPE_RULES, streams_draft=True)
            return Fitting(_reading(role, state, handoff), answer_rules="")

        def conclude(_handoff: AgentHandoff, result: HandoffResult) -> Consequences:
            request = self._attempts.library.payloads(state.job_id, [state.submitted.request.digest])[state.submitted.request.digest]
            events, payloads = outcome_of(handoff, state, result, request)
            return Consequences(events, payloads)

        return self._attempts.attempt(text, handoff, fit, conclude)


def _reading(role: str, state: JobState, handoff: AgentHandoff) -> Reading:
    match role:
        case "planner" if state.plan is None:
            return PlanReading(specialists_offered_in(handoff.expected_output_format), state.submitted.limits.max_steps)
        case "planner":
            return NeedsReading(steps_asked_in(handoff.expected_output_format))
        case _:
            return VerdictReading(tuple(state.steps))
