"""Log in to the console, log out, and forged requests."""

from __future__ import annotations

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.api_tokens import WINDOW_S
from handoff_queue.shared.types.api_tokens import AccessLevel
from handoff_queue.supervisor.client.async_client import AsyncClient
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.serve.application import make_application
from handoff_queue.supervisor.serve.console.pages import build_static_url
from tests.doubles.jobs import a_job
from tests.supervisor.serve.conftest import URL
from tests.supervisor.serve.console.conftest import VisitorOf
from tests.supervisor.serve.console.visitor import Visitor


@pytest.fixture
def secret(jobs: Client) -> str:
    """The secret of a token of the store."""
    _, made = jobs.store.api_tokens.create("a test", AccessLevel.OPERATE, None)
    return made


def test_a_page_without_a_login_leads_to_the_login_and_back(
    app: FastAPI, http: TestClient, secret: str
) -> None:
    visitor = Visitor(app)

    refused = visitor.get("/?status=failed")
    logged_in = visitor.log_in(secret, "/?status=failed")

    assert refused.status_code == 303
    assert refused.headers["location"] == "/login?next=/%3Fstatus%3Dfailed"
    assert logged_in.headers["location"] == "/?status=failed"
    assert visitor.get("/").status_code == 200


def test_no_script_and_no_other_site_gets_the_cookies(
    app: FastAPI, http: TestClient, secret: str
) -> None:
    response = Visitor(app).log_in(secret)

    cookie = response.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "secure" not in cookie


def test_a_browser_sends_the_cookie_of_https_only_over_https(
    app: FastAPI, http: TestClient, secret: str
) -> None:
    response = Visitor(app, url="https://127.0.0.1:8321").log_in(secret)

    assert "secure" in response.headers["set-cookie"].lower()


@pytest.mark.parametrize("is_proxy", [True, False])
def test_only_a_known_proxy_can_say_that_the_browser_uses_https(
    jobs: Client, secret: str, is_proxy: bool
) -> None:
    proxies = ("203.0.113.7",) if is_proxy else ("192.0.2.1",)
    app = make_application(AsyncClient(jobs), Settings(offline=True, serve_proxies=proxies))

    response = Visitor(app).http.get("/login", headers={"X-Forwarded-Proto": "https"})

    assert ("secure" in response.headers["set-cookie"].lower()) is is_proxy


@pytest.mark.parametrize("wrong", ["", "hq_0", f"hq_{'0' * 12}_{'A' * 43}", "<script>"])
def test_a_wrong_token_gives_no_access(
    wrong: str, app: FastAPI, http: TestClient, secret: str
) -> None:
    visitor = Visitor(app)

    response = visitor.log_in(wrong)

    assert response.status_code == 401
    assert "unknown, revoked or expired" in response.text
    assert visitor.get("/").status_code == 303


@pytest.mark.parametrize(
    "target", ["https://evil.example/", "//evil.example", "/\\evil.example", "", "/\r\nx: y"]
)
def test_a_login_never_leads_to_another_server(
    target: str, app: FastAPI, http: TestClient, secret: str
) -> None:
    assert Visitor(app).log_in(secret, target).headers["location"] == "/"


def test_a_revoked_token_ends_the_access_at_once(jobs: Client, visitor_with: VisitorOf) -> None:
    visitor = visitor_with()
    before = visitor.get("/").status_code
    (token,) = jobs.store.api_tokens.list_all()
    visitor_with()  # the server still has a token

    jobs.store.api_tokens.revoke(token.id)

    assert (before, visitor.get("/").status_code) == (200, 303)


def test_a_logout_deletes_the_token_from_the_browser(visitor_with: VisitorOf) -> None:
    visitor = visitor_with("read")

    assert visitor.post("/logout").status_code == 303
    assert visitor.get("/").status_code == 303


def test_another_replica_knows_the_login(jobs: Client, visitor_with: VisitorOf) -> None:
    visitor = visitor_with()
    replica = make_application(AsyncClient(jobs), jobs.settings)
    other = Visitor(replica)
    other.http.cookies = visitor.http.cookies

    assert other.get("/").status_code == 200
    assert other.csrf() == visitor.csrf()


@pytest.mark.parametrize(
    "origin",
    [
        None,
        "null",
        "https://evil.example",
        "http://127.0.0.1:9999",
        f"{URL}.evil.example",
        "http://[127.0.0.1:8321",
    ],
)
def test_a_form_of_another_site_is_refused(origin: str | None, visitor_with: VisitorOf) -> None:
    visitor = visitor_with()
    headers = {"Origin": origin} if origin else {}

    response = visitor.http.post("/logout", data={"csrf": visitor.csrf()}, headers=headers)

    assert response.status_code == 403
    assert visitor.get("/").status_code == 200


def test_a_form_needs_the_text_of_its_own_login(visitor_with: VisitorOf) -> None:
    visitor, other = visitor_with(), visitor_with()

    statuses = [visitor.post("/logout", csrf).status_code for csrf in ("", "é", other.csrf())]

    assert statuses == [403, 403, 403]


def test_a_server_without_tokens_needs_no_login(local: Visitor, app: FastAPI) -> None:
    assert local.get("/").status_code == 200
    assert "Log out" not in local.get("/").text
    assert Visitor(app).get("/").status_code == 403  # another machine


def test_a_cookie_of_another_server_does_not_lock_a_local_user_out(local: Visitor) -> None:
    local.http.cookies.set("handoff_token", f"hq_{'0' * 12}_{'A' * 43}")

    assert local.get("/").status_code == 200


def test_a_page_allows_only_files_of_this_server(visitor_with: VisitorOf) -> None:
    visitor = visitor_with()

    page = visitor.get("/")

    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    assert page.headers["cache-control"] == "no-store"
    assert page.headers["x-content-type-options"] == "nosniff"


def test_a_browser_keeps_a_file_only_under_the_url_of_its_content(local: Visitor) -> None:
    url = build_static_url("job.js")

    own, of_another_version = local.get(url), local.get(f"{url}0")

    assert own.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert of_another_version.headers["cache-control"] == "no-store"


def test_an_unknown_page_is_a_page_and_an_unknown_resource_is_a_problem_document(
    visitor_with: VisitorOf,
) -> None:
    visitor = visitor_with()

    page, resource = visitor.get("/nothing"), visitor.get("/v1/nothing")

    assert (page.status_code, resource.status_code) == (404, 404)
    assert page.headers["content-type"].startswith("text/html")
    assert resource.headers["content-type"] == "application/problem+json"


def test_an_action_on_a_job_counts_as_one_request(jobs: Client, visitor_with: VisitorOf) -> None:
    visitor = visitor_with()
    job_id, csrf = a_job(jobs.store), visitor.csrf()
    before = requests_in(jobs)

    visitor.post(f"/jobs/{job_id}/cancel", csrf)

    assert requests_in(jobs) - before == 1


def requests_in(jobs: Client) -> int:
    """Return the counted requests of the only token in this minute and in the minute before."""
    (token,) = jobs.store.api_tokens.list_all()
    this_minute = int(jobs.store.connection.now() // WINDOW_S)
    names = [keys.requests(token.id, minute) for minute in (this_minute - 1, this_minute)]
    return sum(int(count or 0) for count in jobs.store.connection.redis.mget(names))


def test_the_cookie_gives_no_access_to_the_api(visitor_with: VisitorOf) -> None:
    assert visitor_with().get("/v1/jobs").status_code == 401
