"""One attempt to deliver a webhook, and its record in the journal."""

from __future__ import annotations

import json
import socket
import threading

import pytest

from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.events import JobEnded, JobStatus, RetryRequested, WebhookTried
from handoff_queue.shared.types.ids import HandoffId
from handoff_queue.shared.types.job_options import ApprovalOf
from handoff_queue.shared.types.names import DEFAULT_TENANT
from handoff_queue.supervisor.engine.state_cache import StateCache
from handoff_queue.supervisor.engine.webhooks import (
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
    Webhooks,
    compute_signature,
    derive_tenant_secret,
)
from handoff_queue.supervisor.lifecycle.state import AskedCall, JobState
from tests.doubles.jobs import a_job, version_of
from tests.doubles.webhook_server import WebhookServer

LOOPBACK = ("127.0.0.1",)
"""The host of the receivers of these tests, as an operator allows it."""


def ended_state(store: Store, url: str, tenant: str = DEFAULT_TENANT) -> JobState:
    job_id = a_job(store)
    store.journal.append(job_id, JobEnded(status=JobStatus.OK))
    state = StateCache(store.journal).load(job_id)
    assert state is not None
    fields = {"webhook_url": url, "tenant": tenant}
    return state.model_copy(update={"submitted": state.submitted.model_copy(update=fields)})


def last_attempt(store: Store, state: JobState) -> WebhookTried:
    event = store.journal.read(state.job_id)[-1].event
    assert isinstance(event, WebhookTried)
    return event


def test_the_post_says_which_job_ended_and_how(store: Store) -> None:
    with WebhookServer(204) as hook:
        state = ended_state(store, hook.url)
        Webhooks(store, None, LOOPBACK).deliver(state, 3)

    (post,) = hook.posts
    assert json.loads(post.body) == {
        "job_id": state.job_id,
        "status": "ok",
        "reason": None,
        "version": state.version,
        "attempt": 3,
    }
    assert SIGNATURE_HEADER.lower() not in post.headers
    assert last_attempt(store, state) == WebhookTried(
        attempt=3, delivered=True, detail="204", end=2
    )


@pytest.mark.parametrize("tenant", [DEFAULT_TENANT, "acme", "größer & co"])
def test_a_post_is_signed_with_the_secret_of_the_tenant_alone(store: Store, tenant: str) -> None:
    with WebhookServer() as hook:
        Webhooks(store, "secret", LOOPBACK).deliver(ended_state(store, hook.url, tenant), 1)

    (post,) = hook.posts
    timestamp = post.headers[TIMESTAMP_HEADER.lower()]
    signature = post.headers[SIGNATURE_HEADER.lower()]
    others = (
        "secret",
        derive_tenant_secret("secret", "another tenant"),
        derive_tenant_secret("another secret", tenant),
    )
    own = derive_tenant_secret("secret", tenant)
    assert signature == compute_signature(own, timestamp, post.body)
    for other in others:
        assert signature != compute_signature(other, timestamp, post.body)


def test_the_secret_of_a_tenant_is_the_hmac_of_its_name() -> None:
    # printf acme | openssl dgst -sha256 -hmac a-secret-of-this-test
    digest = "f9dcd385a67516039d3ab735fed696544d1fc62f95353ddd89f8976a91f7a37b"
    assert derive_tenant_secret("a-secret-of-this-test", "acme") == digest


@pytest.mark.parametrize("status", [400, 404, 500, 503])
def test_a_webhook_without_acceptance_is_not_delivered(store: Store, status: int) -> None:
    with WebhookServer(status) as hook:
        state = ended_state(store, hook.url)
        Webhooks(store, None, LOOPBACK).deliver(state, 1)

    assert last_attempt(store, state) == WebhookTried(
        attempt=1, delivered=False, detail=str(status), end=2
    )


@pytest.mark.parametrize("status", [302, 307, 308])
def test_a_webhook_follows_no_redirect(store: Store, status: int) -> None:
    with WebhookServer() as elsewhere, WebhookServer(status, location=elsewhere.url) as hook:
        state = ended_state(store, hook.url)
        Webhooks(store, None, LOOPBACK).deliver(state, 1)

    assert elsewhere.posts == []
    assert last_attempt(store, state).detail == str(status)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "LOCALHOST", "127.1", "2130706433", "0x7f000001", "0", "[::1]",
     "[::ffff:127.0.0.1]", "[::127.0.0.1]", "[fe80::1]", "169.254.169.254", "168.63.129.16"],
)  # fmt: skip
def test_a_webhook_reaches_no_private_address_by_default(store: Store, host: str) -> None:
    with WebhookServer() as hook:
        state = ended_state(store, hook.url.replace("127.0.0.1", host))
        Webhooks(store, None).deliver(state, 1)

    assert hook.posts == []
    attempt = last_attempt(store, state)
    assert not attempt.delivered
    assert attempt.detail.endswith(
        "is not on the public internet, or is unknown (HANDOFF_WEBHOOK_PRIVATE_HOSTS)"
    ), attempt.detail


def test_another_host_than_the_allowed_host_reaches_no_private_address(store: Store) -> None:
    with WebhookServer() as hook:
        state = ended_state(store, hook.url.replace("127.0.0.1", "localhost"))
        Webhooks(store, None, LOOPBACK).deliver(state, 1)

    assert hook.posts == []


@pytest.mark.parametrize("port", [22, 25, 1023])
def test_a_webhook_reaches_no_port_of_a_system(store: Store, port: int) -> None:
    state = ended_state(store, f"http://hooks.invalid:{port}/")
    Webhooks(store, None).deliver(state, 1)

    expected = (
        f"port {port} is not a web port (80, 443, or above 1023; HANDOFF_WEBHOOK_PRIVATE_HOSTS)"
    )
    assert last_attempt(store, state).detail == expected


def test_a_webhook_uses_no_proxy(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with WebhookServer() as hook:
        Webhooks(store, None, LOOPBACK).deliver(ended_state(store, hook.url), 1)

    assert len(hook.posts) == 1


def test_an_address_in_capital_letters_works(store: Store) -> None:
    with WebhookServer() as receiver:
        state = ended_state(store, receiver.url.replace("http://", "HTTP://"))
        Webhooks(store, None, LOOPBACK).deliver(state, 1)

    assert last_attempt(store, state).delivered


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/hook", "ftp://127.0.0.1/hook", "file:///etc/passwd", "http://[/"]
)
def test_an_address_that_does_not_work_is_a_failed_try(store: Store, url: str) -> None:
    state = ended_state(store, url)
    Webhooks(store, None, LOOPBACK).deliver(state, 1)

    assert not last_attempt(store, state).delivered
    assert last_attempt(store, state).detail


def test_a_receiver_that_answers_byte_by_byte_is_cut_when_the_time_is_over(store: Store) -> None:
    cut, pause = threading.Event(), threading.Event()

    def trickle(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            for _ in range(500):
                pause.wait(0.02)
                try:
                    connection.sendall(b"x")
                except OSError:
                    cut.set()
                    return

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=trickle, args=(server,), daemon=True)
        thread.start()
        state = ended_state(store, f"http://127.0.0.1:{server.getsockname()[1]}/")
        Webhooks(store, None, LOOPBACK, timeout_s=0.3).deliver(state, 1)
        thread.join()

    assert cut.is_set()
    assert last_attempt(store, state).attempt == 1


def test_an_attempt_from_before_a_retry_says_nothing_about_the_next_end(store: Store) -> None:
    with WebhookServer() as hook:
        state = ended_state(store, hook.url)
        store.journal.append(state.job_id, RetryRequested())
        Webhooks(store, None, LOOPBACK).deliver(state, 1)
        store.journal.append(state.job_id, JobEnded(status=JobStatus.OK))

    now = StateCache(store.journal).load(state.job_id)
    assert now is not None
    assert (now.ended_version, now.webhook.attempts, now.webhook.delivered) == (
        version_of(store, state.job_id),
        0,
        False,
    )


def test_a_post_about_tool_calls_names_the_tools(store: Store) -> None:
    with WebhookServer(200) as hook:
        state = ended_state(store, hook.url)
        calls = tuple(
            AskedCall(
                what=ApprovalOf.TOOLS,
                version=version,
                at=0.0,
                until=1.0,
                handoff_id=HandoffId("a.1"),
                call_id="toolu_1",
                tool="send_mail",
                is_answered=version == 3,
            )
            for version in (3, 4, 5)
        )
        Webhooks(store, None, LOOPBACK).ask(state.model_copy(update={"asked_calls": calls}))

    (post,) = hook.posts
    assert json.loads(post.body) == {
        "job_id": state.job_id,
        "status": "waiting",
        "version": state.version,
        "approval": "tools",
        "reminder": 0,
        "tools": ["send_mail", "send_mail"],
    }
