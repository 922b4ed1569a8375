"""A role does its work with the options of the settings."""

from __future__ import annotations

from handoff_queue.shared.runtime.models import Models
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.model import Effort, Thinking
from handoff_queue.supervisor.client.request import Request
from tests.doubles.agent_runs import answer_reply
from tests.doubles.scripted_model import ScriptedModel, replies_in_order
from tests.supervisor.shell import running_shell


def test_the_model_of_a_role_works_with_the_effort_and_thinking_of_the_settings(
    redis_url: str,
) -> None:
    model = ScriptedModel(replies_in_order(*[answer_reply("no plan")] * 3))
    with running_shell(redis_url, "researcher") as shell:
        options = {
            "role_effort": ("router=low", "planner=high"),
            "role_thinking": ("planner=disabled",),
        }
        settings = shell.attempts.settings.model_copy(update=options)
        shell.attempts.settings = settings
        shell.attempts.models = Models(settings, lambda _settings: model)
        shell.advance(shell.jobs.submit(Request("Compare Qdrant and Milvus", mode=Mode.TEAM)))

    assert {(call.effort, call.thinking) for call in model.calls} == {
        (Effort.HIGH, Thinking.DISABLED)
    }
