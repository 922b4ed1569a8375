"""A token of the API opens what its secret proves, and the store never holds the secret."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.api_tokens import AccessLevel
from handoff_queue.shared.types.errors import UserError
from tests.waiting import wait_until

YEAR_S = 365 * 24 * 3_600


def test_the_secret_of_a_token_finds_the_token(store: Store) -> None:
    token, secret = store.api_tokens.create("billing", AccessLevel.SUBMIT, "acme")

    assert re.fullmatch(rf"hq_{token.id}_[A-Za-z0-9_-]{{43}}", secret)
    assert store.api_tokens.find(secret) == token
    assert (token.name, token.access, token.tenant, token.expires_at) == (
        "billing",
        AccessLevel.SUBMIT,
        "acme",
        None,
    )


def test_redis_holds_no_part_of_a_secret(store: Store) -> None:
    token, secret = store.api_tokens.create("billing", AccessLevel.READ, None)
    stored = store.connection.redis.hget(keys.TOKENS, token.id).decode()

    assert secret.removeprefix(f"hq_{token.id}_")[:8] not in stored


@pytest.mark.parametrize(
    "spoilt",
    [
        lambda _: "",
        lambda _: "hq_",
        lambda secret: secret[:-1],
        lambda secret: secret + "\n",
        lambda secret: secret[:-1] + ("a" if secret[-1] != "a" else "b"),
        lambda secret: secret.replace(secret[3:15], "0123456789ab"),
        lambda secret: secret.upper(),
        lambda _: "hq_0123456789ab_" + "\N{LATIN SMALL LETTER E WITH ACUTE}" * 43,
    ],
)
def test_another_text_finds_no_token(store: Store, spoilt: Callable[[str], str]) -> None:
    _, secret = store.api_tokens.create("billing", AccessLevel.ADMIN, None)

    assert store.api_tokens.find(spoilt(secret)) is None


def test_the_secret_of_one_token_does_not_open_another(store: Store) -> None:
    first, first_secret = store.api_tokens.create("first", AccessLevel.READ, None)
    second, second_secret = store.api_tokens.create("second", AccessLevel.ADMIN, None)

    assert store.api_tokens.find(second_secret.replace(second.id, first.id)) is None
    assert store.api_tokens.find(first_secret) == first


def test_a_revoked_token_is_not_found(store: Store) -> None:
    token, secret = store.api_tokens.create("billing", AccessLevel.READ, None)

    assert store.api_tokens.revoke(token.id)
    assert store.api_tokens.find(secret) is None
    assert not store.api_tokens.revoke(token.id)


@pytest.mark.slow
def test_an_expired_token_is_listed_but_not_found(store: Store) -> None:
    soon = store.connection.now() + 1
    token, secret = store.api_tokens.create("billing", AccessLevel.READ, None, soon)

    wait_until(lambda: store.api_tokens.find(secret) is None, expected="the end of the token")

    assert store.api_tokens.list_all() == [token]
    assert store.api_tokens.has_tokens()


def test_a_token_that_expires_later_is_found(store: Store) -> None:
    later = store.connection.now() + YEAR_S
    token, secret = store.api_tokens.create("billing", AccessLevel.READ, None, later)

    assert store.api_tokens.find(secret) == token


def test_tokens_exist_only_until_the_last_is_revoked(store: Store) -> None:
    assert not store.api_tokens.has_tokens()
    token, _ = store.api_tokens.create("billing", AccessLevel.READ, None)
    assert store.api_tokens.has_tokens()
    store.api_tokens.revoke(token.id)
    assert not store.api_tokens.has_tokens()


def test_tokens_are_listed_in_the_order_of_their_creation(store: Store) -> None:
    tokens = [store.api_tokens.create(name, AccessLevel.READ, None)[0] for name in ("c", "a", "b")]

    assert store.api_tokens.list_all() == tokens


def test_a_token_of_another_version_gives_no_access_and_can_be_revoked(store: Store) -> None:
    token, secret = store.api_tokens.create("billing", AccessLevel.READ, None)
    text = store.connection.redis.hget(keys.TOKENS, token.id).decode()
    store.connection.redis.hset(keys.TOKENS, token.id, text.replace('"read"', '"owner"'))

    assert store.api_tokens.find(secret) is None
    assert store.api_tokens.list_all() == []
    assert store.api_tokens.has_tokens()
    assert store.api_tokens.revoke(token.id)


@pytest.mark.parametrize("name", ["", "  ", "two\nlines", "\x1b[31mred", "n" * 101, "\ud800"])
def test_a_name_that_is_not_a_line_of_text_is_refused(store: Store, name: str) -> None:
    with pytest.raises(UserError, match="the token's name"):
        store.api_tokens.create(name, AccessLevel.READ, None)
    with pytest.raises(UserError, match="the tenant's name"):
        store.api_tokens.create("billing", AccessLevel.READ, name)
    assert not store.api_tokens.has_tokens()


def test_an_admin_has_no_tenant(store: Store) -> None:
    with pytest.raises(UserError, match="every tenant"):
        store.api_tokens.create("billing", AccessLevel.ADMIN, "acme")


@pytest.mark.parametrize("expires_at", [0.0, float("inf"), float("nan")])
def test_the_end_of_a_token_is_in_the_future(store: Store, expires_at: float) -> None:
    with pytest.raises(UserError, match="in the future"):
        store.api_tokens.create("billing", AccessLevel.READ, None, expires_at)


@pytest.mark.parametrize("level", AccessLevel)
def test_each_level_includes_itself_and_the_levels_before_it(level: AccessLevel) -> None:
    order = [AccessLevel.READ, AccessLevel.SUBMIT, AccessLevel.OPERATE, AccessLevel.ADMIN]

    assert [other for other in order if level.includes(other)] == order[: order.index(level) + 1]
