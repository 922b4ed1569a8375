"""The result of a tool shows no secret of the worker to the model."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.client.request import Request
from handoff_queue.testing import Json, Reply, answer_properties, json_reply, result_reply
from handoff_queue.testing import tool_call_reply as call
from tests.doubles.handoffs import a_tool
from tests.hostile.obedient_system import ObedientSystem, obedient_system
from tests.supervisor.shell import SETTINGS

pytestmark = pytest.mark.slow

SECRETS = {
    "ANTHROPIC_API_KEY": "sk-canary-0123456789",
    "ANTHROPIC_AUTH_TOKEN": "canary-of-a-token-77",
    "HANDOFF_WEBHOOK_SECRET": "canary-of-a-webhook-31",
    "HANDOFF_REDIS_URL": "redis://worker:canary%2Fof%2Fa%2Fbroker@127.0.0.1:6379/0",
    "HANDOFF_ON_END_BROKER_URL": "redis://:canary-of-a-host@127.0.0.1:6379/1",
}
PASSWORDS = ("canary/of/a/broker", "canary-of-a-host")


def obey(request: Json) -> Reply:
    """Answer as each agent. A specialist calls the tool first."""
    properties = answer_properties(request)
    if "route" in properties:
        return json_reply({"route": "single", "specialist": "generalist", "why": ""})
    if len(request["messages"]) == 1:
        return call(("environment", {"q": "all"}))
    return result_reply("Done.")


@pytest.fixture
def system(redis_url: str) -> Iterator[ObedientSystem]:
    with obedient_system(redis_url, obey) as running:
        yield running


def test_a_tool_that_returns_the_settings_of_its_worker_shows_no_secret_to_the_model(
    system: ObedientSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    shown = " ".join([*SECRETS.values(), *PASSWORDS, "redis://127.0.0.1:6379/0", "basic sentences"])
    tool = a_tool("environment", lambda _arguments: f"The environment: {shown}")
    system.offer(tool)
    system.use_settings(Settings(offline=True))

    job_id = system.shell.jobs.submit(Request("Look around.", mode=Mode.SINGLE))
    system.run(job_id)

    (result,) = system.tool_results()
    for secret in (*SECRETS.values(), *PASSWORDS):
        assert secret not in result
    assert "redis://127.0.0.1:6379/0" in result, "an address is not a secret"
    assert "basic sentences" in result, "only the values are removed"
    assert not any(secret in json.dumps(system.server.requests) for secret in PASSWORDS)


def test_the_results_of_tools_stay_as_they_are_without_secret_settings(
    system: ObedientSystem,
) -> None:
    text = "bearer of the 0123456789abcdef, https://ann:secret-word@example.com"
    tool = a_tool("environment", lambda _arguments: text)
    system.offer(tool)
    system.use_settings(SETTINGS)

    job_id = system.shell.jobs.submit(Request("Look around.", mode=Mode.SINGLE))
    system.run(job_id)

    assert system.tool_results() == [text]
