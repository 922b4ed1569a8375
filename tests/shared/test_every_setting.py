"""Every setting has bounds. An invalid value is refused in one line that does not show the
value.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

import pytest
from pydantic import SecretStr

from handoff_queue.shared.settings.settings import Settings, load_settings
from handoff_queue.shared.types.errors import UserError

CANARY = "canary"
FIELDS = {
    str(field.validation_alias or f"HANDOFF_{name.upper()}"): (name, field)
    for name, field in Settings.model_fields.items()
}
OTHER_VARIABLES = (
    "ANTHROPIC_BEDROCK_BASE_URL",
    "ANTHROPIC_CUSTOM_HEADERS",
    "ANTHROPIC_FOUNDRY_API_KEY",
    "ANTHROPIC_FOUNDRY_BASE_URL",
    "ANTHROPIC_VERTEX_BASE_URL",
    "AWS_BEARER_TOKEN_BEDROCK",
    "HANDOFF_FAILPOINTS",
    "HANDOFF_HOME",
    "HANDOFF_READY_FILE",
    "HTTPS_PROXY",
    "https_proxy",
)
"""Variables that are validated with the settings but are not fields."""
BAD_VALUES = {
    "too long": CANARY * 20_000,
    "a line break": f"{CANARY}\n{CANARY}",
    "a control character": f"{CANARY}\x1b[31m",
    "half of a character": f"{CANARY}\udcff",
}


def types_in(annotation: Any) -> Iterator[Any]:
    """Yield each type that an annotation names, as in `SecretStr | None`."""
    yield annotation
    for part in get_args(annotation):
        yield from types_in(part)


SECRETS = [name for name, (_, f) in FIELDS.items() if SecretStr in types_in(f.annotation)]


def refusal() -> UserError:
    with pytest.raises(UserError) as refused:
        load_settings()
    return refused.value


@cache
def collect_refusals(kind: str) -> dict[str, UserError]:
    """Load the settings with a bad value in each variable, and return the errors by variable."""
    errors: dict[str, UserError] = {}
    for variable in (*FIELDS, *OTHER_VARIABLES):
        with pytest.MonkeyPatch.context() as changes:
            changes.setenv("ANTHROPIC_API_KEY", "sk-of-a-test")
            changes.setenv(variable, BAD_VALUES[kind])
            try:
                load_settings()
            except UserError as error:
                errors[variable] = error
    return errors


@pytest.mark.parametrize("kind", BAD_VALUES)
def test_a_value_that_no_setting_can_have_is_refused_in_one_line_that_names_the_variable(
    kind: str,
) -> None:
    errors = collect_refusals(kind)

    assert errors.keys() == {*FIELDS, *OTHER_VARIABLES}
    for variable, error in errors.items():
        assert variable in str(error)
        assert len(str(error).splitlines()) == 1, variable
        assert len(str(error)) < 500, variable


@pytest.mark.parametrize("kind", BAD_VALUES)
def test_the_error_and_its_cause_contain_no_part_of_a_refused_value(kind: str) -> None:
    for variable, error in collect_refusals(kind).items():
        assert CANARY not in "".join(traceback.format_exception(error)), variable
        assert error.__cause__ is None, variable
        assert error.__context__ is None, (
            f"{variable}: an error tracker reports it with the values of the settings"
        )


@pytest.mark.parametrize("variable", FIELDS)
def test_an_empty_variable_counts_as_not_set(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    name, field = FIELDS[variable]
    monkeypatch.setenv(variable, "")

    assert getattr(load_settings(), name) == field.default


@pytest.mark.parametrize("variable", SECRETS)
def test_a_secret_is_not_in_the_text_of_the_settings(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    value = f"redis://:{CANARY}@h/0" if variable.endswith("_URL") else CANARY
    monkeypatch.setenv(variable, value)

    settings = load_settings()

    assert getattr(settings, FIELDS[variable][0]).get_secret_value() == value
    assert CANARY not in f"{settings!r} {settings} {settings.model_dump_json()}"


@pytest.mark.parametrize(
    "value",
    [
        "redis://:pass\nword@h/0",
        "redis://:pass word@h/0",
        "redis://:pw@h ost/0",
        "redis://:pw@h../0",
        "redis://:pw@[::1]x/0",
        "redis://:pw@h:0/0",
        "redis://:pw@h/0#part",
        "sentinel://:pw@a;sentinel://b c",
        f"redis://:pw@{'h' * 300}/0",
    ],
)
def test_a_url_with_an_impossible_host_or_a_truncated_password_is_refused(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("HANDOFF_REDIS_URL", value)

    assert "HANDOFF_REDIS_URL" in str(refusal())


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HANDOFF_TOOLS_DIRS", '[""]'),
        ("HANDOFF_TOOLS_DIRS", "[null]"),
        ("HANDOFF_TOOLS_DIRS", "~no-such-user-here/tools"),
        ("HANDOFF_SPECIALISTS_DIRS", ":".join(["a"] * 101)),
        ("HANDOFF_ON_END_TASKS", ",".join(["a"] * 101)),
        ("HANDOFF_ON_END_TASKS", "a" * 201),
        ("HANDOFF_SUPERVISOR_MODEL", " padded "),
        ("HANDOFF_GATES", "a" * 4_097),
    ],
)
def test_a_list_or_a_name_outside_its_bounds_is_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)

    assert variable in str(refusal())


@pytest.mark.parametrize(
    "value",
    [
        "http://hooks.internal",
        "hooks:80",
        "hooks internal",
        "*",
        "*.*",
        "a,[::1]",
        "10.0.0.0/8",
    ],
)
def test_a_host_of_webhooks_is_a_name_or_an_address(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("HANDOFF_WEBHOOK_PRIVATE_HOSTS", value)

    assert "HANDOFF_WEBHOOK_PRIVATE_HOSTS: must be hosts with commas" in str(refusal())


def test_hosts_of_webhooks_are_read_in_small_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANDOFF_WEBHOOK_PRIVATE_HOSTS", "Hooks.internal, *.A.org,127.0.0.1,::1")

    hosts = load_settings().webhook_private_hosts
    assert hosts == ("hooks.internal", "*.a.org", "127.0.0.1", "::1")


def test_a_pattern_may_begin_with_a_bracket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANDOFF_ON_END_TASKS", "[sb]hop.*, billing.notify")

    assert load_settings().on_end_tasks == ("[sb]hop.*", "billing.notify")
