"""Users that a reverse proxy has authenticated: trust, access, tenants and forged requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.api_tokens import AccessLevel
from handoff_queue.shared.types.audit import Actor
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import CancelRequested
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.serve.proxy_authentication import check_proxy
from tests.doubles.jobs import a_job
from tests.supervisor.serve.console.visitor import Visitor

PROXY = "10.0.0.7"
SITE = "https://queue.example"
USER, GROUPS, TENANT = "X-Forwarded-Email", "X-Forwarded-Groups", "X-Tenant"
PER_MINUTE = 20
ANN = {USER: "ann@example.com", GROUPS: "staff,operators"}

From = Callable[..., TestClient]


@pytest.fixture
def settings() -> Settings:
    return Settings(
        offline=True,
        serve_proxies=(PROXY, "192.0.2.0/24"),
        serve_user_header=USER,
        serve_groups_header=GROUPS,
        serve_access=("staff=read", "operators=operate", "queue admins=admin"),
        serve_requests_per_minute=PER_MINUTE,
    )


@pytest.fixture
def sent_from(app: FastAPI, http: TestClient) -> From:
    """Return a function that makes a client with an address and headers."""

    def make(address: str, headers: dict[str, str]) -> TestClient:
        return TestClient(
            app,
            base_url=SITE,
            client=(address, 50_000),
            headers=headers,
            raise_server_exceptions=False,
        )

    return make


@pytest.mark.parametrize("address", [PROXY, "192.0.2.200", f"::ffff:{PROXY}"])
def test_a_user_of_the_proxy_has_the_access_level_of_its_groups(
    address: str, sent_from: From
) -> None:
    ann = sent_from(address, ANN)

    assert ann.get("/v1/jobs").status_code == 200
    assert ann.post("/v1/agents/writer/pause").status_code == 200


@pytest.mark.parametrize("address", ["10.0.0.8", "127.0.0.1", "192.0.3.1", "::1", "testclient"])
def test_the_headers_of_another_address_prove_nothing(
    address: str, sent_from: From, jobs: Client
) -> None:
    stranger = sent_from(address, {**ANN, "X-Forwarded-For": PROXY})
    _, secret = jobs.store.api_tokens.create("bob", AccessLevel.READ, None)

    refused = stranger.get("/v1/jobs")
    as_bob = stranger.post("/v1/jobs", headers={"Authorization": f"Bearer {secret}"})

    assert refused.status_code == 401
    assert "the access level read" in as_bob.json()["detail"]


def test_a_proxy_without_the_header_gives_no_access(sent_from: From) -> None:
    assert sent_from(PROXY, {}).get("/v1/jobs").status_code == 401
    assert sent_from(PROXY, {USER: "", GROUPS: "staff"}).get("/v1/jobs").status_code == 401


def test_a_program_behind_the_proxy_uses_its_token(sent_from: From, jobs: Client) -> None:
    _, secret = jobs.store.api_tokens.create("billing", AccessLevel.READ, None)

    answer = sent_from(PROXY, {"Authorization": f"Bearer {secret}"}).get("/v1/jobs")

    assert answer.status_code == 200


def test_a_local_program_needs_a_user_or_a_token_as_soon_as_a_proxy_names_users(
    app: FastAPI, http: TestClient
) -> None:
    assert http.get("/v1/jobs").status_code == 401


@pytest.mark.parametrize("groups", ["", "guests", "operators=operate", "*"])
def test_a_user_without_an_access_level_is_refused_by_name(groups: str, sent_from: From) -> None:
    refused = sent_from(PROXY, {USER: "eve", GROUPS: groups}).get("/v1/jobs")

    assert refused.status_code == 403
    assert "no group of eve has access" in refused.json()["detail"]


@pytest.mark.parametrize("groups", ["staff|operators", " guests , operators ", "operators"])
def test_groups_are_separated_by_commas_or_bars(groups: str, sent_from: From) -> None:
    ann = sent_from(PROXY, {USER: "ann", GROUPS: groups})

    assert ann.post("/v1/agents/writer/pause").status_code == 200


def test_an_access_level_of_every_user_needs_no_groups(app: FastAPI, sent_from: From) -> None:
    state = app.state.handoff_queue
    changed = state.settings.model_copy(update={"serve_access": ("*=submit", "staff=read")})
    app.state.handoff_queue = replace(state, settings=changed)
    ann = sent_from(PROXY, ANN)

    assert ann.post("/v1/jobs", json={"text": "Where is it?"}).status_code == 202
    assert ann.post("/v1/agents/writer/pause").status_code == 403


@pytest.mark.parametrize("name", ["a" * 101, "ann\tadmin"])
def test_a_name_that_is_not_a_short_line_is_refused(name: str, sent_from: From) -> None:
    assert sent_from(PROXY, {**ANN, USER: name}).get("/v1/jobs").status_code == 403


def test_a_header_that_comes_twice_is_refused(sent_from: From) -> None:
    twice = [(USER, "eve"), (USER, "ann@example.com"), (GROUPS, "operators")]

    assert sent_from(PROXY, {}).get("/v1/jobs", headers=twice).status_code == 403


@pytest.fixture
def with_tenants(app: FastAPI, settings: Settings) -> None:
    """The server takes the tenant of a user from a header."""
    state = app.state.handoff_queue
    changed = settings.model_copy(update={"serve_tenant_header": TENANT})
    app.state.handoff_queue = replace(state, settings=changed)


@pytest.mark.usefixtures("with_tenants")
def test_the_proxy_decides_the_tenant_of_a_user(sent_from: From, jobs: Client) -> None:
    own, foreign = a_job(jobs.store, "acme"), a_job(jobs.store, "globex")
    ann = sent_from(PROXY, {**ANN, TENANT: "acme"})

    listed = [job["job_id"] for job in ann.get("/v1/jobs").json()["jobs"]]

    assert listed == [own]
    assert ann.get(f"/v1/jobs/{foreign}").status_code == 404
    assert ann.get("/v1/stats").status_code == 403


@pytest.mark.usefixtures("with_tenants")
def test_a_user_without_a_tenant_is_refused_and_an_admin_sees_all_tenants(
    sent_from: From, jobs: Client
) -> None:
    job_id = a_job(jobs.store, "acme")
    refused = sent_from(PROXY, ANN).get("/v1/jobs")
    admin = sent_from(PROXY, {USER: "root", GROUPS: "queue admins", TENANT: "globex"})

    assert refused.status_code == 403
    assert "no tenant of ann@example.com" in refused.json()["detail"]
    assert admin.get(f"/v1/jobs/{job_id}").status_code == 200


def test_the_journal_and_the_audit_name_the_user_and_its_own_address(
    sent_from: From, jobs: Client
) -> None:
    job_id = a_job(jobs.store)
    # The user's own text comes first; the two proxies add the addresses of their clients.
    hops = "6.6.6.6, 203.0.113.9, 192.0.2.7"
    ann = sent_from(PROXY, {**ANN, USER: "Änne".encode(), "X-Forwarded-For": hops})

    ann.post(f"/v1/jobs/{job_id}/cancel")
    ann.post("/v1/agents/writer/pause")

    *_, cancelled = jobs.events(job_id, follow=False)
    assert isinstance(cancelled.event, CancelRequested)
    (paused,) = jobs.audit()
    expected = Actor(name="Änne", via="api", address="203.0.113.9", token=None)
    assert (cancelled.event.actor, paused.actor) == (expected, expected)


@pytest.mark.parametrize("hops", ["", "unknown", "6.6.6.6, not-an-address", ","])
def test_a_strange_list_of_addresses_leaves_the_address_of_the_proxy(
    hops: str, sent_from: From, jobs: Client
) -> None:
    sent_from(PROXY, {**ANN, "X-Forwarded-For": hops}).post("/v1/agents/writer/pause")

    (paused,) = jobs.audit()
    assert paused.actor is not None
    assert paused.actor.address == PROXY


def test_each_user_has_its_own_count_of_requests(app: FastAPI, sent_from: From) -> None:
    ann, bob = sent_from(PROXY, ANN), sent_from(PROXY, {**ANN, USER: "bob"})

    # This number of requests exceeds the limit, also if a new minute begins in between.
    tries = 2 * PER_MINUTE + 1
    statuses = [ann.get("/v1/specialists").status_code for _ in range(tries)]

    assert 429 in statuses
    assert bob.get("/v1/specialists").status_code == 200


@pytest.mark.parametrize(
    "foreign",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_page_of_another_site_changes_nothing_with_the_login_of_the_proxy(
    foreign: dict[str, str], sent_from: From, jobs: Client
) -> None:
    job_id = a_job(jobs.store)
    ann = sent_from(PROXY, ANN)

    refused = ann.post(f"/v1/jobs/{job_id}/cancel", headers=foreign)

    assert refused.status_code == 403
    assert [entry.action for entry in jobs.audit(job_id)] == ["submit"]
    assert ann.get("/", headers={**foreign, "Accept": "text/html"}).status_code == 200  # a link


def a_browser(app: FastAPI, name: str) -> Visitor:
    visitor = Visitor(app, PROXY, SITE)
    visitor.http.headers |= {**ANN, USER: name}
    return visitor


def test_the_console_needs_no_login_and_shows_the_user(app: FastAPI, http: TestClient) -> None:
    page = a_browser(app, "ann@example.com").get("/")

    assert page.status_code == 200
    assert "ann@example.com (operate)" in page.text
    assert "Log out" not in page.text


def test_the_console_still_needs_the_text_against_forged_requests(
    app: FastAPI, http: TestClient, jobs: Client
) -> None:
    job_id = a_job(jobs.store)
    ann, bob = a_browser(app, "ann@example.com"), a_browser(app, "bob@example.com")
    path = f"/jobs/{job_id}/cancel"

    bob.http.cookies = ann.http.cookies
    wrong = [ann.post(path, ""), ann.post(path, "f" * 64), ann.post(path, bob.csrf())]
    before = jobs.audit(job_id)
    right = ann.post(path, ann.csrf())

    assert [answer.status_code for answer in wrong] == [403, 403, 403]
    assert [entry.action for entry in before] == ["submit"]
    assert right.status_code == 303
    (_, cancelled) = jobs.audit(job_id)
    assert cancelled.actor == Actor(name="ann@example.com", via="console", address=PROXY)


def test_settings_without_which_no_user_has_access_are_one_line() -> None:
    with pytest.raises(UserError, match="SERVE_PROXIES and HANDOFF_SERVE_ACCESS"):
        check_proxy(Settings(serve_user_header=USER))
    check_proxy(Settings())


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("HANDOFF_SERVE_PROXIES", "proxy.example", "IP addresses or networks"),
        ("HANDOFF_SERVE_PROXIES", "10.0.0.7/8", "IP addresses or networks"),
        ("HANDOFF_SERVE_USER_HEADER", "X User", "name of a header"),
        ("HANDOFF_SERVE_ACCESS", "staff", "GROUP=LEVEL"),
        ("HANDOFF_SERVE_ACCESS", "staff=root", "GROUP=LEVEL"),
    ],
)
def test_a_setting_that_is_not_an_address_header_or_level_is_refused(
    name: str, value: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)

    with pytest.raises(ValueError, match=fault):
        Settings()


def test_the_settings_come_from_lists_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANDOFF_SERVE_PROXIES", "10.0.0.7, 192.0.2.0/24,2001:db8::/32")
    monkeypatch.setenv("HANDOFF_SERVE_ACCESS", "cn=staff=read, *=submit")

    settings = Settings()

    assert settings.serve_proxies == (PROXY, "192.0.2.0/24", "2001:db8::/32")
    assert settings.serve_access == ("cn=staff=read", "*=submit")
