"""`handoff doctor` reports the state of a model's server."""

from __future__ import annotations

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.supervisor.cli.doctor import model_access


def test_the_password_of_a_gateway_is_not_shown() -> None:
    url = "http://team:canary-90f3e1@127.0.0.1:1"

    level, finding, _ = model_access(
        Settings.model_validate({"offline": False, "ANTHROPIC_BASE_URL": url})
    )

    assert (level, finding.partition(" cannot")[0]) == ("fail", "http://127.0.0.1:1")


def test_a_provider_without_its_settings_fails() -> None:
    level, finding, _ = model_access(Settings.model_validate({"model_provider": "foundry"}))

    assert level == "fail"
    assert "HANDOFF_MODEL_PROVIDER=foundry" in finding
