"""The address of a webhook cannot change the request that a supervisor sends, or name something
other than an HTTP server.
"""

from __future__ import annotations

import socket

import pytest

from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.engine import webhooks

ADDRESSES = {
    "a file": "file:///etc/passwd",
    "FTP": "ftp://host/a",
    "gopher": "gopher://127.0.0.1:6379/_FLUSHALL",
    "a socket": "unix:///run/redis.sock",
    "an HTTP server on a socket": "http+unix://%2Frun%2Fdocker.sock/",
    "data": "data:text/plain,x",
    "a script": "javascript:alert(1)",
    "no scheme": "//host/a",
    "a path only": "/a",
    "no host": "http:///a",
    "a host of points": "http://.../a",
    "a user": "http://user@host/a",
    "a user and a password": "http://user:password@host/a",
    "a user that looks like a host": "http://example.com@127.0.0.1/a",
    "a backslash for the host": "http://example.com\\@127.0.0.1/a",
    "a second request": "http://host/a HTTP/1.1\r\nX: y\r\n\r\nGET /b",
    "a header": "http://host/a\r\nX-Owned: 1",
    "a line feed": "http://host/a\nb",
    "a header in the host": "http://host\r\nX: y/a",
    "a tab": "http://host/\ta",
    "a NUL": "http://host/\0a",
    "a space": "http://host/a b",
    "a space in the host": "http://ho st/a",
    "a terminal escape": "http://host/\x1b[2J",
    "another direction": "http://host/\u202ea",
    "letters that look alike": "http://h\u043est/a",
    "letters of full width": "http://\uff11\uff12\uff17.0.0.1/a",
    "half a character": "http://host/\ud83d",
    "a port of another size": "http://host:99999/a",
    "a port of letters": "http://host:redis/a",
    "a negative port": "http://host:-1/a",
    "a broken IPv6 address": "http://[::1/a",
    "a host of 300 characters": f"http://{'a' * 300}/a",
    "5,000 characters": f"http://host/{'a' * 5_000}",
    "nothing": "",
}


@pytest.mark.parametrize("kind", ADDRESSES)
def test_an_address_that_is_not_a_plain_http_url_is_refused(jobs: Client, kind: str) -> None:
    with pytest.raises(UserError, match="webhook") as caught:
        jobs.submit(Request("Look.", webhook_url=ADDRESSES[kind]))

    assert str(caught.value).isprintable()
    assert "password" not in str(caught.value).partition("must not hold a user or a password")[0]
    assert not jobs.newest()


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/a?b=c#d", "https://example.com", "HTTPS://[::1]:9/a"]
)
def test_a_plain_address_is_accepted(jobs: Client, url: str) -> None:
    assert jobs.submit(Request("Look.", webhook_url=url))


def test_a_submitter_learns_no_name_of_the_private_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def resolve(host: str, _port: int) -> list[str]:
        if host == "known.example":
            return ["10.0.0.1"]
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(webhooks, "resolve_with_system", resolve)
    details: set[str] = set()
    for host in ("known.example", "unknown.example"):
        delivered, detail = webhooks.post(f"http://{host}/", b"{}", {}, (), 30.0)
        assert not delivered
        details.add(detail.replace(host, "HOST"))

    assert len(details) == 1, details
