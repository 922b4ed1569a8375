from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

import anthropic
from handoff_queue.shared.providers.anthropic.client_factory import create_model
from handoff_queue.shared.providers.anthropic.model import AnthropicModel
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.errors import MissingCredentials, UserError
from handoff_queue.shared.types.model import ModelCall, SystemPrompt
from handoff_queue.testing import MessagesServer, text_reply
from tests.doubles.raw_server import REPLY, Conversation, RawServer
from tests.doubles.served_model import model_at

NAMES = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_PROFILE",
    "AWS_REGION",
    "CLOUD_ML_REGION",
)
CALL = ModelCall(
    model="m",
    system=SystemPrompt("s"),
    messages=({"role": "user", "content": "x"},),
    max_output_tokens=10,
)


@pytest.fixture(autouse=True)
def _nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(tmp_path))


def ask(monkeypatch: pytest.MonkeyPatch, log_in: str = "", **environment: str) -> dict[str, str]:
    """Return the headers that a server at ANTHROPIC_BASE_URL gets.

    `log_in` is the `user:password@` of that URL.
    """
    with MessagesServer(lambda _request: text_reply("x")) as server:
        for name, value in {
            "ANTHROPIC_BASE_URL": server.url.replace("://", f"://{log_in}"),
            **environment,
        }.items():
            monkeypatch.setenv(name, value)
        model = create_model(Settings())
        assert isinstance(model, AnthropicModel)
        model.reply(CALL, lambda _progress: None)
        model.close()
        return server.headers[0]


def test_a_base_url_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no-key-needed" in str(ask(monkeypatch))


def test_a_key_is_sent_to_the_base_url(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "sk-of-mine" in str(ask(monkeypatch, ANTHROPIC_API_KEY="sk-of-mine"))


def test_a_token_is_sent_to_the_base_url(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        ask(monkeypatch, ANTHROPIC_AUTH_TOKEN="token-of-mine")["authorization"]
        == "Bearer token-of-mine"
    )


def test_a_user_and_password_in_the_base_url_are_sent_with_the_api_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = ask(monkeypatch, "team:p%40ss@", ANTHROPIC_API_KEY="sk-of-mine")

    assert sent["authorization"] == f"Basic {b64encode(b'team:p@ss').decode()}"
    assert sent["x-api-key"] == "sk-of-mine"


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def talk(conversation: Conversation) -> None:
        requests.append(conversation.request())
        conversation.say(REPLY)

    requests: list[bytes] = []
    with RawServer(talk) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        with model_at("http://gateway.invalid") as model:
            assert model.reply(CALL, lambda _progress: None).stop_reason == "end_turn"
    assert requests[0].startswith(b"POST http://gateway.invalid/v1/messages HTTP/1.1")


@pytest.mark.parametrize("environment", [{}, {"ANTHROPIC_BASE_URL": ""}])
def test_an_empty_base_url_counts_as_unset(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    """The compose file sets every variable in its containers. Most of the values are empty."""
    for name, value in {"ANTHROPIC_API_KEY": "sk-of-mine", **environment}.items():
        monkeypatch.setenv(name, value)

    model = create_model(Settings())

    assert isinstance(model, AnthropicModel)
    assert isinstance(model._client, anthropic.AsyncAnthropic)
    assert str(model._client.base_url) == "https://api.anthropic.com"
    model.close()


def test_a_real_model_without_a_key_names_the_setting() -> None:
    with pytest.raises(MissingCredentials, match="ANTHROPIC_API_KEY"):
        create_model(Settings(offline=False))


def test_without_settings_the_offline_model_is_used() -> None:
    model = create_model(Settings())
    assert isinstance(model, AnthropicModel)
    assert model.reply(CALL, lambda _progress: None).content
    model.close()


@pytest.mark.parametrize("provider", ["bedrock", "vertex", "foundry"])
def test_a_provider_that_lacks_packages_or_settings_says_so_in_one_line(provider: str) -> None:
    with pytest.raises(UserError) as caught:
        create_model(Settings.model_validate({"model_provider": provider}))
    assert f"HANDOFF_MODEL_PROVIDER={provider}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_providers_resource_that_makes_no_address_is_named_and_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_FOUNDRY_API_KEY", "key")
    for resource in ("my resource", "canary\n", "canary/../x?y"):
        monkeypatch.setenv("ANTHROPIC_FOUNDRY_RESOURCE", resource)

        with pytest.raises(UserError, match="correct ANTHROPIC_FOUNDRY_RESOURCE") as caught:
            create_model(Settings.model_validate({"model_provider": "foundry"}))

        assert "canary" not in str(caught.value)
