"""`Client.say` stores a message once, and refuses a message that no agent would read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.shared.store.user_messages import Refusal, UserMessages
from handoff_queue.shared.types.audit import Actor, AuditAction
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.errors import Conflict, UserError
from handoff_queue.shared.types.events import (
    PlanMade,
    StepOutline,
    UserMessageSent,
    UserMessageTaken,
)
from handoff_queue.shared.types.handoff import make_ref
from handoff_queue.shared.types.ids import HandoffId, JobId, StepId, create_word
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST
from handoff_queue.supervisor.cli.commands import load_command
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.user_messages import MAX_MESSAGE_CHARS
from tests.doubles.jobs import finish, granted_claim, issue, issue_to_a_child
from tests.refusals import refusal_of
from tests.supervisor.many_rows import submit_rows
from tests.supervisor.shell import Shell

SHORTER = "Make it shorter."


@pytest.fixture
def job_id(shell: Shell) -> JobId:
    """Return a job whose plan is made and whose first step is issued."""
    job_id = shell.submit()
    shell.advance(job_id)
    return job_id


def first_step(shell: Shell, job_id: JobId) -> str:
    return shell.open(job_id)[0].step_id


def job_of_a_team(shell: Shell) -> tuple[JobId, JobId]:
    """Return a job whose only step a team does, and its child job."""
    job_id = shell.submit()
    plan = PlanMade(
        plan=make_ref("{}"),
        steps=(StepOutline(id=StepId("team"), specialist=CHILD_JOB_SPECIALIST, title="Do it."),),
        is_reviewed=False,
    )
    shell.store.journal.append(job_id, plan)
    return job_id, issue_to_a_child(shell.store, job_id, "team.1")


def messages(shell: Shell, job_id: JobId) -> list[UserMessageSent]:
    return [event for event in shell.events(job_id) if isinstance(event, UserMessageSent)]


def test_a_message_is_an_event_with_its_text_as_a_payload(shell: Shell, job_id: JobId) -> None:
    sent = shell.jobs.say(job_id, SHORTER)

    (event,) = messages(shell, job_id)
    assert event.message_id == sent.message_id
    assert shell.store.payloads.get(job_id, [event.text.digest]) == {event.text.digest: SHORTER}
    assert SHORTER not in event.to_json()


def test_the_caller_learns_which_steps_will_take_it(shell: Shell, job_id: JobId) -> None:
    step = first_step(shell, job_id)

    assert step in shell.jobs.say(job_id, SHORTER).running
    assert shell.jobs.say(job_id, SHORTER, step).running == (step,)


def test_a_repeated_call_with_a_key_is_one_message(shell: Shell, job_id: JobId) -> None:
    first = shell.jobs.say(job_id, SHORTER, key="k1")

    assert shell.jobs.say(job_id, SHORTER, key="k1").version == first.version
    with pytest.raises(Conflict, match="belongs to another message"):
        shell.jobs.say(job_id, "Another text.", key="k1")
    with pytest.raises(UserError, match="has no step '<b>'"):
        shell.jobs.say(job_id, SHORTER, "<b>", key="k1")
    assert len(messages(shell, job_id)) == 1
    assert shell.jobs.say(job_id, SHORTER).version != first.version


def test_the_audit_names_the_actor_and_the_step(shell: Shell, job_id: JobId) -> None:
    step = first_step(shell, job_id)
    actor = Actor(name="ada", via="python")
    shell.jobs.acting_as(actor).say(job_id, SHORTER, step)

    entry = shell.jobs.audit(job_id)[-1]
    assert (entry.action, entry.detail, entry.actor) == (AuditAction.SAY, step, actor)


def test_a_credential_is_replaced_before_it_is_stored(shell: Shell, job_id: JobId) -> None:
    sent = shell.jobs.say(job_id, "Use the key sk-ant-REDACTED")

    (event,) = messages(shell, job_id)
    texts = shell.store.payloads.get(job_id, [event.text.digest])
    assert texts[event.text.digest] == "Use the key [redacted]"
    assert sent.is_redacted


REFUSED: dict[str, tuple[Callable[[Client, JobId], object], str]] = {
    "unknown job": (lambda jobs, _: jobs.say(JobId("j-000000000000"), SHORTER), "there is no job"),
    "empty text": (lambda jobs, job_id: jobs.say(job_id, " \n"), "the message is empty"),
    "long text": (
        lambda jobs, job_id: jobs.say(job_id, "x" * (MAX_MESSAGE_CHARS + 1)),
        "the message has 10,001 characters: write at most 10,000",
    ),
    "half a character": (lambda jobs, job_id: jobs.say(job_id, "\ud83d"), "not UTF-8"),
    "unknown step": (
        lambda jobs, job_id: jobs.say(job_id, SHORTER, "nowhere"),
        "has no step 'nowhere': its steps are",
    ),
    "empty step": (lambda jobs, job_id: jobs.say(job_id, SHORTER, ""), "has no step '': its"),
    "no name of a step": (
        lambda jobs, job_id: jobs.say(job_id, SHORTER, "<b>"),
        "has no step '<b>': its steps are",
    ),
    "a number as the step": (
        lambda jobs, job_id: jobs.say(job_id, SHORTER, 5),  # type: ignore[arg-type]
        "step must be of type str",
    ),
    "no text": (
        lambda jobs, job_id: jobs.say(job_id, 5),  # type: ignore[arg-type]
        "text must be of type str",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_is_one_line(shell: Shell, job_id: JobId, case: str) -> None:
    call, words = REFUSED[case]

    refusal = refusal_of(call, shell.jobs, job_id) or ""

    assert words in refusal
    assert "\n" not in refusal
    assert messages(shell, job_id) == []


def test_a_message_is_refused_if_its_last_reader_ends_while_it_is_sent(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = submit_rows(shell, tmp_path, 1)
    (last,) = shell.open(job_id)
    send = UserMessages.send

    def end_before(store: UserMessages, *arguments: Any) -> int | Refusal:
        monkeypatch.undo()
        shell.do(job_id, last)
        return send(store, *arguments)

    monkeypatch.setattr(UserMessages, "send", end_before)

    refusal = refusal_of(shell.jobs.say, job_id, SHORTER) or ""

    assert f"no agent of {job_id} will run any more" in refusal
    assert messages(shell, job_id) == []


def test_a_message_is_sent_again_if_other_events_come_first(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = submit_rows(shell, tmp_path, 2)
    first, second = shell.open(job_id)
    send = UserMessages.send

    def end_before(store: UserMessages, *arguments: Any) -> int | Refusal:
        monkeypatch.undo()
        shell.do(job_id, first)
        return send(store, *arguments)

    monkeypatch.setattr(UserMessages, "send", end_before)

    assert shell.jobs.say(job_id, SHORTER).running == (second.step_id,)
    assert len(messages(shell, job_id)) == 1


def test_a_job_that_changes_all_the_time_takes_no_message(
    shell: Shell, job_id: JobId, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = UserMessages.send

    def change_before(store: UserMessages, *arguments: Any) -> int | Refusal:
        event = UserMessageTaken(message_id=create_word(), handoff_id=HandoffId("other.1"), turn=1)
        shell.store.journal.append(job_id, event)
        return send(store, *arguments)

    monkeypatch.setattr(UserMessages, "send", change_before)

    refusal = refusal_of(shell.jobs.say, job_id, SHORTER) or ""

    assert refusal == f"{job_id} changes too fast: send the message again"


def test_a_message_in_the_last_turn_of_the_last_agent_is_refused(
    shell: Shell, tmp_path: Path
) -> None:
    job_id = submit_rows(shell, tmp_path, 1)
    (last,) = shell.open(job_id)
    shell.claim(job_id, last).reserve(WorstCase(10, 10, 0), takes_messages=True, is_last=True)

    refusal = refusal_of(shell.jobs.say, job_id, SHORTER, last.step_id) or ""

    assert refusal == (
        f"the last agents of {job_id} are in their last turn: wait for its end, and submit a job"
        " that continues it, with the field after"
    )
    assert messages(shell, job_id) == []


def test_a_message_to_a_job_of_one_team_belongs_to_its_child_job(shell: Shell) -> None:
    job_id, child = job_of_a_team(shell)

    refusal = refusal_of(shell.jobs.say, job_id, SHORTER) or ""

    assert refusal == f"child job {child} does step team: send the message to {child}"


def test_an_ended_job_takes_no_message(shell: Shell, job_id: JobId) -> None:
    shell.jobs.cancel(job_id)

    refusal = refusal_of(shell.jobs.say, job_id, SHORTER) or ""
    assert f"{job_id} has ended" in refusal


def test_the_command_says_who_takes_the_message(
    shell: Shell, job_id: JobId, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANDOFF_REDIS_URL", shell.url)
    step = first_step(shell, job_id)

    load_command("say").main([job_id, SHORTER, "--step", step], standalone_mode=False)

    line = capsys.readouterr().out
    assert line == f"{job_id} has your message: {step} will take it before the next turn\n"


def test_an_agent_takes_the_message_of_a_client(shell: Shell, job_id: JobId) -> None:
    (issued, *_) = shell.open(job_id)
    shell.jobs.say(job_id, SHORTER, issued.step_id)
    claimed = shell.claim(job_id, issued)

    (message,) = claimed.take_messages(1)

    assert message.text == SHORTER
    taken = [event for event in shell.events(job_id) if isinstance(event, UserMessageTaken)]
    assert [event.handoff_id for event in taken] == [HandoffId(issued.handoff_id)]


def test_the_summary_and_the_result_say_at_which_turn_it_was_taken(
    shell: Shell, job_id: JobId
) -> None:
    (issued, *_) = shell.open(job_id)
    sent = shell.jobs.say(job_id, SHORTER, issued.step_id)
    shell.claim(job_id, issued).take_messages(4)

    for message in (*shell.jobs.outline(job_id).messages, *shell.jobs.result(job_id).messages):
        assert (message["message_id"], message["text"]) == (sent.message_id, SHORTER)
        assert message["taken"] == [{"handoff_id": issued.handoff_id, "turn": 4}]


def test_show_prints_the_message_and_its_turn(
    shell: Shell, job_id: JobId, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANDOFF_REDIS_URL", shell.url)
    (issued, *_) = shell.open(job_id)
    shell.jobs.say(job_id, SHORTER, issued.step_id)
    shell.claim(job_id, issued).take_messages(4)

    load_command("show").main([job_id], standalone_mode=False)
    brief = capsys.readouterr().out
    load_command("show").main([job_id, "--full"], standalone_mode=False)
    full = capsys.readouterr().out

    line = f"message to {issued.step_id}: {SHORTER} ({issued.handoff_id} took it at turn 4)"
    assert line in brief
    assert f"=== message to {issued.step_id}" in full


def test_a_step_that_has_ended_takes_no_message_if_no_role_reads_it(
    shell: Shell, tmp_path: Path
) -> None:
    job_id = submit_rows(shell, tmp_path, 2)
    first, second = shell.open(job_id)
    shell.do(job_id, first)

    refusal = refusal_of(shell.jobs.say, job_id, SHORTER, first.step_id) or ""

    assert f"step {first.step_id} of {job_id} has ended" in refusal
    assert "retry the job from this step after its end" in refusal
    assert shell.jobs.say(job_id, SHORTER, second.step_id).running == (second.step_id,)


def test_a_message_to_a_step_that_has_ended_names_the_assessor_that_runs(shell: Shell) -> None:
    job_id = shell.submit()
    plan = PlanMade(
        plan=make_ref("{}"),
        steps=(StepOutline(id=StepId("a"), specialist="researcher", title="Do it."),),
    )
    shell.store.journal.append(job_id, plan)
    issue(shell.store, job_id, "a.1")
    finish(granted_claim(shell.store, job_id, "a.1"))
    issue(shell.store, job_id, "assessor.1", role="assessor", group=None)

    assert shell.jobs.say(job_id, SHORTER, "a").running == ("assessor",)


def test_a_message_to_a_step_of_a_team_belongs_to_its_child_job(shell: Shell) -> None:
    job_id, child = job_of_a_team(shell)

    refusal = refusal_of(shell.jobs.say, job_id, SHORTER, "team") or ""

    assert refusal == f"child job {child} does step team: send the message to {child}"


def missed(shell: Shell, job_id: JobId) -> list[str]:
    """Return the notes of the result about messages that no agent took."""
    notes = shell.jobs.result(job_id).notes
    return [note for note in notes if note.startswith("the job ended before an agent took")]


def test_the_result_names_a_message_that_no_agent_took_before_the_end(
    shell: Shell, job_id: JobId
) -> None:
    (issued, *_) = shell.open(job_id)
    shell.jobs.say(job_id, SHORTER, issued.step_id)
    while_it_runs = missed(shell, job_id)
    shell.jobs.cancel(job_id)
    shell.advance(job_id)

    (note,) = missed(shell, job_id)

    assert while_it_runs == []
    assert f"took the message to {issued.step_id}: {SHORTER}" in note


def test_a_retry_gives_a_missed_message_to_the_agents_that_it_starts(
    shell: Shell, job_id: JobId
) -> None:
    (issued, *_) = shell.open(job_id)
    shell.jobs.say(job_id, SHORTER, issued.step_id)
    shell.jobs.cancel(job_id)
    shell.advance(job_id)

    shell.jobs.retry(job_id)
    shell.advance(job_id)

    (again, *_) = [handoff for handoff in shell.open(job_id) if handoff.step_id == issued.step_id]
    (report,) = shell.jobs.handoffs(job_id, [again.handoff_id])
    shell.jobs.cancel(job_id)
    shell.advance(job_id)
    assert SHORTER in report.model_dump_json()
    assert missed(shell, job_id) == []


def test_a_message_that_an_agent_took_is_not_missed(shell: Shell, job_id: JobId) -> None:
    (issued, *_) = shell.open(job_id)
    shell.jobs.say(job_id, SHORTER, issued.step_id)
    shell.claim(job_id, issued).take_messages(1)
    shell.jobs.cancel(job_id)
    shell.advance(job_id)

    assert missed(shell, job_id) == []
