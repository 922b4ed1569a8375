"""Fixtures of all tests: a private Redis for the test run, and an environment without a
developer's settings and API keys.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import structlog
from execnet import XSpec
from hypothesis import HealthCheck, settings

from handoff_queue.chaos.leaks import find_keys_without_expiry
from handoff_queue.shared.local.child_process_restarts import Processes
from handoff_queue.shared.local.redis_server import PrivateRedis
from handoff_queue.shared.local.run_directory import RunDirectory
from handoff_queue.shared.observability import failpoints
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.redis.client_factory import build_driver_info
from handoff_queue.shared.store.store import Store, open_store
from tests import forked_processes
from tests.fewer_messages import send_fewer_messages
from tests.forked_test_processes import fork_test_processes
from tests.property_settings import USUAL, leave_out_constants_of_modules

# The two suppressed checks measure the load of the machine. The suite's own timeout finds hangs.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "same for all", settings.get_profile("explore"), derandomize=True, max_examples=USUAL
)
settings.register_profile(
    "quick", settings.get_profile("same for all"), max_examples=USUAL // 10
)  # for `make check`
settings.load_profile(
    "same for all"
)  # The same cases on every machine. `make explore` draws twice as many new cases each time.

# A shell ignores Ctrl-C for its commands in the background, and their children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Structlog's default traceback shows the local variables of each frame, which takes half a second.
structlog.get_config()["processors"][-1] = structlog.dev.ConsoleRenderer(
    exception_formatter=structlog.dev.plain_traceback
)

_PREFIXES = ("HANDOFF_", "ANTHROPIC_", "CELERY_", "FLOWER_")
for _name in list(os.environ):
    if _name.startswith(_PREFIXES):
        del os.environ[_name]
os.environ["HANDOFF_MODE"] = "team"  # The mode of most tests. A test of another mode sets it.

# Each HTTP client loads all certificates of the system, which takes 40 ms. No test needs them,
# except those with the fixture `own_certificates`.
_CERTIFICATES = "SSL_CERT_FILE"
_OWN_CERTIFICATES = os.environ.get(_CERTIFICATES)
os.environ[_CERTIFICATES] = str(Path(__file__).with_name("one_authority.pem"))

_LONG_LEASES = Settings(
    lease_s=3_600
)  # Made once, because Settings reads many files and variables.


SLOW_FILE = re.compile(r"^pytestmark = .*\bmark\.slow\b", re.MULTILINE)
"""A file whose tests are all slow."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files whose tests the marker expression leaves out: their imports take seconds in
    each test process. `not browser` leaves out tests/browser, and `not compose` tests/compose.
    `not slow` leaves out the files whose tests are all slow, and `alone` those without this marker.
    """
    wanted = config.option.markexpr
    if collection_path.name in ("browser", "compose") and f"not {collection_path.name}" in wanted:
        return True
    if not collection_path.match("test_*.py"):
        return None
    if wanted == "alone":
        return "mark.alone" not in collection_path.read_text() or None
    if wanted.startswith("not slow"):
        return SLOW_FILE.search(collection_path.read_text()) is not None or None
    return None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: list[XSpec]) -> None:
    """Fork the test processes of xdist."""
    fork_test_processes(config, specs)


def pytest_sessionstart(session: pytest.Session) -> None:
    send_fewer_messages(session.config)
    if settings().derandomize:
        leave_out_constants_of_modules()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without garbage collection, and make it rare in the tests.

    The objects that collection makes stay until the end. No later garbage collection visits them.
    The usual collections would take a tenth of the processor time of the property tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 20, 50)
        gc.enable()


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete every variable that configures the product, Celery, Flower or the Anthropic SDK."""
    for name in list(os.environ):
        if name.startswith(_PREFIXES):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HANDOFF_MODE", "team")


@pytest.fixture(scope="module")
def own_certificates() -> Iterator[None]:
    """Restore the user's own certificates for the processes that a test file starts."""
    with pytest.MonkeyPatch.context() as changes:
        if _OWN_CERTIFICATES is None:
            changes.delenv(_CERTIFICATES)
        else:
            changes.setenv(_CERTIFICATES, _OWN_CERTIFICATES)
        yield


@pytest.fixture(scope="session")
def redis_server() -> Iterator[str]:
    """Yield the URL of a Redis that runs until the end of the test run."""
    with RunDirectory() as run, Processes(run.path) as processes:
        yield PrivateRedis(processes, run.path, append_only=False).start()


@pytest.fixture(scope="session")
def redis_client(redis_server: str) -> Iterator[redis.Redis]:
    """Yield a client that empties and checks the Redis of all tests."""
    with redis.Redis.from_url(redis_server, **build_driver_info()) as client:
        yield client


@pytest.fixture
def redis_url(redis_server: str, redis_client: redis.Redis) -> Iterator[str]:
    """Yield the URL of an empty Redis, and fail if the test leaves one of our keys without an
    expiry.
    """
    redis_client.flushall()
    yield redis_server
    assert find_keys_without_expiry(redis_client) == []


@pytest.fixture
def store(redis_url: str) -> Iterator[Store]:
    """Yield an empty store with leases of one hour, which no slow test outlives."""
    opened_store = open_store(redis_url, _LONG_LEASES)
    yield opened_store
    opened_store.connection.close()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Child processes that end with the test."""
    with Processes(tmp_path) as children:
        yield children


@pytest.fixture(scope="module")
def forked_children() -> Iterator[None]:
    """Fork the processes that the product starts in this test process. They are forks of the
    process that has imported everything.
    """
    with pytest.MonkeyPatch.context() as changes:
        changes.setattr(sys, "executable", forked_processes.python())
        yield


@pytest.fixture
def queues(redis_url: str) -> Iterator[Any]:
    """Yield a client of the test's Redis, for a look at its queues."""
    with redis.Redis.from_url(redis_url, **build_driver_info()) as client:
        yield client


@pytest.fixture
def armed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the folder whose files arm failpoints in this process."""
    monkeypatch.setenv(failpoints.FAILPOINTS, str(tmp_path))
    failpoints.get_folder.cache_clear()
    yield tmp_path
    failpoints.get_folder.cache_clear()
