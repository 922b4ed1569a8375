"""The body of every `specialist.<role>` task: run the specialist with its tools, and say at
once what cannot wait.
"""

from __future__ import annotations

from collections.abc import Callable

from handoff_queue.shared.agent.envelope import EnvelopeFormat
from handoff_queue.shared.agent.prompt import LoadedPayloads
from handoff_queue.shared.broker.attempt_outcome import AttemptOutcome
from handoff_queue.shared.observability.logs import log_of
from handoff_queue.shared.runtime.agent_setup import AgentSetup
from handoff_queue.shared.runtime.attempt import Attempts
from handoff_queue.shared.runtime.payload_cache import JobDocuments
from handoff_queue.shared.specialists.tool_grants import grant_limits
from handoff_queue.shared.types.handoff import AgentHandoff
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.specialist import SpecialistSpec
from handoff_queue.workers.host_task_step import HostTaskRunner, HostTasks
from handoff_queue.workers.tools.registry import Registry

log = log_of(__name__)


def run_handoff(
    attempts: Attempts,
    registry: Registry,
    wake: Callable[[JobId], None],
    own: SpecialistSpec,
    handoff: AgentHandoff,
    text: str,
    host: HostTasks,
) -> AttemptOutcome:
    """Run one attempt, with no tool, model or limit beyond `own`, the specialist's file in
    this process.

    A stand-in gets no tool with effects that the planned specialist does not have (`acts_with`).
    """

    def fit(
        _handoff: AgentHandoff, spec: SpecialistSpec, loaded: LoadedPayloads, books: JobDocuments
    ) -> AgentSetup:
        reading = EnvelopeFormat(
            handoff.step_id, handoff.expected_output_format, books.sources, loaded.known_claims()
        )
        if spec.celery_task is not None:
            host.check(spec)
            now = attempts.store.connection.now
            step = HostTaskRunner(host, handoff, spec, loaded, books.tool_context, reading, now)
            return AgentSetup(reading, runner=step)
        allowed = handoff.acts_with
        tools = tuple(
            tool
            for tool in registry.tools_for(spec.tools)
            if tool.repeatable or allowed is None or tool.name in allowed
        )
        return AgentSetup(reading, tools)

    within = handoff.model_copy(update={"limits": grant_limits(handoff.limits, own)})
    ended = attempts.attempt(text, within, fit, own=own)
    if ended.wakes and ended.parts_left > 0:
        try:
            wake(handoff.job_id)
        except Exception:  # the result stands in the store, and so does that the sweeper must look: this part is done
            log.exception("supervisor not woken")
    return ended
