"""The body of every `specialist.<name>` task: it runs the specialist with its tools, and wakes
the supervisor early if a result needs it.
"""

from __future__ import annotations

from collections.abc import Callable

from handoff_queue.shared.agent.answer_envelope import EnvelopeFormat
from handoff_queue.shared.agent.opening_message import LoadedPayloads
from handoff_queue.shared.agent.system_prompt import choose_form
from handoff_queue.shared.agent.tool import Tool
from handoff_queue.shared.broker.attempt_outcome import AttemptOutcome
from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.runtime.attempt import Attempts
from handoff_queue.shared.runtime.payload_cache import JobDocuments
from handoff_queue.shared.runtime.runner_factory import AgentSetup, ExternalModel
from handoff_queue.shared.settings.agent_sdk_cli import find_agent_sdk_fault
from handoff_queue.shared.specialists.tool_grants import grant_limits
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.handoff import AgentHandoff
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.model import Model
from handoff_queue.shared.types.specialist import RunnerKind, SpecialistSpec
from handoff_queue.workers.host_task_step import HostTaskRunner, HostTasks
from handoff_queue.workers.tools.registry import Registry
from handoff_queue.workers.tools.web_search import WEB_SEARCH, limit_search_to_hosts

log = get_log(__name__)


def run_handoff(
    attempts: Attempts,
    registry: Registry,
    wake: Callable[[JobId], None],
    own_spec: SpecialistSpec,
    handoff: AgentHandoff,
    text: str,
    host: HostTasks,
) -> AttemptOutcome:
    """Run one attempt at a handoff.

    Tools with effects that are not in `handoff.acts_with` are left out. So another specialist of
    the same capability gets no such tool that the planned specialist does not have.

    Args:
        attempts: the runner of attempts.
        registry: tools of this worker.
        wake: wakes the supervisor of a job.
        own_spec: the specialist's file in this process. The attempt gets no tool, model or limit
            beyond it.
        handoff: the handoff.
        text: the handoff as JSON, as it arrived.
        host: Celery app of the host, for a specialist that is a task of this app.
    """

    def make_setup(
        _handoff: AgentHandoff,
        spec: SpecialistSpec,
        loaded: LoadedPayloads,
        documents: JobDocuments,
    ) -> AgentSetup:
        answer_format = EnvelopeFormat(
            handoff.step_id,
            handoff.expected_output_format,
            documents.sources,
            loaded.collect_claims(),
            has_claims=spec.has_claims,
            are_compared=handoff.compared is not False,
            form=choose_form(handoff),
        )
        if spec.celery_task is not None:
            host.check(spec)
            now = attempts.store.connection.now
            runner = HostTaskRunner(
                host, handoff, spec, loaded, documents.tool_context, answer_format, now
            )
            return AgentSetup(answer_format, runner=runner)
        tools = _select_allowed_tools(handoff, spec, registry)
        return AgentSetup(answer_format, tools, external_model=_find_external_model(spec))

    limited = handoff.model_copy(update={"limits": grant_limits(handoff.limits, own_spec)})
    outcome = attempts.attempt(text, limited, make_setup, own_spec=own_spec)
    if outcome.wakes and outcome.parts_left > 0:
        try:
            wake(handoff.job_id)
        except Exception:  # the result is stored, and the sweeper will evaluate the job
            log.exception("cannot wake the supervisor")
    return outcome


def _select_allowed_tools(
    handoff: AgentHandoff, spec: SpecialistSpec, registry: Registry
) -> tuple[Tool, ...]:
    """Return the tools of a specialist for a handoff, without tools with effects that are not in
    `handoff.acts_with`.
    """
    may_act_with = handoff.acts_with
    tools: list[Tool] = []
    for tool in registry.get_tools(spec.tools):
        has_effect = not tool.repeatable
        if has_effect and may_act_with is not None and tool.name not in may_act_with:
            continue
        if tool.name == WEB_SEARCH and spec.hosts:
            tools.append(limit_search_to_hosts(tool, spec.hosts))
        else:
            tools.append(tool)
    return tuple(tools)


def _find_external_model(spec: SpecialistSpec) -> Callable[[Model], ExternalModel] | None:
    """Return the function that wraps the model for a specialist's runner, or None.

    Raises:
        UserError: this process cannot start it.
    """
    if spec.runner is not RunnerKind.AGENT_SDK:
        return None
    fault = find_agent_sdk_fault()
    if fault:
        raise UserError(fault)
    # Imported here, because the SDK is an extra and takes a second.
    from handoff_queue.workers.agent_sdk.model import AgentSdkModel

    return AgentSdkModel
