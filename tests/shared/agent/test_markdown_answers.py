"""A specialist without an output schema answers with Markdown and notes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from handoff_queue.shared.agent.answer_envelope import EnvelopeFormat
from handoff_queue.shared.agent.answer_format import AcceptedAnswer, InvalidAnswer
from handoff_queue.shared.agent.loop import TOO_LONG
from handoff_queue.shared.agent.quote_verification import Sources
from handoff_queue.shared.agent.system_prompt import AnswerForm
from handoff_queue.shared.types.handoff import Claim, ResultStatus, StopReason
from handoff_queue.testing import result_reply, text_reply
from tests.doubles.agent_runs import envelope, run_with_replies
from tests.doubles.handoffs import STEP, a_manifest

MANIFEST, TEXT_OF = a_manifest(qdrant="Qdrant is a vector database. It is written in Rust.")
FORMAT = EnvelopeFormat(
    STEP,
    {"type": "string"},
    Sources(TEXT_OF, MANIFEST),
    {"other.c1": Claim(id="other.c1", text="Milvus is written in Go.")},
    form=AnswerForm.MARKDOWN,
)
RUST = '[c1] qdrant.md: "It is written in Rust."'
FALSE = '[c1] qdrant.md: "It is written in Go."'


def answer_of(output: str, *notes: str) -> str:
    return "\n".join([output, "", "<notes>", *notes, "</notes>"])


def read(output: str, *notes: str, last_try: bool = False) -> AcceptedAnswer:
    return FORMAT.read(answer_of(output, *notes), last_try=last_try)


def test_the_quotes_of_the_notes_become_checked_citations() -> None:
    answer = read("- Qdrant is written in Rust. [c1]", RUST)
    (claim,) = answer.claims
    assert (answer.status, answer.output) == (
        ResultStatus.OK,
        "- Qdrant is written in Rust. [find.c1]",
    )
    assert (claim.id, claim.text) == ("find.c1", "Qdrant is written in Rust.")
    assert claim.sources[0].quote == "It is written in Rust."


def test_a_mark_of_another_steps_claim_needs_no_note() -> None:
    answer = FORMAT.read("The other is written in Go. [other.c1]", last_try=False)
    assert [claim.id for claim in answer.claims] == ["other.c1"]


def test_an_answer_without_notes_is_ok() -> None:
    answer = FORMAT.read("A poem.", last_try=False)
    assert (answer.status, answer.output, answer.claims) == (ResultStatus.OK, "A poem.", ())


@pytest.mark.parametrize("status", ["partial", "Needs input", "failed"])
def test_the_notes_state_the_status(status: str) -> None:
    answer = read("Rust.", f"status: {status}", "problem: no price", "needs: the year")
    assert answer.status == status.lower().replace(" ", "_")
    assert (answer.error, answer.needs) == ("no price", "the year")


@pytest.mark.parametrize(
    ("text", "repair"),
    [
        (answer_of("In Go. [c1]", FALSE), "this quote is not in"),
        (answer_of("In Rust. [c1] Fast. [c7]", RUST), "[c7] in the output points to no claim"),
        (answer_of("In Rust. [c1]", RUST, "and more"), 'cannot be read: "and more"; write each'),
        (answer_of("Some work.", "status: partial"), 'the reason in "problem"'),
        (answer_of("Some work.", "status: great"), "status"),
        (answer_of("Done.", RUST), "give the work itself"),
        (answer_of("", RUST), "give the work itself"),
        ('{"status": "ok", "output": "It is wr', "JSON that is broken or cut off"),
    ],
)
def test_the_required_repair_is_named(text: str, repair: str) -> None:
    with pytest.raises(InvalidAnswer) as refused:
        FORMAT.read(text, last_try=False)
    assert repair in refused.value.for_model


@pytest.mark.parametrize(
    "text",
    ["Let me search the documents.", "OK, I'll first look into qdrant.md:", "Now I will check it."],
)
def test_an_answer_that_only_announces_work_costs_a_turn(text: str) -> None:
    run = run_with_replies(text_reply(text), text_reply("It is written in Rust."))
    result = run.go()
    assert (result.output, result.turns) == ("It is written in Rust.", 2)
    assert "only announces work" in run.calls[1].messages[-1]["content"][-1]["text"]


@pytest.mark.parametrize(
    "text", ["Let me thank you for the visit.", f"I will look. {'It is written in Rust. ' * 20}"]
)
def test_an_answer_in_the_first_person_may_be_the_work(text: str) -> None:
    assert FORMAT.read(text, last_try=False).status is ResultStatus.OK


def test_on_the_last_try_a_line_that_cannot_be_read_is_dropped_with_a_note() -> None:
    answer = read("In Rust. [c1]", RUST, "and more", last_try=True)
    assert answer.status is ResultStatus.OK
    assert answer.notes == ('dropped: the notes have a line that cannot be read: "and more"',)


def test_an_answer_in_the_form_of_an_envelope_is_accepted() -> None:
    answer = FORMAT.read(json.dumps(envelope()), last_try=False)
    assert answer.output == "It is written in Rust [find.c1]."


@pytest.mark.parametrize("text", ['{"output": "dist", "files": []}', '{"a": 1}', "[1, 2]"])
def test_work_that_is_json_is_not_an_envelope(text: str) -> None:
    assert FORMAT.read(text, last_try=False).output == text


def test_an_envelope_within_the_text_is_text() -> None:
    text = f"The API returns:\n\n```json\n{json.dumps(envelope())}\n```\n\nThat is all."
    assert str(FORMAT.read(text, last_try=True).output).startswith("The API returns:")


def test_the_request_has_no_schema() -> None:
    run = run_with_replies(text_reply(answer_of("In Rust. [c1]", RUST)))
    assert run.go().status is ResultStatus.OK
    assert run.calls[0].output_schema is None


CUT: dict[str, Any] = {"stop_reason": "max_tokens"}


def test_an_answer_that_was_cut_off_is_asked_for_again() -> None:
    run = run_with_replies(text_reply("It is wri", **CUT), text_reply("It is written in Rust."))
    result = run.go()
    assert (result.status, result.output) == (ResultStatus.OK, "It is written in Rust.")
    assert run.calls[1].messages[-1]["content"][-1]["text"].startswith(TOO_LONG)


def test_an_answer_that_is_always_cut_off_keeps_its_text_and_its_whole_notes() -> None:
    cut = answer_of("In Rust. [c1] And fast. [c2]", RUST).removesuffix("</notes>")
    result = run_with_replies(text_reply(f'{cut}[c2] qdrant.md: "It', **CUT)).go()
    assert (result.status, result.stop_reason) == (ResultStatus.PARTIAL, StopReason.MAX_TOKENS)
    assert str(result.output).startswith("In Rust. [find.c1] And fast.")
    assert [claim.id for claim in result.claims if claim.sources] == ["find.c1", "find.c2"]


def test_an_answer_that_ends_with_its_notes_was_not_cut_off() -> None:
    result = run_with_replies(text_reply(answer_of("In Rust. [c1]", RUST), **CUT)).go()
    assert (result.status, result.turns) == (ResultStatus.OK, 1)


def test_a_repair_is_answered_with_the_whole_answer_again() -> None:
    run = run_with_replies(
        text_reply(answer_of("In Go. [c1]", FALSE)), text_reply(answer_of("In Rust. [c1]", RUST))
    )
    result = run.go()
    assert (result.status, result.output, result.turns) == (
        ResultStatus.OK,
        "In Rust. [find.c1]",
        2,
    )


def test_a_reply_of_the_testing_package_is_read() -> None:
    result = run_with_replies(result_reply("Which year?", status="needs_input", needs="the year"))
    assert result.go().status is ResultStatus.NEEDS_INPUT


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"status": "up", "uptime": 3}\n```\n\nThis is the reply of the server.',
        '{"status": "up"} is the reply of the server.',
        '{"status": "ok"}',
    ],
    ids=["a code fence", "a sentence", "only a status"],
)
def test_an_answer_that_begins_with_json_keeps_all_its_text(text: str) -> None:
    assert FORMAT.read(text, last_try=False).output == text


def test_text_behind_the_notes_costs_a_turn_that_names_it() -> None:
    text = answer_of("Qdrant is written in Rust. [c1]", RUST)
    with pytest.raises(InvalidAnswer) as raised:
        FORMAT.read(f"{text}\n\nAsk me for more.", last_try=False)
    assert "with no text after the block" in raised.value.for_model


@pytest.mark.parametrize(
    ("answer_format", "text"),
    [
        (FORMAT, f"Rust.\n\n<notes>\nAs the page about languages says:\n{RUST}"),
        (FORMAT, "Rust.\n\n<not"),
        (replace(FORMAT, form=AnswerForm.ENVELOPE), answer_of("Rust.", RUST)),
        (
            replace(FORMAT, form=AnswerForm.ENVELOPE),
            json.dumps(envelope(answer_of("Rust.", RUST)))[:60],
        ),
    ],
    ids=["unreadable notes", "cut tag", "no envelope", "cut envelope"],
)
def test_a_salvaged_answer_shows_no_notes(answer_format: EnvelopeFormat, text: str) -> None:
    answer = answer_format.salvage(text)

    assert answer is not None
    assert answer.output == "Rust."


def test_notes_without_an_answer_are_not_the_work_of_a_stopped_handoff() -> None:
    notes = f"<notes>\nAs the page about languages says:\n{RUST}"
    cut = text_reply(notes, stop_reason="max_tokens")

    result = run_with_replies(cut, cut, answer_format=FORMAT).go()

    assert (result.status, result.output) == (ResultStatus.FAILED, None)
    assert result.stop_reason is StopReason.MAX_TOKENS
