from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from handoff_queue.shared.providers.anthropic.model import AnthropicModel
from handoff_queue.testing import MessagesServer, Script
from tests.doubles.served_model import model_at


@pytest.fixture
def serve() -> Iterator[Callable[[Script], tuple[AnthropicModel, MessagesServer]]]:
    """Yield a function that starts a server with a script, and returns a model connected to it."""
    with ExitStack() as stack:

        def start(script: Script) -> tuple[AnthropicModel, MessagesServer]:
            server = stack.enter_context(MessagesServer(script))
            return stack.enter_context(model_at(server.url)), server

        yield start
