"""Settings are read from the environment, and errors name the variable."""

from __future__ import annotations

import os
import re
import traceback
from pathlib import Path
from typing import Any, get_args

import pytest
from annotated_types import Ge, Gt, Le
from pydantic.fields import FieldInfo

from handoff_queue.shared.settings.settings import Settings, load_settings
from handoff_queue.shared.types.errors import UserError
from tests.bounds import bounds_of


def _kinds(field: FieldInfo) -> set[Any]:
    return {getattr(kind, "__origin__", None) for kind in get_args(field.annotation)}


def test_folders_are_separated_as_in_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANDOFF_TOOLS_DIRS", os.pathsep.join(["/srv/tools", "mine"]))
    assert load_settings().tools_dirs == (Path("/srv/tools"), Path("mine"))


def test_folders_may_be_a_json_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANDOFF_SPECIALISTS_DIRS", '["/srv/with:colon"]')
    assert load_settings().specialists_dirs == (Path("/srv/with:colon"),)


def test_roles_have_their_own_effort_and_thinking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANDOFF_ROLE_EFFORT", "planner=high, router=low,")
    monkeypatch.setenv("HANDOFF_ROLE_THINKING", "judge=between_tools")
    settings = load_settings()
    assert settings.role_effort == ("planner=high", "router=low")
    assert settings.role_thinking == ("judge=between_tools",)


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("HANDOFF_LEASE_S", "abc", "7d, not 'abc'"),
        ("HANDOFF_LEASE_S", "0", "must be greater than 0.2, not 0"),
        ("HANDOFF_MODE", "xx", "must be 'auto', 'single', 'team' or 'adaptive', not 'xx'"),
        ("HANDOFF_MAX_DEPTH", "99", "must be at most 8, not 99"),
        ("HANDOFF_OFFLINE", "maybe", "must be true or false, not 'maybe'"),
        ("HANDOFF_ROLE_EFFORT", "planer=high", "the values low, medium, high, xhigh, max"),
        ("HANDOFF_ROLE_EFFORT", "judge=low,judge=max", "must name each role once"),
        ("HANDOFF_ROLE_EFFORT", "planner", "high, xhigh, max, not 'planner'"),
        ("HANDOFF_ROLE_THINKING", "judge=high", "the values adaptive, between_tools, disabled"),
    ],
)
def test_a_wrong_setting_is_named_by_its_variable_and_its_value(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, problem: str
) -> None:
    monkeypatch.setenv(variable, value)

    message = refusal()

    assert f"{variable}: " in message
    assert message.endswith(problem)


@pytest.mark.parametrize(
    "value", ["sk-canary", " hq_canary", "redis://:canary@h/0", "user:canary", "canary" * 10]
)
def test_a_secret_in_the_wrong_variable_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """Celery shows the whole error where an app cannot be loaded."""
    monkeypatch.setenv("HANDOFF_LEASE_S", value)

    assert "HANDOFF_LEASE_S" in refusal()


DURATIONS = [name for name in Settings.model_fields if name.endswith("_s")]


@pytest.mark.parametrize("name", DURATIONS)
def test_a_setting_in_seconds_takes_units(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    variable = f"HANDOFF_{name.upper()}"

    monkeypatch.setenv(variable, "1h30m")
    assert getattr(load_settings(), name) == 5_400
    monkeypatch.setenv(variable, "90")
    assert getattr(load_settings(), name) == 90
    monkeypatch.setenv(variable, "10 minutes")
    assert f"{variable}: must be a number of seconds, or a duration such as" in refusal()


@pytest.mark.parametrize("amount", ["inf", "nan", "1e300", "0", "0.0000001", "-1"])
def test_a_daily_cap_is_an_amount_within_the_range_of_the_accounts(
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
def test_an_invalid_redis_url_is_refused_without_any_part_of_the_url(
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
def test_a_redis_url_is_accepted(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("HANDOFF_REDIS_URL", url)
    assert load_settings().redis_url is not None


def test_an_invalid_json_list_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANDOFF_TOOLS_DIRS", "[/srv/tools")
    with pytest.raises(UserError, match="HANDOFF_TOOLS_DIRS"):
        load_settings()


@pytest.mark.parametrize(
    "url", ["canary", "http://canary@h/0", "redis://:canary@h:99999/0", "redis://:can ary@h/0"]
)
def test_an_invalid_broker_url_is_refused_without_any_part_of_the_url(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("HANDOFF_ON_END_BROKER_URL", url)
    with pytest.raises(UserError, match=r"HANDOFF_ON_END_BROKER_URL.*such as redis://") as raised:
        load_settings()
    message = "".join(traceback.format_exception(raised.value))
    assert "canary" not in message
    assert "can ary" not in message


@pytest.mark.parametrize(
    "url", ["redis://:pw@h:6379/0", "amqp://u:pw@h//", "sqs://", "sentinel://h:26379/0"]
)
def test_a_broker_url_is_accepted_and_not_shown(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("HANDOFF_ON_END_BROKER_URL", url)
    settings = load_settings()

    assert settings.on_end_broker_url is not None
    assert settings.on_end_broker_url.get_secret_value() == url
    assert "pw" not in repr(settings)


NUMBERS = {
    f"HANDOFF_{name.upper()}": field
    for name, field in Settings.model_fields.items()
    if {int, float} & {field.annotation, *get_args(field.annotation), *_kinds(field)}
}
SECRETS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "HANDOFF_WEBHOOK_SECRET")


@pytest.mark.parametrize("variable", NUMBERS)
def test_every_number_has_a_lower_and_an_upper_bound(variable: str) -> None:
    bounds = {type(bound) for bound in bounds_of(NUMBERS[variable])}

    assert bounds & {Ge, Gt}
    assert Le in bounds


@pytest.mark.parametrize("variable", ["HANDOFF_RETENTION_S", "HANDOFF_DRAIN_S"])
def test_a_negative_number_of_seconds_is_refused_with_the_lower_bound(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "-1")

    assert re.search(rf"{variable}: must be (at least|greater than) \d+, not -1$", refusal())


@pytest.mark.parametrize("variable", NUMBERS)
def test_a_number_outside_its_bounds_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    for value in ("nan", "inf", "-inf", "1e400", "-1", "9" * 23, "9" * 5_000, "x"):
        monkeypatch.setenv(variable, value)

        assert variable in refusal(), value


@pytest.mark.parametrize("value", ["canary\n", "canary\r\n", " canary", "can\nary", "canarý"])
@pytest.mark.parametrize("variable", SECRETS)
def test_a_secret_that_is_invalid_in_a_header_is_refused_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)

    assert variable in refusal()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ANTHROPIC_BASE_URL", "canary.example"),
        ("ANTHROPIC_BASE_URL", "https://user:canary@h.example/?x=1"),
        ("ANTHROPIC_CUSTOM_HEADERS", "X-Key: can\0ary".replace("\0", "\x01")),
        ("ANTHROPIC_CUSTOM_HEADERS", "canary"),
        ("ANTHROPIC_FOUNDRY_API_KEY", "canary\n"),
        ("AWS_BEARER_TOKEN_BEDROCK", "canary "),
        ("ANTHROPIC_VERTEX_BASE_URL", "canary"),
        ("HTTPS_PROXY", "http://user:canary@p:port"),
        ("HANDOFF_SUPERVISOR_MODEL", "can\nary"),
        ("HANDOFF_SUPERVISOR_MODEL", "canary" * 100),
    ],
)
def test_a_text_that_no_request_can_be_made_with_is_refused_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-of-a-test")
    monkeypatch.setenv(variable, value)

    assert variable in refusal()


def test_the_settings_repr_contains_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in SECRETS:
        monkeypatch.setenv(variable, "canary")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "https://team:canary@gateway.example")
    monkeypatch.setenv("HANDOFF_REDIS_URL", "redis://:canary@h/0")

    assert "canary" not in f"{load_settings()!r} {load_settings()}"


def refusal() -> str:
    with pytest.raises(UserError) as refused:
        load_settings()
    message = "".join(traceback.format_exception(refused.value))
    assert "canary" not in message
    assert "\n" not in str(refused.value)
    return str(refused.value)
