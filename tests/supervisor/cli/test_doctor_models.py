"""`handoff doctor` names the day of a model's retirement, the abilities that it lacks, and limits
of a specialist's context that it cannot have.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from handoff_queue.shared.providers import model_facts
from handoff_queue.shared.providers.model_facts import ModelServer, create_model_server
from handoff_queue.shared.settings.settings import OFFLINE_MODEL, Settings
from handoff_queue.shared.types.context_edits import COMPACTION_BETA
from handoff_queue.shared.types.model import Effort, Thinking
from handoff_queue.shared.types.presence import Announcement
from handoff_queue.shared.types.specialist import ContextManager, ContextRules, Tier
from handoff_queue.supervisor.cli.doctor import check_model_access
from handoff_queue.supervisor.cli.doctor_models import (
    check_code_execution,
    check_contexts,
    check_models,
    group_specialists_by_managed_model,
    group_specialists_by_model,
    group_specialists_by_option,
    list_configured_roles,
)
from handoff_queue.supervisor.cli.doctor_processes import CheckLevel, Finding
from tests.doubles.handoffs import a_spec
from tests.workers.tools.servers import Page, serving

SUPPORTED, LACKING = {"supported": True}, {"supported": False}


def test_a_model_that_retires_is_a_warning_with_its_day() -> None:
    facts = {"lifecycle": "deprecated", "retires_at": "2026-11-30T00:00:00Z"}
    with serving({"/v1/models/old": Page(json.dumps(facts).encode())}) as server:
        (finding,) = check_models(ModelServer(f"http://127.0.0.1:{server.port}", {}), {"old": []})
    assert finding.level is CheckLevel.WARN
    assert finding.report == "old is deprecated and retires on 2026-11-30"
    assert "HANDOFF_SPECIALIST_MODEL" in finding.fix


def test_a_retired_model_of_a_specialist_names_the_files_to_change() -> None:
    specs = [
        a_spec(name="reader").model_copy(update={"model": "old"}),
        a_spec(name="writer").model_copy(update={"models": ("new", "old")}),
        a_spec(name="other"),
    ]
    models = group_specialists_by_model(["usual", "new"], specs)
    assert models == {"usual": [], "new": ["writer"], "old": ["reader", "writer"]}
    with serving({"/v1/models/old": Page(b'{"lifecycle": "retired"}')}) as server:
        (finding,) = check_models(ModelServer(f"http://127.0.0.1:{server.port}", {}), models)
    assert finding.report == "old is retired"
    assert finding.fix.endswith("in the files of these specialists: reader, writer")


def test_a_model_that_lacks_effort_is_named() -> None:
    facts = {"lifecycle": "active", "capabilities": {"effort": LACKING, "thinking": SUPPORTED}}
    with serving({"/v1/models/small": Page(json.dumps(facts).encode())}) as server:
        (finding,) = check_models(ModelServer(f"http://127.0.0.1:{server.port}", {}), {"small": []})
    assert finding.level is CheckLevel.OK
    assert finding.report == "small has no effort; its calls leave it out"


def test_a_level_or_type_of_a_file_that_its_model_lacks_is_named() -> None:
    specs = [
        a_spec(name="reader").model_copy(update={"effort": Effort.MAX}),
        a_spec(name="writer").model_copy(
            update={"effort": Effort.HIGH, "thinking": Thinking.BETWEEN_TOOLS, "models": ("small",)}
        ),
    ]
    options = group_specialists_by_option(specs, {Tier.CHEAP: "small", Tier.CAPABLE: "small"})
    capabilities = {
        "effort": {**SUPPORTED, "high": SUPPORTED, "max": LACKING},
        "thinking": {**SUPPORTED, "types": {"adaptive": LACKING, "between_tools": LACKING}},
    }
    facts = json.dumps({"capabilities": capabilities}).encode()
    with serving({"/v1/models/small": Page(facts)}) as server:
        at = ModelServer(f"http://127.0.0.1:{server.port}", {})
        reports = [finding.report for finding in check_models(at, {}, {}, options)]

    assert reports == [
        "small has no `effort: max`; the calls for reader leave it out",
        "small has no `thinking: between_tools`; the calls for writer leave it out",
    ]


def test_the_effort_and_thinking_of_a_role_are_compared_with_its_model() -> None:
    settings = Settings(
        offline=False,
        supervisor_model="capable",
        specialist_model="cheap",
        review_model="other",
        role_effort=("router=low", "judge=max"),
        role_thinking=("planner=disabled",),
    )
    roles = list_configured_roles(settings)
    assert group_specialists_by_option(roles, {}) == {
        "cheap": {("effort", "low"): ["router"]},
        "other": {("effort", "max"): ["judge"]},
        "capable": {("thinking", "types", "disabled"): ["planner"]},
    }


def test_a_model_without_the_providers_edits_is_named_for_the_files_that_ask_for_them() -> None:
    managed = ContextRules(managed_by=ContextManager.PROVIDER)
    specs = [
        a_spec(name="reader").model_copy(update={"context": managed}),
        a_spec(name="writer").model_copy(update={"context": managed, "model": "large"}),
        a_spec(name="other").model_copy(update={"context": ContextRules()}),
    ]
    models = group_specialists_by_managed_model(
        specs, {Tier.CHEAP: "small", Tier.CAPABLE: "capable"}
    )
    assert models == {"small": ["reader"], "large": ["writer"]}
    both = {
        "context_management": {**SUPPORTED, "clear_tool_uses_20250919": SUPPORTED},
        "compaction": {**SUPPORTED, "summarize": SUPPORTED},
    }
    pages = {
        "/v1/models/large": Page(json.dumps({"capabilities": both}).encode()),
        "/v1/models/small": Page(
            json.dumps({"capabilities": {**both, "compaction": LACKING}}).encode()
        ),
    }
    with serving(pages) as server:
        at = ModelServer(f"http://127.0.0.1:{server.port}", {})
        (finding,) = check_models(at, {"small": [], "large": []}, models)
        gateway = list(check_models(at, {}, {"unknown": ["reader"]}))
    assert finding.level is CheckLevel.OK
    assert finding.report == "small has no compaction; the workers do it themselves for reader"
    assert gateway[0].report.startswith("unknown has no context editing and no compaction;")


def facts_page(name: str, code: dict[str, Any]) -> dict[str, Any]:
    return {"id": name, "capabilities": {"server_tools": {"code_execution": code}}}


def test_a_specialist_whose_model_has_no_code_execution_is_a_warning_with_able_models() -> None:
    small, large = facts_page("small", LACKING), facts_page("large", SUPPORTED)
    pages = {
        "/v1/models/small": Page(json.dumps(small).encode()),
        "/v1/models/large": Page(json.dumps(large).encode()),
        "/v1/models?limit=1000": Page(json.dumps({"data": [small, large]}).encode()),
    }
    settings = Settings(specialist_model="small", anthropic_base_url="http://127.0.0.1:1")
    specs = [a_spec(name="writer"), a_spec("code_execution", name="coder")]
    able = specs[1].model_copy(update={"model": "large"})
    with serving(pages) as server:
        at = ModelServer(f"http://127.0.0.1:{server.port}", {})
        (finding,) = check_code_execution(at, settings, specs)
        assert list(check_code_execution(at, settings, [able])) == []

    assert finding == Finding(
        CheckLevel.WARN,
        "specialist coder",
        "small has no code execution, which `sandbox: provider` needs",
        "write `sandbox: local`, or name another model: large",
    )


def test_the_key_does_not_follow_a_redirect_of_the_models_server() -> None:
    small = json.dumps(facts_page("small", LACKING)).encode()
    with serving({"/elsewhere": Page(small)}) as other:
        location = {"Location": f"http://127.0.0.1:{other.port}/elsewhere"}
        redirect = Page(b"", status=302, headers=location)
        with serving({"/v1/models/small": redirect}) as server:
            facts = ModelServer(f"http://127.0.0.1:{server.port}", {}).fetch_facts("small")

    assert facts == {}


def test_doctor_sends_the_headers_of_the_user_to_the_models_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = "X-Team: red\nanthropic-beta: context-1m-2025-08-07"
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", own)
    with serving({"/v1/models?limit=1": Page(b"{}")}) as server:
        settings = Settings.model_validate(
            {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.port}", "ANTHROPIC_API_KEY": "sk-k"}
        )
        list(check_models(create_model_server(settings), {}, {"small": ["reader"]}))
        assert check_model_access(settings)[0] == "ok"
    about_model, about_key = server.request_headers
    assert (about_model["X-Team"], about_key["X-Team"]) == ("red", "red")
    assert about_model["Anthropic-Beta"] == f"context-1m-2025-08-07,{COMPACTION_BETA}"


@pytest.mark.parametrize("body", [b"", b"[]", b"<html>", b'{"capabilities": {"effort": 1}}'])
def test_a_server_without_these_facts_gives_no_finding(body: bytes) -> None:
    with serving({"/v1/models/any": Page(body)}) as server:
        at = ModelServer(f"http://127.0.0.1:{server.port}", {})
        assert list(check_models(at, {"any": [], "unknown": []})) == []


def test_an_answer_that_is_too_long_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"lifecycle": "retired"}'
    monkeypatch.setattr(model_facts, "MAX_ANSWER_BYTES", len(body) - 1)
    with serving({"/v1/models/old": Page(body)}) as server:
        at = ModelServer(f"http://127.0.0.1:{server.port}", {})
        assert list(check_models(at, {"old": []})) == []


WINDOW_200K, STEP_100K, WINDOW_1M = "claude-haiku-4-5", "claude-haiku-5-5", "claude-opus-5-5"


def findings(
    model: str, provider: str = "anthropic", price_as: str | None = None, /, **context: Any
) -> list[Finding]:
    """Return the findings for a worker with one specialist, whose default is this model."""
    spec = a_spec(name="reader").model_copy(update={"context": ContextRules(**context)})
    worker = Announcement(worker="w", specialists=(spec,), model=provider, models={"reader": model})
    return list(check_contexts([worker, worker.model_copy(update={"worker": "w2"})], price_as))


def test_a_limit_above_the_window_of_the_model_is_one_warning_for_all_workers() -> None:
    (finding,) = findings(WINDOW_200K, clear_tools_at=150_000, compact_at=200_000)
    assert finding == Finding(
        CheckLevel.WARN,
        "specialist reader",
        "context.compact_at is 200,000 tokens; claude-haiku-4-5 has a context window of 200,000, so"
        " the server refuses requests first",
        "lower context.compact_at in the file of reader",
    )


def test_a_limit_above_the_price_step_is_a_warning() -> None:
    (finding,) = findings(STEP_100K, clear_tools_at=150_000)
    assert finding.report == (
        "context.clear_tools_at is 150,000 tokens; claude-haiku-5-5 has a higher price above"
        " 100,000"
    )


@pytest.mark.parametrize(
    ("model", "provider"),
    [(WINDOW_1M, "anthropic"), (OFFLINE_MODEL, "anthropic"), (WINDOW_200K, "offline")],
)
def test_a_limit_that_fits_and_the_offline_model_give_no_finding(model: str, provider: str) -> None:
    assert findings(model, provider, clear_tools_at=300_000) == []


def test_the_window_of_an_unknown_model_counts_as_200_000_tokens() -> None:
    assert findings("a-local-model", clear_tools_at=199_999) == []
    (finding,) = findings("a-local-model", clear_tools_at=200_000)
    assert finding.report == (
        "context.clear_tools_at is 200,000 tokens; a-local-model is not known, so its context"
        " window counts as 200,000"
    )
    assert "HANDOFF_PRICE_AS" in finding.fix


def test_the_model_of_the_price_list_gives_the_limits_of_an_unknown_model() -> None:
    (finding,) = findings("a-local-model", "anthropic", WINDOW_200K, clear_tools_at=300_000)
    assert "a-local-model has a context window of 200,000" in finding.report


def test_each_model_that_a_file_names_is_compared() -> None:
    spec = a_spec(name="reader").model_copy(
        update={
            "context": ContextRules(clear_tools_at=150_000),
            "models": (WINDOW_1M, STEP_100K),
        }
    )
    worker = Announcement(worker="w", specialists=(spec,), model="anthropic")
    (finding,) = check_contexts([worker], None)
    assert STEP_100K in finding.report


def test_a_specialist_without_own_limits_gives_no_finding() -> None:
    worker = Announcement(
        worker="w", specialists=(a_spec(),), model="anthropic", models={"researcher": STEP_100K}
    )
    assert list(check_contexts([worker], None)) == []
