"""The pages for operators: their commands, services, figures and keys exist."""

from __future__ import annotations

import dataclasses
import inspect
import re
import shutil
import textwrap
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml

from handoff_queue.shared.agent.retry_policy import MAX_TRIES
from handoff_queue.shared.broker.celery_app import DEFAULT_THREADS
from handoff_queue.shared.local.child_process_restarts import Processes
from handoff_queue.shared.local.redis_server import OLDEST, PrivateRedis
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.specialists import load_specialists
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim_requests import MAX_CLAIMS, MAX_FAILED_EVALUATIONS
from handoff_queue.shared.store.fleet_load import RateLimitBucket
from handoff_queue.shared.store.job_evaluation_lease import FROZEN_AFTER_LEASES
from handoff_queue.shared.store.presence import ANNOUNCED_FOR_S
from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.shared.types.names import ROLES_QUEUE
from handoff_queue.supervisor.assembly import QUEUES
from handoff_queue.supervisor.cli.doctor import FULL
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.fleet_statistics import AgentStats, FleetStats
from handoff_queue.supervisor.client.request import Request
from handoff_queue.workers.specialists import BUILT_IN
from tests.docs.pages import ROOT, blocks, rows, sections, spans, text_of
from tests.waiting import wait_until

PAGE = text_of("operations")
COMPOSE_PAGE = text_of("how-to/compose")
GUIDES = [COMPOSE_PAGE, text_of("how-to/scale"), text_of("how-to/upgrade")]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
WORDS = {3: "three", 5: "five"}


def celery_commands() -> list[str]:
    texts = [PAGE, text_of("reference/configuration"), (ROOT / "README.md").read_text()]
    return [span for text in texts for span in spans(text) if span.startswith("celery ")]


def test_plain_celery_commands_name_apps_and_queues_that_exist() -> None:
    queues = {
        "handoff_queue.supervisor.app": {*QUEUES},
        "handoff_queue.workers.app": {*load_specialists(BUILT_IN), "ROLE"},
    }
    named = celery_commands()

    assert len(named) >= 5
    for command in named:
        app = re.search(r"-A (\S+)", command)
        assert app
        assert (ROOT / f"{app[1].replace('.', '/')}.py").exists()
        if taken := re.search(r"-Q (\S+)", command):
            assert set(taken[1].split(",")) <= queues[app[1]], command


def test_compose_commands_name_services_that_exist() -> None:
    texts = [*GUIDES, (ROOT / "README.md").read_text()]
    named = {service for text in texts for service in re.findall(r"--scale (\w+)=", text)}

    assert named
    assert named <= set(COMPOSE)


def test_an_override_changes_services_that_exist_or_adds_one_with_a_folder_of_its_own() -> None:
    for_development, with_own = (
        yaml.safe_load(textwrap.dedent(block))["services"] for block in blocks(COMPOSE_PAGE, "yaml")
    )

    assert set(for_development) <= set(COMPOSE)
    ((_, orders),) = with_own.items()
    assert orders["extends"]["service"] in COMPOSE
    own_keys = orders["volumes"][-1]
    assert own_keys["volume"] == {"subpath": "worker-orders"}
    (keys,) = [volume for volume in COMPOSE["researcher"]["volumes"] if volume["source"] == "keys"]
    assert {**keys, "volume": own_keys["volume"]} == own_keys


def test_the_figures_of_the_text_are_those_of_the_code() -> None:
    dies = sections(text_of("how-to/troubleshoot"))["What happens when something dies"]
    health = " ".join(sections(PAGE)["Check its health"].split())

    assert f"After {WORDS[MAX_CLAIMS]} claims" in dies
    assert f"After {WORDS[MAX_FAILED_EVALUATIONS]} evaluations in a row without an end" in dies
    assert f"renew for {WORDS[FROZEN_AFTER_LEASES]} leases" in dies
    assert f"Up to {WORDS[MAX_TRIES]} tries" in dies
    assert f"every {ANNOUNCED_FOR_S / 3:.0f} seconds" in health
    assert f"ends after {ANNOUNCED_FOR_S} seconds" in health
    assert f"above {100 * FULL:.0f} %" in sections(PAGE)["Redis"]
    assert f"Redis {'.'.join(map(str, OLDEST))} or newer" in sections(PAGE)["Redis"]
    assert f"{DEFAULT_THREADS} is a small number" in text_of("how-to/scale")
    sources = [path.read_text() for path in (ROOT / "supervisor").rglob("*.py")]
    for reason in re.findall(r"`([^`]+)` as the reason", dies):
        assert any(reason in source for source in sources)
    assert set(re.findall(r"stop_reason: (\w+)", dies)) <= {reason.value for reason in StopReason}


@pytest.mark.slow
def test_a_snapshot_of_redis_brings_the_jobs_back(redis_url: str, tmp_path: Path) -> None:
    """The steps of docs/how-to/back-up.md."""
    job_id = client.connect(redis_url, Settings(offline=True)).submit(Request("Hello?"))
    with redis.Redis.from_url(redis_url, decode_responses=True) as before:
        before.bgsave()
        wait_until(lambda: not before.info("persistence")["rdb_bgsave_in_progress"])
        snapshot = Path(before.config_get("dir")["dir"]) / "dump.rdb"
        (tmp_path / "redis").mkdir()
        shutil.copy(snapshot, tmp_path / "redis")

    with Processes(tmp_path) as children:
        restored = PrivateRedis(children, tmp_path, append_only=False)
        with redis.Redis.from_url(restored.start()) as after:
            after.config_set("appendonly", "yes")
            wait_until(lambda: is_append_only(after))
    with Processes(tmp_path) as children:
        url = PrivateRedis(children, tmp_path, earlier=restored.access).start()
        jobs = client.connect(url, Settings(offline=True))

        assert [job.job_id for job in jobs.newest()] == [job_id]


def is_append_only(server: Any) -> bool:
    facts = server.info("persistence")
    return bool(
        facts["aof_enabled"]
        and not facts["aof_rewrite_in_progress"]
        and not facts["aof_rewrite_scheduled"]
    )


PLACEHOLDERS = {
    "caller": "TOKEN",
    "user": "USER",
    "window": "MINUTE",
    "schedule_id": "SCHEDULE",
    "month": "MONTH",
    "name": "NAME",
    "run_name": "RUN",
    "job_id": "{JOB}",
    "handoff_id": "HANDOFF",
    "digest": "DIGEST",
    "worker_id": "PROCESS",
    "bucket_name": "BUCKET",
    "number": "DAY",
    "tenant": "TENANT",
    "agent": "AGENT",
    "WAITING": "QUEUE",
    "PAUSED_HANDOFFS": "AGENT",
    "OUT": "QUEUE",
    "FAIR": "QUEUE",
}


def names_of(key: Any) -> list[str]:
    """Return the results of a function of `keys`, with and without its optional arguments."""
    wanted = inspect.signature(key).parameters.values()
    whole, least = (
        list(wanted),
        [parameter for parameter in wanted if parameter.default is parameter.empty],
    )
    return [
        key(*(PLACEHOLDERS[parameter.name] for parameter in some)).replace("{{JOB}}", "{JOB}")
        for some in (whole, least)
    ]


def every_key() -> set[str]:
    """Return all keys of the store. A key of a job is only its end, such as `:log`."""
    constants = {
        name: value for name, value in vars(keys).items() if name.isupper() and name != "PREFIX"
    }
    named = {
        value + PLACEHOLDERS[name] if value.endswith(":") else value
        for name, value in constants.items()
    }
    functions = [
        value
        for value in vars(keys).values()
        if inspect.isfunction(value) and value.__module__ == keys.__name__
    ]
    named |= {
        name
        for function in functions
        for name in names_of(function)
        if name.startswith(keys.PREFIX)
    }
    return {re.sub(r"^handoff:\{JOB\}(?=:\w+$)", "", name) for name in named}


def test_every_key_of_the_store_is_listed_with_its_end() -> None:
    listed = " ".join(row[0] for row in rows(sections(PAGE)["Retention"]))

    assert {name for name in every_key() if f"`{name}`" not in listed} == set()
    assert {
        ":log",
        "handoff:bucket_line:BUCKET",
        "handoff:day:DAY:TENANT",
        "handoff:paused_handoffs:AGENT",
        "handoff:caps",
    } <= every_key()


def test_compose_waits_longer_than_a_process_drains() -> None:
    graces = {
        name: int(service["stop_grace_period"].removesuffix("s"))
        for name, service in COMPOSE.items()
        if name in {"supervisor", "researcher", "experts"}
    }

    assert set(graces.values()) == {45}
    assert min(graces.values()) > Settings().drain_s
    assert "Compose waits 45 seconds" in " ".join(text_of("how-to/upgrade").split())


def test_the_guide_for_scaling_names_fields_of_the_statistics() -> None:
    words = {span for span in spans(text_of("how-to/scale")) if re.fullmatch("[a-z_]+", span)}
    known = {ROLES_QUEUE}
    for kind in (FleetStats, AgentStats, RateLimitBucket):
        known |= {field.name for field in dataclasses.fields(kind)}

    assert words - known - {"read"} == set()  # `read` is the access level of a token
