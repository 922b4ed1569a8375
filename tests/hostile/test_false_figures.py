"""A worker that was taken over signs events with numbers that no float holds, and with names that
no tool has. The job can be cancelled, and its pages can be read.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.trust.event_signatures import sign_events
from handoff_queue.shared.types.errors import MalformedMessage, UserError
from handoff_queue.shared.types.events import (
    ApprovalAsked,
    CallInQuestion,
    EventRefused,
    JobStatus,
    parse_event,
)
from handoff_queue.shared.types.handoff import HandoffResult, make_ref
from handoff_queue.shared.types.ids import HandoffId
from handoff_queue.shared.types.job_options import ApprovalOf
from handoff_queue.shared.types.usage import MAX_FIGURE, Usage
from handoff_queue.supervisor.client.tool_call_approvals import QuestionAboutCall, format_arguments
from tests.doubles.jobs import a_job
from tests.hostile.signed_system import GENERALIST, SignedSystem, issued_in
from tests.waiting import wait_until

NO_FLOAT = 10**400


def a_question(handoff_id: HandoffId, call: dict[str, Any], wait_s: int = 60) -> ApprovalAsked:
    """Return a question about a call whose fields are not validated."""
    asked = CallInQuestion(
        handoff_id=handoff_id,
        call_id="toolu_1",
        tool="send_mail",
        arguments=make_ref("{}"),
        input_schema=make_ref("{}"),
    )
    question = ApprovalAsked(what=ApprovalOf.TOOLS, why="it acts", wait_s=60, call=asked)
    return question.model_copy(update={"wait_s": wait_s, "call": asked.model_copy(update=call)})


@pytest.mark.slow
def test_a_job_whose_worker_asks_with_an_endless_wait_can_be_cancelled(
    signed: SignedSystem,
) -> None:
    """Each evaluation of the job raised OverflowError, so the job never ended."""
    signed.jobs.pause(GENERALIST)
    job_id = signed.submit()
    issued = wait_until(lambda: issued_in(signed.store, job_id), expected="the handoff")
    assert issued is not None
    question = a_question(issued.handoff_id, {}, wait_s=NO_FLOAT)
    (text,) = sign_events(signed.trust_of(f"worker-{GENERALIST}"), job_id, [question])
    at = int(signed.store.connection.now() * 1000)
    version = signed.store.connection.redis.rpush(keys.log(job_id), f"{at} {text}")

    signed.jobs.cancel(job_id)
    ended = signed.jobs.wait(job_id, 60)
    signed.jobs.unpause(GENERALIST)

    assert ended is JobStatus.CANCELLED
    refused = signed.jobs.store.journal.read(job_id)[version - 1]
    assert isinstance(refused.event, EventRefused)


@pytest.mark.slow
def test_a_job_with_an_endless_version_in_the_state_of_a_handoff_can_be_cancelled(
    signed: SignedSystem,
) -> None:
    """Each evaluation of the job raised ValueError, so the job never ended."""
    signed.jobs.pause(GENERALIST)
    job_id = signed.submit()
    issued = wait_until(lambda: issued_in(signed.store, job_id), expected="the handoff")
    assert issued is not None
    redis = signed.store.connection.redis
    state = {"state": "done", "fence": "x", "end_version": "9" * 5_000}
    redis.hset(keys.handoff(job_id, GENERALIST, issued.handoff_id), mapping=state)
    at = int(signed.store.connection.now() * 1000)
    text = json.dumps({"type": "handoff_finished", "handoff_id": issued.handoff_id})
    redis.rpush(keys.log(job_id), f"{at} {text.replace(' ', '')}")

    signed.jobs.cancel(job_id)
    ended = signed.jobs.wait(job_id, 60)
    signed.jobs.unpause(GENERALIST)

    assert ended is JobStatus.CANCELLED
    assert signed.jobs.result(job_id).status is JobStatus.CANCELLED


@pytest.mark.parametrize(
    "call",
    [
        {"tool": "x" * 129},
        {"tool": "\x1b]0;owned\x07"},
        {"tool": "<b>Pay 4711</b>"},
        {"tool": ""},
        {"call_id": "toolu_1\n"},
        {"call_id": "x" * 129},
        {"origins": {"to": ("\x1b[2J",)}},
        {"origins": {"to": ("approved by security",)}},
    ],
    ids=str,
)
def test_a_question_has_only_valid_names_of_tools_calls_and_origins(call: dict[str, Any]) -> None:
    """The names go to the webhook of the job, and to terminals and pages."""
    question = a_question(HandoffId("answer.1"), call)

    with pytest.raises(MalformedMessage):
        parse_event(question.to_json())


@pytest.mark.parametrize(
    "other",
    [
        {"what": ApprovalOf.PLAN},
        {"what": ApprovalOf.ANSWER, "draft": make_ref("{}")},
        {"steps": ("a",)},
    ],
    ids=str,
)
def test_a_worker_asks_about_a_call_only(other: dict[str, Any]) -> None:
    """A question with a false draft made the result of the job unreadable."""
    question = a_question(HandoffId("answer.1"), {}).model_copy(update=other)

    with pytest.raises(MalformedMessage, match="about nothing else"):
        parse_event(question.to_json())


@pytest.mark.parametrize(
    "why",
    ["x" * 5_001, "x)\n\n- url: https://example.org", "\u202ex"],
    ids=["long", "lines", "mark"],
)
def test_the_reason_of_a_question_hides_no_argument_of_the_call(why: str) -> None:
    """A client shows the first 8,000 characters of a question: the reason, then the arguments."""
    question = a_question(HandoffId("answer.1"), {}).model_copy(update={"why": why})

    with pytest.raises(MalformedMessage, match="one short line"):
        parse_event(question.to_json())


def test_the_longest_reason_of_the_policy_of_tools_is_valid() -> None:
    origins = ", ".join("mcp " + "s" * 64 for _ in range(64))
    why = f"{'t' * 128} acts on the world, and this handoff has seen {origins}"
    question = a_question(HandoffId("answer.1"), {}).model_copy(update={"why": why})

    assert parse_event(question.to_json()) == question


@pytest.mark.parametrize("stored", [None, b"={[", b"=" + b"[" * 100_000])
def test_edited_arguments_of_a_call_without_a_schema_are_refused(
    store: Store, stored: bytes | None
) -> None:
    job_id, schema = a_job(store), "{}" if stored is None else stored[1:].decode()
    call = a_question(HandoffId("answer.1"), {"input_schema": make_ref(schema)}).call
    assert call is not None
    if stored is not None:
        store.connection.redis.hset(keys.blobs(job_id), make_ref(schema).digest, stored)

    with pytest.raises(UserError, match="the schema of send_mail cannot be read"):
        format_arguments(store, QuestionAboutCall(job_id, 1, call), {})


def test_no_figure_of_a_result_is_larger_than_a_float_holds() -> None:
    figures = dict.fromkeys(Usage.model_fields, NO_FLOAT)
    result = {
        "handoff_id": "answer.1",
        "job_id": "j-000000000000",
        "step_id": "answer",
        "attempt": 1,
        "status": "ok",
        "output": "An answer.",
        "turns": NO_FLOAT,
        "to_finish_microusd": NO_FLOAT,
    }

    usage = Usage.model_validate(figures)
    read = HandoffResult.from_json(json.dumps(result))

    assert set((usage + usage).model_dump().values()) == {MAX_FIGURE}
    assert (read.turns, read.to_finish_microusd) == (MAX_FIGURE, MAX_FIGURE)
