"""A worker stops on request in every state, and announces itself while it serves."""

from __future__ import annotations

import gc
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import redis
from celery.worker import state as worker_state

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.providers.anthropic.client_factory import create_model
from handoff_queue.shared.runtime.process_resources import GENERATIONS, SWITCH_EVERY_S
from handoff_queue.shared.settings.optional_packages import PACKAGES
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.specialist import RunnerKind
from handoff_queue.workers.assembly import LazyWorker, Worker, make_workers_app
from handoff_queue.workers.index.index import DocumentIndex
from handoff_queue.workers.tools.registry import build_registry
from handoff_queue.workers.tools.sandbox import find_sandbox_fault
from tests.doubles.handoffs import a_spec
from tests.waiting import wait_until
from tests.workers.tools.servers import Page, serving


@pytest.fixture
def worker(redis_url: str, tmp_path: Path) -> Iterator[LazyWorker]:
    settings = Settings(lease_s=3_600, redis_url=redis_url, cache_dir=tmp_path)
    app = make_app("workers", redis_url, settings, ["researcher"])
    worker = LazyWorker(
        app,
        settings,
        {"researcher": a_spec()},
        build_registry(settings, DocumentIndex(tmp_path)),
        create_model,
    )
    thresholds = gc.get_threshold()
    yield worker
    gc.set_threshold(*thresholds)
    worker.handle_stop()
    if worker._built is not None:
        worker._built.process.leases.stop()


def consumer(worker: LazyWorker) -> SimpleNamespace:
    """Return a stand-in for Celery's consumer, with the attributes that a worker reads."""
    pool = SimpleNamespace(uses_semaphore=False)
    return SimpleNamespace(
        app=worker._app, call_soon=lambda _settle: None, pool=pool, hostname="worker@here"
    )


@pytest.mark.slow
def test_a_signal_during_the_build_of_the_worker_takes_effect_afterwards(
    worker: LazyWorker,
) -> None:
    """The signal handler runs on the thread that builds the worker and holds its lock."""

    def interrupted_while_building() -> None:
        with worker._lock:
            worker.handle_stop()

    building = threading.Thread(target=interrupted_while_building, daemon=True)
    building.start()
    building.join(10)

    assert not building.is_alive()
    assert worker().process.drain.has_begun


@pytest.mark.slow
def test_a_worker_sets_a_longer_switch_interval_of_threads(
    worker: LazyWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    intervals = list[float]()
    monkeypatch.setattr(sys, "setswitchinterval", intervals.append)

    worker()

    assert intervals == [SWITCH_EVERY_S]


@pytest.mark.slow
def test_a_worker_sets_higher_thresholds_of_the_garbage_collector(worker: LazyWorker) -> None:
    worker()

    assert gc.get_threshold() == GENERATIONS


def test_a_worker_withdraws_its_announcement(worker: LazyWorker, store: Store) -> None:
    worker.on_worker_ready(consumer(worker))
    wait_until(store.presence.read_announcements, expected="the announcement")

    worker.handle_stop()
    wait_until(lambda: not store.presence.read_announcements(), expected="the withdrawal")


@pytest.fixture
def without_sandbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PATH", "")
    find_sandbox_fault.cache_clear()
    yield
    find_sandbox_fault.cache_clear()


def worker_of(redis_url: str, folder: Path, *tools: str) -> LazyWorker:
    """Return a worker of a specialist with each of the tools."""
    settings = Settings(lease_s=3_600, redis_url=redis_url, cache_dir=folder)
    specs = {f"with-{tool}": a_spec(tool, name=f"with-{tool}") for tool in tools}
    app = make_app("workers", redis_url, settings, list(specs))
    registry = build_registry(settings, DocumentIndex(folder))
    return LazyWorker(app, settings, specs, registry, create_model)


@pytest.mark.usefixtures("without_sandbox")
def test_a_worker_without_a_sandbox_announces_the_specialists_that_it_cannot_serve(
    redis_url: str, store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    worker = worker_of(redis_url, tmp_path, "now", "run_code")

    worker.check()
    worker.on_worker_ready(consumer(worker))
    (announcement,) = wait_until(store.presence.read_announcements, expected="the announcement")
    worker.handle_stop()

    assert list(worker._app.amqp.queues.consume_from) == ["with-now"]
    assert [spec.name for spec in announcement.specialists] == ["with-now"]
    reason = "bubblewrap is not installed (apt-get install bubblewrap)"
    assert announcement.not_served == {"with-run_code": f"no sandbox: {reason}"}
    (line,) = [
        record.getMessage() for record in caplog.records if "no sandbox" in record.getMessage()
    ]
    assert reason in line
    assert worker._built is not None
    worker._built.process.leases.stop()


@pytest.mark.usefixtures("without_sandbox")
def test_a_worker_that_can_serve_no_specialist_does_not_start(
    redis_url: str, tmp_path: Path
) -> None:
    worker = worker_of(redis_url, tmp_path, "run_code")

    with pytest.raises(UserError, match="cannot serve with-run_code: no sandbox on this machine"):
        worker.check()


@pytest.mark.parametrize(
    ("models", "job_model", "is_served"),
    [
        (("small",), None, False),
        (("small", "large"), None, True),
        (("small",), "large", True),
        (("small", "large"), "small", False),
    ],
)
def test_a_worker_does_not_serve_a_specialist_whose_models_cannot_run_code(
    redis_url: str,
    tmp_path: Path,
    models: tuple[str, ...],
    job_model: str | None,
    *,
    is_served: bool,
) -> None:
    pages: dict[str, Page] = {}
    for name, can in (("small", False), ("large", True)):
        tools = {"server_tools": {"code_execution": {"supported": can}}}
        pages[f"/v1/models/{name}"] = Page(json.dumps({"capabilities": tools}).encode())
    worker = worker_of(redis_url, tmp_path, "now", "code_execution")
    coder = worker._specialists["with-code_execution"].model_copy(update={"models": models})
    worker._specialists = {**worker._specialists, coder.name: coder}
    with serving(pages) as server:
        url = f"http://127.0.0.1:{server.port}"
        changes = {"anthropic_base_url": url, "offline": False, "job_model": job_model}
        worker._settings = worker._settings.model_copy(update=changes)

        worker.check()

    fault = "small cannot run code; write `sandbox: local`, or name another model"
    not_served = {} if is_served else {coder.name: f"no code execution: {fault}"}
    assert worker._not_served == not_served


def test_a_worker_without_the_agent_sdk_does_not_serve_its_specialists(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PACKAGES, "agent-sdk", ("no_such_package",))
    worker = worker_of(redis_url, tmp_path, "now", "fetch_url")
    with_runner = worker._specialists["with-now"].model_copy(
        update={"runner": RunnerKind.AGENT_SDK}
    )
    worker._specialists = {**worker._specialists, "with-now": with_runner}

    worker.check()

    assert list(worker._app.amqp.queues.consume_from) == ["with-fetch_url"]
    needs = (
        "runner: agent-sdk needs the package no_such_package: install the extra agent-sdk of"
        " handoff-queue"
    )
    assert worker._not_served == {"with-now": f"no Claude Agent SDK: {needs}"}


@pytest.mark.slow
def test_a_worker_announces_its_lost_slots(
    worker: LazyWorker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("handoff_queue.workers.assembly.ANNOUNCED_FOR_S", 0.3)
    monkeypatch.setattr(worker_state, "active_requests", [SimpleNamespace(id="never-ends")])
    worker.on_worker_ready(consumer(worker))

    wait_until(
        lambda: [
            announcement
            for announcement in store.presence.read_announcements()
            if announcement.lost_slots == 1
        ],
        expected="the lost slot",
    )


@pytest.mark.slow
@pytest.mark.parametrize("error", [SystemExit(1), ValueError("x")])
def test_no_exception_ends_the_announcements(
    worker: LazyWorker, store: Store, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    errors, build = [error], LazyWorker.__call__

    def fail_once(self: LazyWorker) -> Worker:
        if errors:
            raise errors.pop()
        return build(self)

    monkeypatch.setattr(LazyWorker, "__call__", fail_once)
    worker.on_worker_ready(consumer(worker))

    wait_until(store.presence.read_announcements, expected="the announcement")


@pytest.mark.slow
def test_a_failed_announcement_is_repeated(
    worker: LazyWorker, store: Store, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("handoff_queue.workers.assembly.ANNOUNCED_FOR_S", 0.3)
    with redis.Redis.from_url(redis_url) as admin:
        admin.set(keys.SERVING, "no sorted set", ex=60)
        worker.on_worker_ready(consumer(worker))
        wait_until(
            lambda: admin.keys(f"{keys.PREFIX}worker:*"),
            expected="an announcement that failed after its first write",
        )
        admin.delete(keys.SERVING)
        wait_until(store.presence.read_announcements, expected="the announcement")


@pytest.mark.slow
def test_a_worker_does_not_start_with_shared_runs_that_have_effects(tmp_path: Path) -> None:
    tool = "from handoff_queue import tool\n\n\n@tool(repeatable=False)\n"
    tool += "def send_mail(to: str) -> str:\n    'Sends a mail.'\n    return to\n"
    (tmp_path / "send_mail.py").write_text(tool)
    spec = "---\nname: clerk\ndescription: Answers letters.\ntools: [send_mail]\nshare: true\n---\n"
    (tmp_path / "clerk.md").write_text(f"{spec}Answer the letter that you get.\n")
    settings = Settings(
        offline=True,
        cache_dir=tmp_path / "cache",
        specialists_dirs=(tmp_path,),
        tools_dirs=(tmp_path,),
    )

    with pytest.raises(UserError, match="clerk: share: its tool send_mail acts"):
        make_workers_app(settings)
