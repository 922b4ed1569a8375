"""`handoff token` shows a secret once, and refuses bad input with one line."""

from __future__ import annotations

import json
import subprocess

import pytest

from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.api_tokens import AccessLevel
from tests.e2e.commands import BAD_INPUT, Handoff, error_line

DAY_S = 86_400


@pytest.fixture
def token(handoff: Handoff, redis_url: str) -> RunToken:
    return RunToken(handoff, redis_url)


class RunToken:
    """`handoff token` on the Redis of the test."""

    def __init__(self, handoff: Handoff, redis_url: str) -> None:
        self.handoff, self.redis_url = handoff, redis_url

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.handoff.run("token", *arguments, HANDOFF_REDIS_URL=self.redis_url)

    def out(self, *arguments: str) -> str:
        completed = self(*arguments)
        assert completed.returncode == 0, completed.stderr
        return completed.stdout


def test_only_the_secret_goes_to_standard_output(token: RunToken, store: Store) -> None:
    created = token("create", "billing", "--access", "submit", "--tenant", "acme")
    secret = created.stdout.removesuffix("\n")
    stored = store.api_tokens.find(secret)

    assert created.returncode == 0
    assert stored is not None
    assert (stored.name, stored.access, stored.tenant) == ("billing", AccessLevel.SUBMIT, "acme")
    assert secret not in created.stderr
    assert f"`handoff token revoke {stored.id}`" in created.stderr


def test_a_token_ends_after_its_time(token: RunToken, store: Store) -> None:
    stored = store.api_tokens.find(
        token.out("create", "billing", "--access", "read", "--expires", "30d").strip()
    )

    assert stored is not None
    assert stored.expires_at is not None
    assert stored.expires_at - stored.created_at == pytest.approx(30 * DAY_S, abs=60)


def test_tokens_are_listed_without_their_secrets(token: RunToken, store: Store) -> None:
    first, first_secret = store.api_tokens.create("billing", AccessLevel.SUBMIT, "acme")
    second, second_secret = store.api_tokens.create("operators", AccessLevel.ADMIN, None)
    lines = token.out("list").splitlines()
    listed = json.loads(token.out("--json"))

    assert lines[0].split() == [first.id, "submit", "tenant", "acme", "no", "end", "billing"]
    assert lines[1].split() == [second.id, "admin", "every", "tenant", "no", "end", "operators"]
    assert [entry["id"] for entry in listed] == [first.id, second.id]
    for secret in (first_secret, second_secret):
        assert secret.rpartition(f"{first.id}_")[2] not in "\n".join(lines) + json.dumps(listed)


def test_without_tokens_the_list_says_how_to_create_one(token: RunToken) -> None:
    completed = token()

    assert (completed.returncode, completed.stdout) == (0, "")
    assert "handoff token create" in completed.stderr


def test_a_revoked_token_opens_nothing(token: RunToken, store: Store) -> None:
    made, secret = store.api_tokens.create("billing", AccessLevel.SUBMIT, "acme")

    assert token.out("revoke", made.id) == f"token {made.id} is revoked\n"
    assert store.api_tokens.find(secret) is None


def test_a_script_reads_the_new_and_the_revoked_token_as_json(
    token: RunToken, store: Store
) -> None:
    created = json.loads(token.out("create", "billing", "--access", "submit", "--json"))
    stored = store.api_tokens.find(created.pop("secret"))

    assert stored is not None
    assert created == stored.model_dump(mode="json")
    assert json.loads(token.out("revoke", stored.id, "--json")) == {"revoked": stored.id}
    assert not store.api_tokens.has_tokens()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["create", "billing"], "needs --access: use one of read, submit, operate, admin"),
        (["create", "--access", "read"], "needs a NAME, such as billing"),
        (["create", "", "--access", "read"], "the token's name is empty"),
        (["create", "a\nb", "--access", "read"], "without control characters"),
        (["create", "\x1b[2J", "--access", "read"], "without control characters"),
        (["create", "billing", "--access", "owner"], "'owner' is not one of 'read'"),
        (["create", "billing", "--access", "read", "--tenant", " "], "--tenant is empty"),
        (["create", "billing", "--access", "admin", "--tenant", "acme"], "tokens for every tenant"),
        (
            ["create", "billing", "--access", "read", "--expires", "soon"],
            "'soon' is not a duration",
        ),
        (["revoke"], "needs an ID"),
        (["revoke", "x"], "there is no token 'x' (see `handoff token list`)"),
        (["revoke", "x", "--access", "read"], "only `handoff token create` takes --access"),
        (["list", "x"], "takes no NAME"),
        (["burn"], "'burn' is not one of"),
    ],
)
def test_bad_input_is_refused(
    token: RunToken, store: Store, arguments: list[str], problem: str
) -> None:
    assert problem in error_line(token(*arguments), BAD_INPUT)
    assert not store.api_tokens.has_tokens()
