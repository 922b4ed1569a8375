"""`handoff doctor` names the day of a model's retirement, and the abilities that it lacks."""

from __future__ import annotations

import json

import pytest

from handoff_queue.supervisor.cli.doctor_models import named_models, of_models
from handoff_queue.supervisor.cli.doctor_processes import Level
from tests.doubles.handoffs import a_spec
from tests.workers.tools.servers import Page, serving

SUPPORTED, LACKING = {"supported": True}, {"supported": False}


def test_a_model_that_retires_is_a_warning_with_its_day() -> None:
    facts = {"lifecycle": "deprecated", "retires_at": "2026-11-30T00:00:00Z"}
    with serving({"/v1/models/old": Page(json.dumps(facts).encode())}) as server:
        (finding,) = of_models(f"http://127.0.0.1:{server.port}", {}, {"old": []})
    assert finding.level is Level.WARN
    assert finding.report == "old is deprecated and retires on 2026-11-30"
    assert "HANDOFF_SPECIALIST_MODEL" in finding.fix


def test_a_retired_model_of_a_specialist_names_the_files_to_change() -> None:
    specs = [
        a_spec(name="reader").model_copy(update={"model": "old"}),
        a_spec(name="writer").model_copy(update={"models": ("new", "old")}),
        a_spec(name="other"),
    ]
    models = named_models(["usual", "new"], specs)
    assert models == {"usual": [], "new": ["writer"], "old": ["reader", "writer"]}
    with serving({"/v1/models/old": Page(b'{"lifecycle": "retired"}')}) as server:
        (finding,) = of_models(f"http://127.0.0.1:{server.port}", {}, models)
    assert finding.report == "old is retired"
    assert finding.fix.endswith("in the files of these specialists: reader, writer")


def test_a_model_that_lacks_effort_is_named() -> None:
    facts = {"lifecycle": "active", "capabilities": {"effort": LACKING, "thinking": SUPPORTED}}
    with serving({"/v1/models/small": Page(json.dumps(facts).encode())}) as server:
        (finding,) = of_models(f"http://127.0.0.1:{server.port}", {}, {"small": []})
    assert finding.level is Level.OK
    assert finding.report == "small has no effort; its calls leave it out"


@pytest.mark.parametrize("body", [b"", b"[]", b"<html>", b'{"capabilities": {"effort": 1}}'])
def test_a_server_without_these_facts_gives_no_finding(body: bytes) -> None:
    with serving({"/v1/models/any": Page(body)}) as server:
        url = f"http://127.0.0.1:{server.port}"
        assert list(of_models(url, {}, {"any": [], "unknown": []})) == []
