"""A model call that was never sent costs nothing, and its error names the setting to change."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from handoff_queue.shared.types.errors import (
    ModelError,
    ModelRejected,
    ModelUnreachable,
    NeverSent,
    Unsendable,
)
from handoff_queue.shared.types.model import CallProgress, ModelCall, SystemPrompt
from tests.doubles.raw_server import Conversation, RawServer
from tests.doubles.served_model import model_at
from tests.doubles.tls_proxy import a_certificate

# The SDK passes a proxy's password to aiohttp in a deprecated form.
pytestmark = [
    pytest.mark.filterwarnings("ignore:BasicAuth is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The 'proxy_auth' parameter:DeprecationWarning"),
]
CALL = ModelCall(
    "some-model",
    SystemPrompt("Be brief."),
    ({"role": "user", "content": "Hello"},),
    max_output_tokens=100,
    timeout_s=20,
    progress_s=20,
)
PROXY_PASSWORD = "canary-7be1"


def model_error_of(url: str) -> ModelError:
    def ignore(_progress: CallProgress) -> None:
        pass

    with model_at(url) as model, pytest.raises(ModelError) as raised:
        model.reply(CALL, ignore)
    assert "canary" not in str(raised.value)
    assert "\n" not in str(raised.value)
    return raised.value


def server_answering(status_line: bytes) -> RawServer:
    def talk(conversation: Conversation) -> None:
        conversation.request()
        if status_line:
            conversation.say(b"HTTP/1.1 " + status_line + b"\r\ncontent-length: 0\r\n\r\n")

    return RawServer(talk)


@contextmanager
def proxy_in_environment(
    monkeypatch: pytest.MonkeyPatch, proxy: RawServer, scheme: str = "HTTPS"
) -> Iterator[str]:
    """Set the proxy in the environment. Yield its host and port."""
    host = proxy.url.removeprefix("http://")
    monkeypatch.setenv(f"{scheme}_PROXY", f"http://user:{PROXY_PASSWORD}@{host}")
    with proxy:
        yield host


def test_a_proxy_that_wants_a_password_is_reported_with_host_and_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with proxy_in_environment(
        monkeypatch, server_answering(b"407 Proxy Authentication Required")
    ) as host:
        error = model_error_of("https://model.example")

    assert isinstance(error, Unsendable)
    assert not error.retryable
    assert host in str(error)
    assert "HTTPS_PROXY" in str(error)
    assert "407" in str(error)


def test_a_failing_proxy_before_an_http_server_is_reported_and_costs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with proxy_in_environment(
        monkeypatch, server_answering(b"407 Proxy Authentication Required"), "HTTP"
    ) as host:
        error = model_error_of("http://model.example")

    assert isinstance(error, ModelRejected)
    assert host in str(error)
    assert "HTTP_PROXY" in str(error)


@pytest.mark.parametrize(
    ("status_line", "is_retried"),
    [(b"403 Forbidden", False), (b"502 Bad Gateway", True), (b"", True)],
    ids=["forbidden", "bad gateway", "no answer"],
)
def test_a_call_through_a_proxy_without_a_tunnel_costs_nothing(
    monkeypatch: pytest.MonkeyPatch, status_line: bytes, is_retried: bool
) -> None:
    with proxy_in_environment(monkeypatch, server_answering(status_line)):
        error = model_error_of("https://model.example")

    assert isinstance(error, NeverSent)
    assert error.retryable is is_retried
    assert "HTTPS_PROXY" in str(error)


def test_a_closed_port_is_a_temporary_error_and_costs_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    error = model_error_of(f"http://127.0.0.1:{port}")

    assert isinstance(error, NeverSent)
    assert error.retryable
    assert f"127.0.0.1:{port}" in str(error)
    assert "ANTHROPIC_BASE_URL" in str(error)


def tls_server(folder: Path, holds: str) -> RawServer:
    """Return a TLS server with this name in its certificate. It reads one request and sends no
    answer.
    """
    certificate, key = a_certificate(folder, "server", holds)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def talk(conversation: Conversation) -> None:
        with context.wrap_socket(conversation.connection, server_side=True) as connection:
            Conversation(connection, conversation.number).request()

    return RawServer(talk)


def test_an_untrusted_certificate_is_not_retried(tmp_path: Path) -> None:
    with tls_server(tmp_path, "IP:127.0.0.1") as server:
        error = model_error_of(server.url.replace("http:", "https:"))

    assert isinstance(error, Unsendable)
    assert "SSL_CERT_FILE" in str(error)


def test_a_certificate_for_another_host_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tls_server(tmp_path, "DNS:other.example") as server:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "server.crt"))
        error = model_error_of(server.url.replace("http:", "https:"))

    assert isinstance(error, Unsendable)
    assert "ANTHROPIC_BASE_URL" in str(error)


def test_a_server_without_tls_is_not_tried_again_over_https() -> None:
    def talk(conversation: Conversation) -> None:
        conversation.connection.recv(1)
        conversation.say(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")

    with RawServer(talk) as server:
        error = model_error_of(server.url.replace("http:", "https:"))

    assert isinstance(error, Unsendable)
    assert "ANTHROPIC_BASE_URL" in str(error)


def test_a_tls_server_that_has_read_the_request_may_have_been_paid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tls_server(tmp_path, "IP:127.0.0.1") as server:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "server.crt"))
        error = model_error_of(server.url.replace("http:", "https:"))

    assert isinstance(error, ModelUnreachable)
    assert not isinstance(error, NeverSent)


def test_an_invalid_http_header_is_a_permanent_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Team: canary\rX-Other: 1")
    with server_answering(b"200 OK") as server:
        error = model_error_of(server.url)

    assert isinstance(error, Unsendable)
    assert "ANTHROPIC_CUSTOM_HEADERS" in str(error)
