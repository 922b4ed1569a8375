"""All parts use the address of one Redis URL. The error for an invalid URL does not show the
URL.
"""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.settings.redis_url import (
    SENTINEL_TIMEOUT_S,
    RedisAddress,
    read_address,
)


def test_missing_parts_of_a_url_have_the_defaults_of_redis_tools() -> None:
    assert read_address("redis://") == RedisAddress("redis", (("localhost", 6379),))
    assert read_address("sentinel://a;sentinel://b:1") == RedisAddress(
        "sentinel", (("a", 26379), ("b", 1)), master_name="mymaster"
    )


@given(st.text(min_size=1), st.text(min_size=1))
def test_user_and_password_may_hold_any_percent_encoded_text(user: str, password: str) -> None:
    address = read_address(f"redis://{quote(user, safe='')}:{quote(password, safe='')}@h:1/2")

    assert (address.username, address.password, address.hosts, address.database) == (
        user,
        password,
        (("h", 1),),
        2,
    )


def test_tls_means_that_certificates_are_checked() -> None:
    assert read_address("rediss://h").tls == {
        "ssl_cert_reqs": "required",
        "ssl_check_hostname": True,
    }
    assert read_address("rediss://h?ssl_cert_reqs=none&ssl_check_hostname=false").tls == {
        "ssl_cert_reqs": "none",
        "ssl_check_hostname": False,
    }


def test_each_sentinel_is_asked_once_with_its_own_options_and_a_short_timeout() -> None:
    address = read_address(
        "sentinel://:p@a/0?master_name=m&ssl=true&ssl_ca_certs=/ca&sentinel_username=u&sentinel_password=s;sentinel://b"
    )

    assert address.sentinel_options == {
        "username": "u",
        "password": "s",
        "ssl": True,
        "ssl_cert_reqs": "required",
        "ssl_check_hostname": True,
        "ssl_ca_certs": "/ca",
        "socket_timeout": SENTINEL_TIMEOUT_S,
        "socket_connect_timeout": SENTINEL_TIMEOUT_S,
        "retry": None,
    }


def test_passwords_are_in_no_repr() -> None:
    assert "canary" not in repr(read_address("sentinel://:canary-1@a?sentinel_password=canary-2"))


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "must begin with"),
        ("unix:///canary", "must begin with"),
        ("sentinel://a;canary://b", "must begin with"),
        ("redis://:canary@h:port/0", "port"),
        ("sentinel://a;sentinel://:can/ary@b", "port"),
        ("redis://h/canary", "database"),
        ("redis://h?canary=1", "unknown option"),
        ("redis://h?prefix=can+ary", "prefix"),
        ("rediss://h?master_name=canary", "unknown option"),
        ("rediss://h?ssl_cert_reqs=canary", "required, optional, none"),
        ("sentinel://h?ssl=canary", "true, false"),
        ("sentinel://h?master_name=", "master_name is empty"),
        ("sentinel://h?ssl_ca_certs=canary", "ssl=true"),
        ("sentinel://a:1;redis://canary:2", "must name a sentinel"),
        ("rediss://h?ssl_ca_certs=canary&ssl_keyfile=canary", "ssl_keyfile needs ssl_certfile"),
    ],
)
def test_an_invalid_url_is_explained_without_any_part_of_the_url(url: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as raised:
        read_address(url)

    assert "canary" not in str(raised.value)
