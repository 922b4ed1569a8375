"""A tool gets the credentials of the job's tenant, which no model, result or log sees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from handoff_queue.shared.agent.tool import Tool
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.errors import InvalidTool, UserError
from handoff_queue.workers.tools.tenant_credentials import load_provider
from handoff_queue.workers.tools.user_tools import load_tools
from tests.doubles.function_tools import hosted, write_tools
from tests.workers.tools.contexts import ToolHarness

pytestmark = pytest.mark.slow

TOOLS = '''
"""Tools that use, print and return the credentials of a tenant."""

import json
import os

from handoff_queue import CallContext, ToolFailed, tool


@tool(credentials=["CRM_TOKEN"])
def length() -> int:
    """Return the length of the credential."""
    return len(os.environ["CRM_TOKEN"])


@tool(credentials=["CRM_TOKEN"], secrets=["SHOP_TOKEN"])
def leak() -> str:
    """Return and print all variables."""
    print(os.environ["CRM_TOKEN"], flush=True)
    return json.dumps(dict(os.environ))


@tool(credentials=["CRM_TOKEN"])
def fail(text: str) -> str:
    """Fail with the credential in the error."""
    raise ToolFailed("the token is " + os.environ["CRM_TOKEN"] + text)


def other() -> str:
    """Return all variables of a tool without credentials."""
    return json.dumps(dict(os.environ))


@tool(credentials=["MISSING"])
def missing() -> str:
    """Need a credential that no tenant has."""
    return "called"


@tool(credentials=["CRM_TOKEN"])
def whose(tenant: str, context: CallContext) -> str:
    """Return the tenant of the call, whatever the model asks for."""
    return f"{context.tenant} {len(os.environ['CRM_TOKEN'])}"
'''
VALUES: dict[tuple[str, str], object] = {
    ("acme", "CRM_TOKEN"): 'canary-of-acme "x',
    ("globex", "CRM_TOKEN"): "canary-of-globex-with-more",
}
ASKED: list[tuple[str, str]] = []


def credential_of(tenant: str, name: str) -> object:
    """Return the value of a credential, or raise it if it is an error."""
    ASKED.append((tenant, name))
    value = VALUES.get((tenant, name))
    if isinstance(value, Exception):
        raise value
    return value


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Tool]]:
    folder = write_tools(tmp_path_factory.mktemp("tools") / "files", {"crm": TOOLS})
    with hosted(folder, provider=credential_of) as tools_by_name:
        yield tools_by_name


def harness_of(tenant: str) -> ToolHarness:
    harness = ToolHarness()
    harness.context = replace(harness.context, tenant=lambda: tenant)
    return harness


def test_each_tenant_has_its_own_credential_and_the_model_cannot_choose_a_tenant(
    tools: dict[str, Tool],
) -> None:
    for tenant in ("acme", "globex"):
        size = len(str(VALUES[tenant, "CRM_TOKEN"]))
        assert harness_of(tenant).call(tools["length"]) == str(size)
        assert harness_of(tenant).call(tools["whose"], tenant="globex") == f"{tenant} {size}"


def test_the_values_are_in_no_result_and_in_no_log(
    tools: dict[str, Tool], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "canary-of-the-shop")
    with caplog.at_level("INFO"):
        result = harness_of("acme").call(tools["leak"])
    (line,) = [record.getMessage() for record in caplog.records if "printed" in record.getMessage()]

    assert "canary" not in result
    assert "[CRM_TOKEN]" in result
    assert "[SHOP_TOKEN]" in result
    assert "canary" not in caplog.text
    assert "[CRM_TOKEN]" in line


def test_the_values_are_in_no_error(tools: dict[str, Tool]) -> None:
    failure = harness_of("globex").failure(tools["fail"], text="!")

    assert failure == "the token is [CRM_TOKEN]!"


def test_a_later_call_of_another_tool_or_tenant_finds_no_credential(
    tools: dict[str, Tool],
) -> None:
    harness_of("acme").call(tools["length"])

    seen = harness_of("acme").call(tools["other"])

    assert "canary" not in seen
    assert "CRM_TOKEN" not in seen


@pytest.mark.parametrize("tool", ["missing", "length"])
def test_a_missing_credential_is_one_line_and_the_tool_does_not_run(
    tool: str, tools: dict[str, Tool]
) -> None:
    failure = harness_of("nobody").failure(tools[tool])

    name = {"missing": "MISSING", "length": "CRM_TOKEN"}[tool]
    assert failure == f"{tool} is not set up for this tenant: it has no {name}"


def test_only_the_names_in_the_code_are_asked_for(tools: dict[str, Tool]) -> None:
    ASKED.clear()
    harness_of("acme").call(tools["other"])
    harness_of("acme").call(tools["length"])

    assert ASKED == [("acme", "CRM_TOKEN")]


@pytest.mark.parametrize("wrong", [None, "", b"bytes", 7, "a\0b", "x" * 32_769, ValueError("x")])
def test_a_wrong_credential_is_refused_without_its_value(
    wrong: object, tools: dict[str, Tool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(VALUES, ("odd", "CRM_TOKEN"), wrong)

    failure = harness_of("odd").failure(tools["length"])

    assert failure == "length is not set up for this tenant: it has no CRM_TOKEN"


def test_without_a_function_the_tool_says_which_setting_is_missing(tmp_path: Path) -> None:
    with hosted(write_tools(tmp_path / "files", {"crm": TOOLS})) as tools_by_name:
        failure = harness_of("acme").failure(tools_by_name["length"])

    assert "has no HANDOFF_TENANT_CREDENTIAL_FUNCTION" in failure


def test_a_name_that_is_a_secret_and_a_credential_is_refused(tmp_path: Path) -> None:
    text = TOOLS.replace('secrets=["SHOP_TOKEN"]', 'secrets=["CRM_TOKEN"]')

    files = write_tools(tmp_path / "files", {"crm": text})
    refused = pytest.raises(InvalidTool, match="CRM_TOKEN is in its secrets and in its credentials")

    with refused:
        load_tools(files)


def test_the_setting_names_a_function_or_is_refused_in_one_line() -> None:
    def settings_with(place: str) -> Settings:
        return Settings(offline=True, tenant_credential_function=place)

    place = f"{__name__}:credential_of"
    assert load_provider(settings_with(place)) is not None
    assert load_provider(Settings(offline=True)) is None
    with pytest.raises(UserError, match="cannot be imported"):
        load_provider(settings_with("no_such_module:f"))
