"""Messages of users to running agents, in a real Redis: each is stored once and taken once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim import HandoffClaim
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.store.user_messages import MAX_MESSAGES, Refusal
from handoff_queue.shared.types.checkpoints import UserPrompted, WorstCase
from handoff_queue.shared.types.errors import LeaseLost, MessagesWaiting
from handoff_queue.shared.types.events import (
    CancelRequested,
    JobEnded,
    JobStatus,
    UserMessageSent,
    UserMessageTaken,
)
from handoff_queue.shared.types.handoff import make_ref
from handoff_queue.shared.types.ids import HandoffId, JobId, StepId, create_job_id, create_word
from tests.doubles.jobs import (
    a_job,
    claim,
    expire_lease,
    finished_event,
    granted_claim,
    issue,
    model_reply,
    result_of,
    version_of,
)

CALL = WorstCase(10, 10, 0)
SHORTER = "Make it shorter."


@pytest.fixture
def job_id(store: Store) -> JobId:
    job_id = a_job(store)
    issue(store, job_id, "find.1", "read.1")
    return job_id


def send(
    store: Store,
    job_id: JobId,
    text: str = SHORTER,
    step: str | None = None,
    message_id: str | None = None,
) -> int | Refusal:
    event = UserMessageSent(
        message_id=message_id or create_word(),
        text=make_ref(text),
        step=StepId(step) if step else None,
    )
    return store.user_messages.send(job_id, event, text)


def may_call(claimed: HandoffClaim) -> bool:
    """Return whether the agent may make its next call, and has no message to take."""
    try:
        claimed.reserve(CALL, takes_messages=True)
    except MessagesWaiting:
        return False
    return True


def texts_of(messages: tuple[UserPrompted, ...]) -> list[str]:
    return [message.text for message in messages]


def taken(store: Store, job_id: JobId) -> list[tuple[str, int]]:
    """Return the handoff and the turn of each taken message."""
    events = [recorded.event for recorded in store.journal.read(job_id)]
    return [
        (event.handoff_id, event.turn) for event in events if isinstance(event, UserMessageTaken)
    ]


def test_a_running_agent_takes_a_message_once(store: Store, job_id: JobId) -> None:
    claimed = granted_claim(store, job_id, "find.1")
    send(store, job_id)

    assert not may_call(claimed)
    assert texts_of(claimed.take_messages(1)) == [SHORTER]
    assert may_call(claimed)
    assert claimed.take_messages(1) == ()
    assert taken(store, job_id) == [("find.1", 1)]


def test_a_call_without_a_message_takes_the_same_number_of_round_trips(
    store: Store, job_id: JobId
) -> None:
    claimed = granted_claim(store, job_id, "find.1")
    before = store.connection.redis.info("commandstats")["cmdstat_evalsha"]["calls"]
    claimed.reserve(CALL, takes_messages=True)

    after = store.connection.redis.info("commandstats")["cmdstat_evalsha"]["calls"]
    assert after - before == 1


def test_every_running_agent_takes_a_message_without_a_step(store: Store, job_id: JobId) -> None:
    claims = [granted_claim(store, job_id, handoff_id) for handoff_id in ("find.1", "read.1")]
    send(store, job_id)

    for claimed in claims:
        assert not may_call(claimed)
        assert texts_of(claimed.take_messages(2)) == [SHORTER]
    assert sorted(taken(store, job_id)) == [("find.1", 2), ("read.1", 2)]


def test_only_the_agent_of_its_step_takes_a_message(store: Store, job_id: JobId) -> None:
    finder, reader = (granted_claim(store, job_id, name) for name in ("find.1", "read.1"))
    send(store, job_id, step="find")

    assert may_call(reader)
    assert not may_call(finder)


def test_a_role_takes_a_message_to_any_step_and_knows_the_step(store: Store, job_id: JobId) -> None:
    issue(store, job_id, "assessor.1", role="assessor", group=None)
    role = granted_claim(store, job_id, "assessor.1")
    send(store, job_id, step="find")

    assert not may_call(role)
    assert texts_of(role.take_messages(2)) == [f"(to step find) {SHORTER}"]
    assert may_call(role)
    assert taken(store, job_id) == [("assessor.1", 2)]


def test_messages_arrive_in_the_order_in_which_they_were_sent(store: Store, job_id: JobId) -> None:
    claimed = granted_claim(store, job_id, "find.1")
    for text in ("first", "second", "third"):
        send(store, job_id, text)

    assert texts_of(claimed.take_messages(1)) == ["first", "second", "third"]


def test_a_message_before_the_claim_is_taken_before_the_first_call(
    store: Store, job_id: JobId
) -> None:
    send(store, job_id)

    claimed = claim(store, job_id, "find.1", first=CALL)

    assert not claimed.reserved
    assert not may_call(claimed)


def test_a_handoff_that_is_issued_later_has_the_message_in_its_task(
    store: Store, job_id: JobId
) -> None:
    send(store, job_id)
    issue(store, job_id, "write.1")

    assert may_call(granted_claim(store, job_id, "write.1"))


def test_a_taken_message_is_a_checkpoint_for_the_next_claim(store: Store, job_id: JobId) -> None:
    claimed = granted_claim(store, job_id, "find.1")
    send(store, job_id)
    messages = claimed.take_messages(1)
    expire_lease(store, claimed)

    again = granted_claim(store, job_id, "find.1")

    assert again.load_earlier_checkpoints() == messages
    assert may_call(again)
    assert taken(store, job_id) == [("find.1", 1)]


def test_a_message_that_was_not_taken_waits_for_the_next_claim(store: Store, job_id: JobId) -> None:
    claimed = granted_claim(store, job_id, "find.1")
    send(store, job_id)
    assert not may_call(claimed)
    expire_lease(store, claimed)

    again = granted_claim(store, job_id, "find.1")

    assert not may_call(again)
    assert texts_of(again.take_messages(1)) == [SHORTER]


def test_a_lost_answer_does_not_take_a_message_twice(
    store: Store, job_id: JobId, armed: Path
) -> None:
    claimed = granted_claim(store, job_id, "find.1")
    send(store, job_id)
    (armed / "script.take_messages.after").write_text("drop")

    messages = claimed.take_messages(1)

    assert list(armed.glob("script.take_messages.after@*")), "the answer was lost"
    expire_lease(store, claimed)
    assert granted_claim(store, job_id, "find.1").load_earlier_checkpoints() == messages
    assert taken(store, job_id) == [("find.1", 1)]


def test_a_process_that_has_lost_its_claim_takes_nothing(store: Store, job_id: JobId) -> None:
    claimed = granted_claim(store, job_id, "find.1")
    send(store, job_id)
    expire_lease(store, claimed)
    granted_claim(store, job_id, "find.1", "w2")

    with pytest.raises(LeaseLost):
        claimed.take_messages(1)
    assert taken(store, job_id) == []


def test_a_waiting_reply_is_stored_before_the_message(store: Store, job_id: JobId) -> None:
    claimed = granted_claim(store, job_id, "find.1")
    claimed.reserve(CALL)
    claimed.checkpoint(model_reply(), deferrable=True)
    send(store, job_id)
    messages = claimed.take_messages(2)
    expire_lease(store, claimed)

    again = granted_claim(store, job_id, "find.1")
    assert again.load_earlier_checkpoints() == (model_reply(), *messages)


def end(claimed: HandoffClaim, *, takes_messages: bool = True) -> None:
    """End the handoff. `takes_messages`: whether its agent can still change the result."""
    result = result_of(claimed)
    claimed.finish(
        claimed.build_finish_request(
            result, (finished_event(result),), takes_messages=takes_messages
        )
    )


def test_a_message_that_comes_with_the_result_is_taken_before_the_end(
    store: Store, job_id: JobId
) -> None:
    claimed = granted_claim(store, job_id, "find.1")
    claimed.reserve(CALL)
    claimed.checkpoint(model_reply(), deferrable=True)
    send(store, job_id)

    with pytest.raises(MessagesWaiting):
        end(claimed)

    assert claimed.has_messages
    assert store.jobs.read([job_id])[0].turns == 0, "nothing is stored"
    assert texts_of(claimed.take_messages(2)) == [SHORTER]
    end(claimed)
    assert store.jobs.read([job_id])[0].turns == 1
    assert (
        store.jobs.read_handoffs(job_id, [claimed.handoff_id])[claimed.handoff_id].state == "done"
    )


@pytest.mark.parametrize("case", ["no turn left", "message to another step", "cancelled job"])
def test_a_result_is_stored_if_its_agent_takes_no_message(
    store: Store, job_id: JobId, case: str
) -> None:
    claimed = granted_claim(store, job_id, "find.1")
    send(store, job_id, step="read" if case == "message to another step" else None)
    if case == "cancelled job":
        store.journal.append(job_id, CancelRequested(), {"cancelled": 1})

    end(claimed, takes_messages=case != "no turn left")

    assert (
        store.jobs.read_handoffs(job_id, [claimed.handoff_id])[claimed.handoff_id].state == "done"
    )


def test_an_end_whose_answer_was_lost_is_not_refused_because_of_a_later_message(
    store: Store, job_id: JobId, armed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed = granted_claim(store, job_id, "find.1")
    (armed / "script.finish.after").write_text("drop")
    run_script = Connection.run_script

    def script(connection: Connection, name: str, keys_: list[str], args: list[Any]) -> Any:
        if name == "finish" and list(armed.glob("script.finish.after@*")):
            monkeypatch.undo()
            send(store, job_id)
        return run_script(connection, name, keys_, args)

    monkeypatch.setattr(Connection, "run_script", script)

    end(claimed)

    assert [message.taken for message in store.job_summaries.read(job_id).messages] == [()]
    assert (
        store.jobs.read_handoffs(job_id, [claimed.handoff_id])[claimed.handoff_id].state == "done"
    )


def test_a_message_is_stored_only_at_the_version_at_which_its_sender_found_a_reader(
    store: Store, job_id: JobId
) -> None:
    checked = version_of(store, job_id)
    end(granted_claim(store, job_id, "find.1"))
    message_id = create_word()
    event = UserMessageSent(message_id=message_id, text=make_ref(SHORTER))

    assert store.user_messages.send(job_id, event, SHORTER, checked) is Refusal.CHANGED
    version = store.user_messages.send(job_id, event, SHORTER, checked + 1)
    assert version == checked + 2
    assert store.user_messages.send(job_id, event, SHORTER, checked) == version, "sent again"


def test_no_message_is_stored_after_its_only_readers_have_begun_their_last_turn(
    store: Store, job_id: JobId
) -> None:
    finder, reader = (granted_claim(store, job_id, name) for name in ("find.1", "read.1"))
    readers = [finder.handoff_id, reader.handoff_id]
    event = UserMessageSent(message_id=create_word(), text=make_ref(SHORTER))
    finder.reserve(CALL, takes_messages=True, is_last=True)
    reader.reserve(CALL, takes_messages=True)

    of_one = store.user_messages.send(job_id, event, SHORTER, readers=[finder.handoff_id])
    of_both = store.user_messages.send(job_id, event, SHORTER, readers=readers)
    assert of_one is Refusal.LAST_TURN
    assert isinstance(of_both, int), "the other agent takes it"
    reader.take_messages(2)
    reader.reserve(CALL, takes_messages=True, is_last=True)
    later = UserMessageSent(message_id=create_word(), text=make_ref(SHORTER))
    assert store.user_messages.send(job_id, later, SHORTER, readers=readers) is Refusal.LAST_TURN
    assert isinstance(store.user_messages.send(job_id, later, SHORTER), int), "others read it later"


def test_a_message_before_the_last_turn_is_taken_before_it(store: Store, job_id: JobId) -> None:
    claimed = granted_claim(store, job_id, "find.1")
    send(store, job_id)

    with pytest.raises(MessagesWaiting):
        claimed.reserve(CALL, takes_messages=True, is_last=True)
    later = UserMessageSent(message_id=create_word(), text=make_ref(SHORTER))
    answer = store.user_messages.send(job_id, later, SHORTER, readers=[claimed.handoff_id])
    assert isinstance(answer, int), "the last turn has not begun"


def test_a_renewal_reports_a_message(store: Store, job_id: JobId) -> None:
    claimed = granted_claim(store, job_id, "find.1")
    claimed.renew()
    assert not claimed.has_messages
    send(store, job_id, step="read")
    claimed.renew()
    assert not claimed.has_messages
    send(store, job_id, step="find")
    claimed.renew()

    assert claimed.has_messages


def test_a_message_with_the_same_id_is_the_same_message(store: Store, job_id: JobId) -> None:
    message_id = create_word()
    version = send(store, job_id, message_id=message_id)

    assert send(store, job_id, message_id=message_id) == version
    assert send(store, job_id, "another text", message_id=message_id) is Refusal.OTHER
    assert send(store, job_id, step="find", message_id=message_id) is Refusal.OTHER
    assert store.connection.redis.hget(keys.job(job_id), "messages") == b"1"


@pytest.mark.parametrize("fields", [{"status": "ok"}, {"cancelled": 1}], ids=["ended", "cancelled"])
def test_an_ended_or_cancelled_job_takes_no_message(
    store: Store, job_id: JobId, fields: dict[str, str | int]
) -> None:
    event = CancelRequested() if "cancelled" in fields else JobEnded(status=JobStatus.OK)
    store.journal.append(job_id, event, fields)

    assert send(store, job_id) is Refusal.ENDED


def test_an_unknown_job_takes_no_message(store: Store) -> None:
    assert send(store, create_job_id()) is Refusal.UNKNOWN


def test_a_job_has_a_bounded_number_of_messages(store: Store, job_id: JobId) -> None:
    for number in range(MAX_MESSAGES):
        send(store, job_id, f"message {number}")

    assert send(store, job_id) is Refusal.FULL
    claimed = granted_claim(store, job_id, HandoffId("find.1"))
    assert len(claimed.take_messages(1)) == MAX_MESSAGES


def test_the_summary_of_a_job_says_which_agent_took_a_message_and_when(
    store: Store, job_id: JobId
) -> None:
    claimed = granted_claim(store, job_id, "find.1")
    send(store, job_id)
    claimed.take_messages(3)
    send(store, job_id, "later", step="find")

    first, second = store.job_summaries.read(job_id).messages
    seconds, microseconds = store.connection.redis.time()

    assert (first.digest, first.step, first.taken) == (
        make_ref(SHORTER).digest,
        None,
        (("find.1", 3),),
    )
    assert (second.step, second.taken) == ("find", ())
    assert first.at <= second.at <= seconds + microseconds / 1e6


def test_a_message_that_comes_while_others_are_taken_is_taken_later(
    store: Store, job_id: JobId, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed = granted_claim(store, job_id, "find.1")
    send(store, job_id, "first")
    run_script = Connection.run_script

    def script(connection: Connection, name: str, keys_: list[str], args: list[Any]) -> Any:
        answer = run_script(connection, name, keys_, args)
        if name == "untaken_messages" and len(answer) > 2:
            monkeypatch.undo()
            send(store, job_id, "second")
        return answer

    monkeypatch.setattr(Connection, "run_script", script)

    assert texts_of(claimed.take_messages(1)) == ["first"]
    assert not may_call(claimed)
    assert texts_of(claimed.take_messages(1)) == ["second"]
    messages = store.job_summaries.read(job_id).messages
    assert [message.taken for message in messages] == [(("find.1", 1),), (("find.1", 1),)]
