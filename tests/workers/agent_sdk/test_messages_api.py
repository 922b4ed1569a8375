"""The server for the CLI takes only requests of its own CLI for the next call."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing

import pytest

from handoff_queue.workers.agent_sdk.messages_api import Gateway


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with closing(Gateway(lambda body: body["system"] == "You look.")) as gateway:
        yield gateway


def status_of(gateway: Gateway, token: str, path: str = "/v1/messages", system: str = "") -> int:
    request = urllib.request.Request(
        gateway.url + path,
        data=json.dumps({"system": system}).encode(),
        headers={"x-api-key": token},
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    refused.value.close()
    return refused.value.code


def test_a_request_without_the_token_is_refused(gateway: Gateway) -> None:
    assert status_of(gateway, "another", system="You look.") == 401
    assert gateway.next_request(0) is None


def test_a_request_for_another_call_is_refused(gateway: Gateway) -> None:
    assert status_of(gateway, gateway.token, system="Write a title.") == 400
    assert status_of(gateway, gateway.token, "/v1/messages/count_tokens") == 404
    assert gateway.next_request(0) is None


@pytest.mark.parametrize("length", ["many", "-1", "0", "9" * 5000])
def test_a_request_with_another_length_than_a_count_of_bytes_is_refused(
    gateway: Gateway, length: str
) -> None:
    headers = {"x-api-key": gateway.token, "content-length": length}
    with closing(http.client.HTTPConnection(gateway.url.removeprefix("http://"))) as client:
        client.request("POST", "/v1/messages", headers=headers)
        assert client.getresponse().status == 404


def test_a_body_without_the_token_is_not_read(gateway: Gateway) -> None:
    with closing(http.client.HTTPConnection(gateway.url.removeprefix("http://"))) as client:
        client.request("POST", "/v1/messages", headers={"content-length": "1000"})
        assert client.getresponse().status == 401, "the body has not been sent"
