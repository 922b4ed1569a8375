"""Events over HTTP: streams that continue after a reconnection, pages, and the end."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.api_tokens import StoredToken
from handoff_queue.shared.store.claim import HandoffClaim
from handoff_queue.shared.types.api_tokens import AccessLevel, ApiToken
from handoff_queue.shared.types.events import CancelRequested
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.serve import authentication
from handoff_queue.supervisor.serve.authentication import AppState
from tests.doubles.jobs import a_job, granted_claim, issue
from tests.supervisor.serve.serving import serving
from tests.supervisor.serve.test_job_routes import end
from tests.waiting import wait_until


def followers(app: FastAPI) -> int:
    served: AppState = app.state.handoff_queue
    return sum(map(len, list(served.jobs._hub._followers.values())))


def kinds(text: str) -> list[str]:
    return [line.removeprefix("event: ") for line in text.splitlines() if line[:6] == "event:"]


def test_a_stream_of_an_ended_job_has_all_events_with_their_versions(
    http: TestClient, jobs: Client
) -> None:
    job_id = a_job(jobs.store)
    end(jobs, job_id)

    stream = http.get(f"/v1/jobs/{job_id}/events")

    assert stream.headers["content-type"].startswith("text/event-stream")
    assert kinds(stream.text) == ["job_submitted", "job_ended"]
    assert [line for line in stream.text.splitlines() if line[:3] == "id:"] == ["id: 1", "id: 2"]


def test_a_browser_that_reconnects_gets_later_events_and_no_content_after_the_end(
    http: TestClient, jobs: Client
) -> None:
    job_id = a_job(jobs.store)
    end(jobs, job_id)

    later = http.get(f"/v1/jobs/{job_id}/events", headers={"Last-Event-ID": "1"})
    over = http.get(f"/v1/jobs/{job_id}/events", headers={"Last-Event-ID": "2"})

    assert kinds(later.text) == ["job_ended"]
    assert (over.status_code, over.content) == (204, b"")


def test_pages_of_events_together_have_the_whole_journal(http: TestClient, jobs: Client) -> None:
    job_id = a_job(jobs.store)
    jobs.store.journal.append(job_id, CancelRequested())
    jobs.store.journal.append(job_id, CancelRequested())
    path = f"/v1/jobs/{job_id}/events?follow=false&limit=2"

    first = http.get(path).json()
    second = http.get(f"{path}&after={first['next_after']}").json()
    last = http.get(f"{path}&after={second['next_after']}").json()

    assert [event["version"] for event in first["events"] + second["events"]] == [1, 2, 3]
    assert (first["has_more"], second["has_more"]) == (True, False)
    assert (last["events"], last["next_after"]) == ([], 3)


@pytest.mark.parametrize("query", ["", "?follow=false"])
def test_events_hide_the_address_of_the_webhook(query: str, http: TestClient, jobs: Client) -> None:
    url = "https://hooks.example.com/secret-path"
    job_id = jobs.submit(Request("Where is it?", webhook_url=url))
    end(jobs, job_id)

    events = http.get(f"/v1/jobs/{job_id}/events{query}").text

    assert "hooks.example.com" in events
    assert "secret-path" not in events


def lines_of(stream: httpx2.Response) -> Iterator[str]:
    return (line for line in stream.iter_lines() if line.startswith("event:"))


@pytest.mark.slow
def test_a_stream_brings_new_events_and_ends_with_the_job(app: FastAPI, jobs: Client) -> None:
    job_id = a_job(jobs.store)
    with serving(app) as url, httpx2.stream("GET", f"{url}/v1/jobs/{job_id}/events") as stream:
        lines = lines_of(stream)
        first = next(lines)
        jobs.store.journal.append(job_id, CancelRequested())
        second = next(lines)
        end(jobs, job_id)
        rest = list(lines)

    assert [first, second, *rest] == [
        "event: job_submitted",
        "event: cancel_requested",
        "event: job_ended",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("is_revoked", [True, False])
def test_a_stream_of_a_token_that_was_revoked_or_has_expired_sends_no_more_events(
    app: FastAPI, jobs: Client, monkeypatch: pytest.MonkeyPatch, is_revoked: bool
) -> None:
    monkeypatch.setattr(authentication, "CHECK_S", 0.0)
    tokens = jobs.store.api_tokens
    soon = jobs.store.connection.now() + 3_600
    token, secret = tokens.create("a test", AccessLevel.READ, None, soon)
    job_id = a_job(jobs.store)
    bearer = {"Authorization": f"Bearer {secret}"}
    path = f"/v1/jobs/{job_id}/events"
    with serving(app) as url, httpx2.stream("GET", url + path, headers=bearer) as stream:
        lines = lines_of(stream)
        next(lines)
        if is_revoked:
            tokens.revoke(token.id)
        else:
            expire(jobs, token)
        jobs.store.journal.append(job_id, CancelRequested())

        assert list(lines) == ["event: problem"]


def expire(jobs: Client, token: ApiToken) -> None:
    """Set the end of a token to a time in the past."""
    text = jobs.store.connection.redis.hget(keys.TOKENS, token.id)
    stored = StoredToken.from_json(text)
    expired = stored.token.model_copy(update={"expires_at": 1.0})
    changed = stored.model_copy(update={"token": expired})
    jobs.store.connection.redis.hset(keys.TOKENS, token.id, changed.to_json())


@pytest.mark.slow
def test_a_stream_without_a_token_ends_when_the_first_token_is_made(
    app: FastAPI, jobs: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "CHECK_S", 0.0)
    job_id = a_job(jobs.store)
    with serving(app) as url, httpx2.stream("GET", f"{url}/v1/jobs/{job_id}/events") as stream:
        lines = lines_of(stream)
        next(lines)
        jobs.store.api_tokens.create("a test", AccessLevel.READ, None)
        jobs.store.journal.append(job_id, CancelRequested())

        assert list(lines) == ["event: problem"]


@pytest.mark.slow
def test_a_client_that_disconnects_frees_its_follower(app: FastAPI, jobs: Client) -> None:
    job_id = a_job(jobs.store)
    with serving(app) as url:
        with httpx2.stream("GET", f"{url}/v1/jobs/{job_id}/events") as stream:
            lines = lines_of(stream)  # the connection closes when this iterator is deleted
            next(lines)
            wait_until(lambda: followers(app) == 1, expected="one follower")
        wait_until(lambda: followers(app) == 0, expected="no follower")


@pytest.mark.slow
def test_a_server_that_stops_ends_its_streams(app: FastAPI, jobs: Client) -> None:
    job_id = a_job(jobs.store)
    texts: list[str] = []

    def follow(url: str) -> None:
        texts.append(httpx2.get(f"{url}/v1/jobs/{job_id}/events", timeout=60).text)

    with serving(app) as url:
        thread = threading.Thread(target=follow, args=(url,))
        thread.start()
        wait_until(lambda: followers(app) == 1, expected="one follower")
    thread.join()

    assert kinds(texts[0]) == ["job_submitted", "problem"]
    data = json.loads(texts[0].split("event: problem\ndata: ")[1])
    assert (data["status"], data["detail"]) == (503, "the server stops: connect again")


@pytest.mark.slow
def test_a_server_that_stops_ends_a_wait_for_a_result_without_an_error(
    app: FastAPI, jobs: Client
) -> None:
    job_id = a_job(jobs.store)
    with ThreadPoolExecutor() as threads:
        with serving(app) as url:
            path = f"{url}/v1/jobs/{job_id}/result?wait_s=60"
            waiting = threads.submit(httpx2.get, path, timeout=60)
            wait_until(lambda: followers(app) == 1, expected="one follower")
        answer = waiting.result()

    assert (answer.status_code, answer.json()["status"]) == (200, "running")


@pytest.mark.slow
def test_a_server_that_stops_names_the_job_of_a_quote_that_is_not_ready(
    app: FastAPI, jobs: Client
) -> None:
    with ThreadPoolExecutor() as threads:
        with serving(app) as url:
            request = {"text": "How does HNSW work?"}
            waiting = threads.submit(httpx2.post, f"{url}/v1/quotes", json=request, timeout=60)
            wait_until(lambda: followers(app) == 1, expected="one follower")
        answer = waiting.result()

    assert (answer.status_code, answer.json()["quote"]) == (202, None)
    assert answer.headers["Location"] == f"/v1/jobs/{jobs.newest()[0].job_id}"


def test_a_stream_that_begins_while_the_server_stops_ends_with_a_problem(
    app: FastAPI, http: TestClient, jobs: Client
) -> None:
    job_id = a_job(jobs.store)
    served: AppState = app.state.handoff_queue
    served.jobs._hub.close()

    stream = http.get(f"/v1/jobs/{job_id}/events").text

    assert kinds(stream) == ["problem"]
    assert "the server stops: connect again" in stream


@pytest.mark.slow
def test_the_answer_comes_while_it_is_written(app: FastAPI, jobs: Client) -> None:
    job_id = a_job(jobs.store)
    issue(jobs.store, job_id, "synthesizer.1", role="synthesizer", group=None)
    writer = granted_claim(jobs.store, job_id, "synthesizer.1")
    with serving(app) as url, httpx2.stream("GET", f"{url}/v1/jobs/{job_id}/answer") as stream:
        lines = (line for line in stream.iter_lines() if line.startswith("data:"))
        say_draft(writer, "Qdrant")
        first = next(lines)
        say_draft(writer, "Qdrant is fast.")
        second = next(lines)

    texts = [json.loads(line.removeprefix("data: ")).get("text") for line in (first, second)]
    assert texts == ["Qdrant", " is fast."]


def say_draft(writer: HandoffClaim, text: str) -> None:
    """Let the writer store its draft at once."""
    writer.heartbeat("writes", text)
    writer.renew()


def test_the_answer_of_an_ended_job_comes_as_one_event(http: TestClient, jobs: Client) -> None:
    job_id: JobId = a_job(jobs.store)
    end(jobs, job_id)

    stream = http.get(f"/v1/jobs/{job_id}/answer").text

    assert kinds(stream) == ["answer"]
    assert json.loads(stream.split("data: ")[1])["status"] == "ok"
