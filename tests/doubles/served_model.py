"""The product's `Model`, with the settings for a server on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from handoff_queue.shared.providers.anthropic.client_factory import create_model
from handoff_queue.shared.providers.anthropic.model import AnthropicModel
from handoff_queue.shared.settings.settings import Settings

_SETTINGS = Settings.model_validate(
    {
        "offline": False,
        "ANTHROPIC_BASE_URL": "http://127.0.0.1",
        "ANTHROPIC_API_KEY": "sk-canary-0123456789",
    }
)


@contextmanager
def model_at(url: str) -> Iterator[AnthropicModel]:
    """Yield the model that a worker would build from its settings."""
    model = create_model(_SETTINGS.model_copy(update={"anthropic_base_url": url}))
    assert isinstance(model, AnthropicModel)
    with closing(model):
        yield model
