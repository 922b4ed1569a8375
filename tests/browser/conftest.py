from __future__ import annotations

from collections.abc import Iterator

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.supervisor.client.async_client import AsyncClient
from handoff_queue.supervisor.client.client import Client, connect
from handoff_queue.supervisor.serve.application import make_application
from tests.browser.driver import Browser, browser
from tests.supervisor.serve.serving import serving


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def jobs(redis_url: str) -> Iterator[Client]:
    connected = connect(
        redis_url, Settings(offline=True, lease_s=3_600, serve_requests_per_minute=100_000)
    )
    yield connected
    connected.close()


@pytest.fixture
def url(window: Browser, jobs: Client) -> Iterator[str]:
    """The URL of a server without tokens."""
    with serving(make_application(AsyncClient(jobs), jobs.settings)) as served:
        yield served
        window.visit("about:blank")  # the page asks for news no more
        window.console_errors()
