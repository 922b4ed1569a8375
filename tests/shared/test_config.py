"""Settings out of the environment: lists of folders, and complaints that name the variable."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import pytest

from shared.config import load_settings
from shared.wire.errors import UserError


def test_folders_are_separated_as_in_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANDOFF_TOOLS_DIRS", os.pathsep.join(["/srv/tools", "mine"]))
    assert load_settings().tools_dirs == (Path("/srv/tools"), Path("mine"))


def test_a_json_list_of_folders_is_understood_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANDOFF_SPECIALISTS_DIRS", '["/srv/with:colon"]')
    assert load_settings().specialists_dirs == (Path("/srv/with:colon"),)


def test_a_wrong_setting_is_named_by_its_variable_without_its_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HANDOFF_LEASE_S", "canary")
    with pytest.raises(UserError, match="HANDOFF_LEASE_S") as raised:
        load_settings()
    assert "canary" not in "".join(traceback.format_exception(raised.value)), (
        "Celery shows all of it where an app cannot be loaded"
    )


@pytest.mark.parametrize("amount", ["inf", "nan", "1e300", "0", "0.0000001", "-1"])
def test_a_days_cap_is_an_amount_that_the_books_can_count(
    monkeypatch: pytest.MonkeyPatch, amount: str
) -> None:
    monkeypatch.setenv("HANDOFF_DAY_USD", amount)
    with pytest.raises(UserError, match="HANDOFF_DAY_USD"):
        load_settings()


@pytest.mark.parametrize(
    "url",
    [
        "foo",
        "http://canary@h/0",
        "redis://:canary@h:99999/0",
        "redis://h:1/canary",
        "redis://:can/ary@h:1/0",
        "redis://[::1",
    ],
)
def test_a_url_of_no_redis_is_refused_without_any_part_of_it(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("HANDOFF_REDIS_URL", url)
    with pytest.raises(UserError, match=r"HANDOFF_REDIS_URL.*it looks like") as raised:
        load_settings()
    assert "can" not in str(raised.value).replace("can be used", "").replace("cannot", "")
    assert "canary" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize(
    "url",
    [
        "redis://h",
        "rediss://:p@h:6379/3?ssl_cert_reqs=none",
        "sentinel://:p@a:26379/0?master_name=m;sentinel://b:26379",
    ],
)
def test_a_url_of_a_redis_is_taken(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("HANDOFF_REDIS_URL", url)
    assert load_settings().redis_url is not None


def test_a_list_that_is_no_json_is_one_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANDOFF_TOOLS_DIRS", "[/srv/tools")
    with pytest.raises(UserError, match="HANDOFF_TOOLS_DIRS"):
        load_settings()


@pytest.mark.parametrize(
    "url", ["canary", "http://canary@h/0", "redis://:canary@h:99999/0", "redis://:can ary@h/0"]
)
def test_a_url_of_no_broker_is_refused_without_any_part_of_it(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("HANDOFF_ON_END_BROKER_URL", url)
    with pytest.raises(UserError, match=r"HANDOFF_ON_END_BROKER_URL.*such as redis://") as raised:
        load_settings()
    told = "".join(traceback.format_exception(raised.value))
    assert "canary" not in told
    assert "can ary" not in told


@pytest.mark.parametrize(
    "url", ["redis://:pw@h:6379/0", "amqp://u:pw@h//", "sqs://", "sentinel://h:26379/0"]
)
def test_a_url_of_a_broker_is_taken_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("HANDOFF_ON_END_BROKER_URL", url)
    settings = load_settings()

    assert settings.on_end_broker_url is not None
    assert settings.on_end_broker_url.get_secret_value() == url
    assert "pw" not in repr(settings)
