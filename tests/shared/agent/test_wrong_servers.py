"""The error for a server that does not speak the Messages API names the server and shows its
reply.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from handoff_queue.shared.types.errors import (
    ModelBusy,
    ModelRejected,
    ModelUnreachable,
    ServerFailed,
)
from handoff_queue.testing import Reply, error_reply
from tests.shared.agent.scripted_server import Serve, model_error_of

ELSEWHERE = "http://127.0.0.1:1/v1/messages"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("location", [ELSEWHERE, "/v1/messages"])
def test_a_redirect_is_reported_and_not_followed(serve: Serve, status: int, location: str) -> None:
    error = model_error_of(serve, Reply(status=status, body="", headers={"location": location}))
    assert isinstance(error, ModelRejected)
    assert f"redirects to another address ({status}): set ANTHROPIC_BASE_URL" in str(error)


def test_a_web_page_as_a_reply_is_reported_as_an_unreachable_model(serve: Serve) -> None:
    page = Reply(body="<html>Sign in</html>", headers={"content-type": "text/html; charset=utf-8"})
    error = model_error_of(serve, page)
    assert isinstance(error, ModelUnreachable)
    assert (
        "the server answered with a web page instead of a model's answer: check ANTHROPIC_BASE_URL"
        in str(error)
    )


@pytest.mark.parametrize("status", [200, 422])
@pytest.mark.parametrize(
    "body",
    [
        {"error": ["model not loaded"]},
        {"errors": [{"message": "model not loaded"}]},
        {"detail": [{"loc": ["body", "model"], "msg": "model not loaded"}]},
        {"error": {"detail": "model not loaded"}},
        {"success": False, "msg": "model not loaded"},
        {"error": {"message": {"detail": "model not loaded"}}},
    ],
)
def test_a_servers_error_text_is_shown_from_any_field(
    serve: Serve, status: int, body: dict[str, object]
) -> None:
    error = model_error_of(serve, Reply(status=status, body=json.dumps(body)))
    assert isinstance(error, ModelRejected)
    assert str(error).endswith(": model not loaded")


@pytest.mark.parametrize(("in_s", "least_s", "most_s"), [(3_600, 3_000, 3_600), (-3_600, 0, 0)])
def test_a_retry_after_header_may_be_a_date(
    serve: Serve, in_s: int, least_s: float, most_s: float
) -> None:
    at = format_datetime(datetime.now(UTC) + timedelta(seconds=in_s), usegmt=True)
    error = model_error_of(serve, Reply(status=529, body="{}", headers={"retry-after": at}))
    assert isinstance(error, ModelBusy)
    assert error.retry_after_s is not None
    assert least_s <= error.retry_after_s <= most_s


def test_an_invalid_retry_after_is_not_reported(serve: Serve) -> None:
    error = model_error_of(serve, Reply(status=529, body="{}", headers={"retry-after": "soon"}))
    assert error.retry_after_s is None


def test_a_500_in_the_format_of_the_api_is_the_servers_own_failure(serve: Serve) -> None:
    assert isinstance(model_error_of(serve, error_reply(500)), ServerFailed)


@pytest.mark.parametrize(
    "reply",
    [
        error_reply(502),
        error_reply(504, kind="timeout_error"),
        error_reply(500, kind="timeout_error"),
        Reply(status=500, body="<html>Internal error</html>"),
        Reply(status=500, body='{"error": {"message": "no", "type": "api_error"}}'),
        Reply(status=500, body='{"type": "error", "error": "api_error"}'),
    ],
)
def test_another_5xx_may_be_of_a_gateway_that_lost_a_paid_reply(serve: Serve, reply: Reply) -> None:
    error = model_error_of(serve, reply)
    assert isinstance(error, ModelUnreachable)
    assert not isinstance(error, ServerFailed)
