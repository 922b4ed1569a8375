"""A job ends with a result or a reason, although the model's server misbehaves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from handoff_queue.shared.types.events import JobStatus
from handoff_queue.supervisor.cli.follow_job import print_outcome
from handoff_queue.supervisor.client.job_result import JobResult
from handoff_queue.supervisor.client.request import Request
from handoff_queue.testing import (
    Json,
    MessagesServer,
    Reply,
    answer_properties,
    error_reply,
    json_reply,
    text_reply,
)
from tests.doubles.one_step_job import ANSWER, PASS, PLAN
from tests.running_system import RunningSystem, model_environment, running_system

pytestmark = pytest.mark.slow


@dataclass
class ScriptedSystem:
    """A running system, and its model server."""

    server: MessagesServer
    system: RunningSystem

    def run(
        self,
        behaviour: Reply | None = None,
        *,
        plan: Reply | None = None,
        answer: Reply | None = None,
        verdict: Reply | Iterator[Reply] | None = None,
    ) -> JobResult:
        """Run one job, and return its result.

        `behaviour`: the server's reply to every call, or None for valid replies. The other
        arguments replace it for the planner, the specialist and the assessor.
        """

        def script(request: Json) -> Reply:
            properties = answer_properties(request)
            if "steps" in properties:
                return plan or behaviour or json_reply(PLAN)
            if "verdict" in properties:
                return (
                    next(verdict)
                    if isinstance(verdict, Iterator)
                    else verdict or behaviour or json_reply(PASS)
                )
            return answer or behaviour or json_reply(ANSWER)

        self.server.script = script
        jobs = self.system.jobs()
        return jobs.result(jobs.submit(Request("Say how it is.")), wait_s=60)


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedSystem]:
    folder: Path = tmp_path_factory.mktemp("bad-models")
    with (
        MessagesServer(lambda _request: json_reply(ANSWER)) as server,
        running_system(
            folder,
            settings=model_environment(server, ANTHROPIC_API_KEY="sk-test-canary-0123456789"),
        ) as system,
    ):
        yield ScriptedSystem(server, system)


def test_a_job_with_a_working_model_has_an_answer(scripted: ScriptedSystem) -> None:
    result = scripted.run()
    assert (result.status, result.answer) == (JobStatus.OK, "It is so.")


def test_a_wrong_key_ends_the_job_and_names_the_variable_to_fix(scripted: ScriptedSystem) -> None:
    result = scripted.run(error_reply(401, "invalid x-api-key", "authentication_error"))
    assert result.status is JobStatus.FAILED
    assert any("ANTHROPIC_API_KEY" in note for note in result.notes)


def test_the_data_of_a_job_contains_no_part_of_the_key(scripted: ScriptedSystem) -> None:
    result = scripted.run(
        error_reply(401, "invalid key sk-test-canary-0123456789", "authentication_error")
    )
    assert "canary" not in result.to_json()


@pytest.mark.parametrize("status", [429, 500, 529])
def test_a_server_that_never_recovers_ends_the_job_with_its_status(
    scripted: ScriptedSystem, status: int
) -> None:
    result = scripted.run(error_reply(status, "later", retry_after="0"))
    assert result.status is JobStatus.FAILED
    assert result.results, "the failed handoffs can be read"


@pytest.mark.parametrize("status", [429, 500, 529])
def test_a_server_that_recovers_costs_one_turn(scripted: ScriptedSystem, status: int) -> None:
    failures = [error_reply(status, "later", retry_after="0")]

    def script(request: Json) -> Reply:
        if failures:
            return failures.pop()
        properties = answer_properties(request)
        if "steps" in properties:
            return json_reply(PLAN)
        if "verdict" in properties:
            return json_reply(PASS)
        return json_reply(ANSWER)

    scripted.server.script = script
    jobs = scripted.system.jobs()
    result = jobs.result(jobs.submit(Request("Say how it is.")), wait_s=60)
    assert (result.status, result.usage["turns"]) == (JobStatus.OK, 4)


def test_a_refusal_is_the_reason_of_the_failure(scripted: ScriptedSystem) -> None:
    result = scripted.run(answer=text_reply("", stop_reason="refusal"))
    assert result.status is JobStatus.FAILED
    assert [
        step_result["stop_reason"]
        for step_result in result.results
        if step_result["step_id"] == "look"
    ] == ["refused"]


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(
            text_reply('{"status": "ok", "output": "It is', stop_reason="max_tokens"),
            id="truncated JSON",
        ),
        pytest.param(Reply(blocks=()), id="empty content"),
        pytest.param(json_reply(ANSWER, cut_after_events=3), id="a stream cut in the middle"),
        pytest.param(Reply(body="<html>Bad gateway</html>"), id="something that is not a reply"),
    ],
)
def test_a_specialist_without_a_usable_reply_ends_the_job_with_a_reason(
    scripted: ScriptedSystem, reply: Reply
) -> None:
    result = scripted.run(answer=reply)
    assert result.status in (JobStatus.FAILED, JobStatus.PARTIAL)
    assert result.notes or result.answer
    assert any(step_result["error"] for step_result in result.results)


def test_a_planner_that_cannot_plan_leaves_the_request_to_the_generalist(
    scripted: ScriptedSystem,
) -> None:
    result = scripted.run(plan=text_reply("I would rather not."))
    assert (result.status, result.answer) == (JobStatus.PARTIAL, "It is so.")
    assert result.plan is not None
    assert result.plan["degraded"]
    assert any("one specialist got the whole request" in note for note in result.notes)


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(text_reply("I would rather not."), id="prose"),
        pytest.param(Reply(blocks=()), id="empty"),
        pytest.param(text_reply('{"steps": [{"id": "lo', stop_reason="max_tokens"), id="truncated"),
        pytest.param(text_reply("", stop_reason="refusal"), id="refusal"),
    ],
)
def test_the_last_lines_name_a_failed_planner_whether_the_generalist_fails_or_not(
    scripted: ScriptedSystem, plan: Reply, capsys: pytest.CaptureFixture[str]
) -> None:
    for answer in (None, text_reply("", stop_reason="refusal")):
        result = scripted.run(plan=plan, answer=answer)
        print_outcome(result, as_json=False)

        assert result.status is (JobStatus.FAILED if answer else JobStatus.PARTIAL)
        assert "No usable plan was made" in " ".join(capsys.readouterr().err.split())
        assert answer is None or "No usable plan" not in result.notes[-1], (
            "why it failed comes last"
        )


def test_the_answer_reports_an_assessor_that_cannot_review(scripted: ScriptedSystem) -> None:
    result = scripted.run(verdict=text_reply("No comment."))
    assert result.status is JobStatus.PARTIAL
    assert any("not reviewed" in note for note in result.notes)


def test_a_review_with_new_requests_each_time_ends_after_its_rounds_with_the_open_points(
    scripted: ScriptedSystem,
) -> None:
    demands = [
        "Name the year in which it was founded.",
        "Compare prices of both laptops.",
        "Quote a source on battery life.",
    ]
    revisions = ([{"step": "look", "problem": problem}] for problem in demands)
    result = scripted.run(
        verdict=(
            json_reply({"verdict": "REVISE", "revisions": revision, "open_points": []})
            for revision in revisions
        )
    )
    assert result.status is JobStatus.PARTIAL
    assert [verdict["verdict"] for verdict in result.verdicts] == ["REVISE"] * 3
    assert demands[-1] in str(result.answer)


def test_a_review_that_repeats_its_request_ends_as_partial_with_the_request(
    scripted: ScriptedSystem,
) -> None:
    revise = {
        "verdict": "REVISE",
        "revisions": [{"step": "look", "problem": "Not good enough."}],
        "open_points": [],
    }
    result = scripted.run(verdict=json_reply(revise))
    assert result.status is JobStatus.PARTIAL
    assert [verdict["verdict"] for verdict in result.verdicts] == ["REVISE"] * 2
    assert "Not good enough." in str(result.answer)


def test_an_answer_without_a_real_source_is_partial_and_says_so(
    scripted: ScriptedSystem,
) -> None:
    nonsense = {
        "output": "Blah [c1].",
        "claims": [{"id": "c1", "text": "Blah", "sources": [{"source": "x", "quote": "y"}]}],
    }
    result = scripted.run(answer=json_reply(ANSWER | nonsense))
    assert (result.status, result.citations) == (JobStatus.PARTIAL, ())
    assert "nothing in it has a source that could be checked" in str(result.answer)
    assert any("there is no source" in note for note in result.notes)


def test_an_answer_that_names_missing_parts_is_not_ok(
    scripted: ScriptedSystem,
) -> None:
    result = scripted.run(answer=json_reply(ANSWER | {"problem": "I could not read a thing."}))
    assert result.status is JobStatus.PARTIAL
    assert "I could not read a thing." in str(result.answer)


def test_a_passing_verdict_with_revisions_is_not_a_review(scripted: ScriptedSystem) -> None:
    result = scripted.run(
        verdict=json_reply(
            PASS | {"revisions": [{"step": "look", "problem": "All of it is wrong."}]}
        )
    )
    assert result.status is JobStatus.PARTIAL
    assert any("not reviewed" in note and "All of it is wrong." in note for note in result.notes)
