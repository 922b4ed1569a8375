"""`handoff serve` as a process, on a real supervisor and workers with the offline model."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
import redis

from handoff_queue.shared.settings.ports import find_free_port
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.store import open_store
from handoff_queue.shared.types.api_tokens import AccessLevel
from tests.e2e.commands import BAD_INPUT, DOCUMENTS, NO_REDIS, REQUEST, Handoff, error_line
from tests.running_system import RunningSystem
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

WAIT_S = 60


@contextmanager
def served(
    handoff: Handoff, redis_url: str, *arguments: str, **environment: str
) -> Iterator[tuple[Any, str]]:
    """Start the server, and yield its process and its URL."""
    port = find_free_port()
    command = ("serve", "--port", str(port), *arguments)
    variables = {"HANDOFF_REDIS_URL": redis_url, "HANDOFF_OFFLINE": "true", **environment}
    with handoff.started(*command, **variables) as process:
        handoff.wait_for_text(f":{port}/v1/reference")
        yield process, f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def http(
    system: RunningSystem, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx2.Client]:
    """Yield a client of a server that several tests share."""
    handoff = Handoff(tmp_path_factory.mktemp("serve"))
    with (
        served(handoff, system.url_of("console")) as (_, url),
        httpx2.Client(base_url=url, timeout=2 * WAIT_S) as client,
    ):
        yield client


def submitted(http: httpx2.Client, **fields: Any) -> str:
    answer = http.post("/v1/jobs", json={"text": REQUEST, **fields})
    assert answer.status_code == 202, answer.text
    job_id: str = answer.json()["job_id"]
    return job_id


def result_of(http: httpx2.Client, job_id: str) -> dict[str, Any]:
    result: dict[str, Any] = http.get(f"/v1/jobs/{job_id}/result", params={"wait_s": WAIT_S}).json()
    return result


def result_of_waiting(http: httpx2.Client, job_id: str) -> dict[str, Any]:
    result: dict[str, Any] = http.get(f"/v1/jobs/{job_id}/result").json()
    return result


def wait_for_status(http: httpx2.Client, job_id: str, status: str) -> None:
    wait_until(
        lambda: http.get(f"/v1/jobs/{job_id}").json()["status"] == status,
        timeout_s=WAIT_S,
        expected=f"status {status}",
    )


def test_a_job_with_documents_is_followed_across_a_reconnection_to_its_answer(
    http: httpx2.Client,
) -> None:
    files = [
        ("documents", (f"notes/{file.name}", file.read_bytes()))
        for file in sorted(DOCUMENTS.glob("*.md"))
    ]
    answer = http.post("/v1/jobs", data={"request": json.dumps({"text": REQUEST})}, files=files)
    path = answer.headers["location"]
    ids: list[int] = []
    with http.stream("GET", f"{path}/events") as stream:
        for line in stream.iter_lines():
            if line.startswith("id: "):
                ids.append(int(line[4:]))
            if len(ids) == 3:
                break
    rest = http.get(f"{path}/events", headers={"Last-Event-ID": str(ids[-1])})
    ids += [int(line[4:]) for line in rest.text.splitlines() if line.startswith("id: ")]
    result = result_of(http, answer.json()["job_id"])
    streamed = http.get(f"{path}/answer").text
    exported = http.get(f"{path}/export", params={"texts": True}).json()

    assert ids == list(range(1, len(exported["journal"]) + 1))
    assert result["status"] == "ok"
    assert result["citations"][0]["source"].startswith("notes/")
    assert json.loads(streamed.rpartition("data: ")[2])["answer"] == result["answer"]
    assert len(exported["texts"]) == len(files)
    handoff_id = result["handoffs"][-1]["handoff_id"]
    assert http.get(f"{path}/handoffs/{handoff_id}").json()["result"]["status"] == "ok"
    assert http.get(f"{path}/plan").json()["plan"] == result["plan"]


def test_a_person_approves_a_plan_over_http(http: httpx2.Client) -> None:
    job_id = submitted(http, approvals={"what": ["plan"]}, documents={"a.md": "Qdrant is fast."})
    wait_for_status(http, job_id, "waiting")
    (asked,) = result_of_waiting(http, job_id)["approvals"]
    answer = {"note": "Go on.", "question": asked["version"]}
    other = http.post(f"/v1/jobs/{job_id}/approve", json={**answer, "question": 1})
    approved = http.post(f"/v1/jobs/{job_id}/approve", json=answer)
    again = http.post(f"/v1/jobs/{job_id}/approve")

    assert (other.status_code, approved.status_code, again.status_code) == (400, 202, 400)
    assert "does not ask question 1:" in other.json()["detail"]
    result = result_of(http, job_id)
    assert result["status"] in ("ok", "partial")
    assert result["approvals"][0]["note"] == "Go on."


def test_a_cancelled_job_is_retried_over_http(http: httpx2.Client) -> None:
    job_id = submitted(http, approvals={"what": ["plan"]}, documents={"a.md": "Qdrant is fast."})
    wait_for_status(http, job_id, "waiting")
    cancelled = http.post(f"/v1/jobs/{job_id}/cancel").json()
    wait_for_status(http, job_id, "cancelled")
    retried = http.post(f"/v1/jobs/{job_id}/retry", json={"limits": {"max_turns": 300}})
    wait_for_status(http, job_id, "waiting")
    http.post(f"/v1/jobs/{job_id}/approve")

    assert cancelled == {"job_id": job_id, "cancelled": True}
    assert retried.status_code == 202
    assert result_of(http, job_id)["status"] in ("ok", "partial")


def test_a_quote_comes_before_the_work(http: httpx2.Client) -> None:
    quoted = http.post(
        "/v1/quotes",
        params={"wait_s": WAIT_S},
        json={"text": REQUEST, "documents": {"a.md": "Qdrant is fast."}},
    )

    assert quoted.status_code == 200, quoted.text
    assert quoted.json()["steps"] > 0
    assert not quoted.json()["is_refused"]
    wait_for_status(http, quoted.json()["job_id"], "waiting")


def test_the_fleet_is_shown_and_an_agent_is_paused(http: httpx2.Client) -> None:
    names = {specialist["name"] for specialist in http.get("/v1/specialists").json()}
    paused = http.post("/v1/agents/coder/pause", json={"reason": "a test"})
    agents = {agent["agent"]: agent for agent in http.get("/v1/stats").json()["agents"]}
    unpaused = http.post("/v1/agents/coder/unpause")

    assert {"researcher", "coder"} <= names
    assert (paused.status_code, unpaused.json()["waited"]) == (200, 0)
    assert agents["coder"]["is_paused"]


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_open_streams_and_the_server(
    kind: signal.Signals, handoff: Handoff, redis_url: str
) -> None:
    with served(handoff, redis_url) as (process, url):
        job_id = httpx2.post(f"{url}/v1/jobs", json={"text": "Where is it?"}).json()["job_id"]
        texts: list[str] = []

        def follow() -> None:
            path = f"{url}/v1/jobs/{job_id}/events"
            with httpx2.stream("GET", path, timeout=WAIT_S) as stream:
                for line in stream.iter_lines():
                    texts.append(line)

        thread = threading.Thread(target=follow)
        thread.start()
        wait_until(lambda: "id: 1" in texts, expected="the first event")
        os.kill(process.pid, kind)
        thread.join()
        code = process.wait()

    assert code == 0
    assert "event: problem" in texts


def test_a_failed_request_is_one_json_line_in_the_log(
    handoff: Handoff, redis_url: str, queues: redis.Redis
) -> None:
    with served(handoff, redis_url) as (_, server):
        queues.set(keys.JOBS, "not a sorted set")
        failed = httpx2.get(f"{server}/v1/jobs")
        handoff.wait_for_text("a request failed")
    queues.delete(keys.JOBS)
    lines = [line for line in handoff.read("err").splitlines() if line.startswith("{")]
    entries = [json.loads(line) for line in lines]

    assert failed.status_code == 500
    assert [(entry["event"], entry["path"]) for entry in entries] == [
        ("a request failed", "/v1/jobs")
    ]


def test_a_taken_port_is_one_line(handoff: Handoff, redis_url: str) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        refused = handoff.run("serve", "--port", port, HANDOFF_REDIS_URL=redis_url)

    assert f"port {port} is taken" in error_line(refused, BAD_INPUT)


def test_a_missing_redis_is_one_line(handoff: Handoff) -> None:
    url = f"redis://127.0.0.1:{find_free_port()}/0"

    refused = handoff.run("serve", HANDOFF_REDIS_URL=url)

    assert "Redis cannot be reached" in error_line(refused, NO_REDIS)


@pytest.mark.parametrize("host", ["a" * 70, "192.0.2.1", " "])
def test_a_bad_host_is_one_line(host: str, handoff: Handoff, redis_url: str) -> None:
    refused = handoff.run(
        "serve", "--host", host, "--port", str(find_free_port()), HANDOFF_REDIS_URL=redis_url
    )

    assert "--host" in error_line(refused, BAD_INPUT)


def test_a_server_without_a_token_listens_on_loopback_only_and_says_so(
    handoff: Handoff, redis_url: str
) -> None:
    with served(handoff, redis_url) as (_, url):
        errors = handoff.read("err")
        port = int(url.rpartition(":")[2])
        # An interface of this machine on which the server does not listen.
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port))

    assert "there is no token: every program of this machine may do everything" in errors


def test_every_address_needs_a_token_and_says_how_to_make_one(
    handoff: Handoff, redis_url: str
) -> None:
    arguments = ("serve", "--host", "0.0.0.0", "--port", str(find_free_port()))

    refused = handoff.run(*arguments, HANDOFF_REDIS_URL=redis_url)

    assert "handoff token create" in error_line(refused, BAD_INPUT)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_server_that_waits_for_a_token_refuses_every_request_until_there_is_one(
    host: str, handoff: Handoff, redis_url: str
) -> None:
    with served(handoff, redis_url, "--host", host, "--wait-for-token") as (_, url):
        closed = [
            httpx2.get(f"{url}/v1/jobs"),
            httpx2.post(f"{url}/v1/jobs", json={"text": "Where is it?"}),
            httpx2.get(f"{url}/metrics"),
            httpx2.get(f"{url}/", headers={"Accept": "text/html"}),
        ]
        healthy = httpx2.get(f"{url}/healthz")
        made = handoff.run(
            "token", "create", "ann", "--access", "admin", HANDOFF_REDIS_URL=redis_url
        )
        secret = made.stdout.strip()
        opened = httpx2.get(f"{url}/v1/jobs", headers={"Authorization": f"Bearer {secret}"})

    assert [answer.status_code for answer in closed] == [401, 401, 401, 303]
    assert closed[-1].headers["location"].startswith("/login")
    assert (healthy.status_code, opened.status_code) == (200, 200)


def test_a_server_behind_a_proxy_takes_its_users_and_needs_no_token(
    handoff: Handoff, redis_url: str
) -> None:
    settings = {
        "HANDOFF_SERVE_PROXIES": "127.0.0.1",
        "HANDOFF_SERVE_USER_HEADER": "X-Forwarded-User",
        "HANDOFF_SERVE_ACCESS": "*=read",
    }
    with served(handoff, redis_url, "--host", "0.0.0.0", **settings) as (_, url):
        unnamed = httpx2.get(f"{url}/v1/jobs")
        named = httpx2.get(f"{url}/v1/jobs", headers={"X-Forwarded-User": "ann"})

    assert (unnamed.status_code, named.status_code) == (401, 200)


def test_a_server_for_users_without_an_access_level_is_one_line(
    handoff: Handoff, redis_url: str
) -> None:
    refused = handoff.run(
        "serve", HANDOFF_REDIS_URL=redis_url, HANDOFF_SERVE_USER_HEADER="X-Forwarded-User"
    )

    assert "HANDOFF_SERVE_PROXIES and HANDOFF_SERVE_ACCESS" in error_line(refused, BAD_INPUT)


def test_a_server_refuses_the_placeholder_of_a_password(handoff: Handoff) -> None:
    refused = handoff.run("serve", HANDOFF_REDIS_URL="redis://:change-me@127.0.0.1:6379/0")

    assert "is a placeholder" in error_line(refused, BAD_INPUT)


def test_a_server_with_a_token_listens_on_every_address(handoff: Handoff, redis_url: str) -> None:
    store = open_store(redis_url, Settings())
    _, secret = store.api_tokens.create("a test", AccessLevel.READ, None)
    with served(handoff, redis_url, "--host", "0.0.0.0") as (_, url):
        without = httpx2.get(f"{url}/v1/jobs")
        with_token = httpx2.get(f"{url}/v1/jobs", headers={"Authorization": f"Bearer {secret}"})
    store.connection.close()

    assert (without.status_code, with_token.status_code) == (401, 200)
