"""Questions about tool calls, in a real Redis: the handoff waits without a claim, and the first
answer counts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from handoff_queue.shared.agent.checkpoint_store import CallAnswer
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim import ClaimVerdict
from handoff_queue.shared.store.claim_requests import ClaimRequest
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.store.tool_call_approvals import answer_call
from handoff_queue.shared.trust.event_signatures import sign_events
from handoff_queue.shared.trust.key_files import find_private_key_file, make_keys
from handoff_queue.shared.types.checkpoints import ToolObserved
from handoff_queue.shared.types.errors import LeaseLost, StoreUnavailable, UserError
from handoff_queue.shared.types.events import (
    AnsweredCall,
    ApprovalAsked,
    Approved,
    CancelRequested,
    JobEnded,
    JobStatus,
    Rejected,
)
from handoff_queue.shared.types.handoff import make_ref
from handoff_queue.shared.types.ids import HandoffId, JobId, create_job_id
from handoff_queue.shared.types.job_options import ApprovalOf
from handoff_queue.shared.types.message import compute_digest
from tests.doubles.call_questions import a_question, ask
from tests.doubles.jobs import (
    a_job,
    claim,
    expire_lease,
    finish,
    granted_claim,
    handoff_key,
    issue,
    model_reply,
    text_of,
    version_of,
)

FIND = HandoffId("find.1")


@pytest.fixture
def job_id(store: Store) -> JobId:
    job_id = a_job(store)
    issue(store, job_id, "find.1", "read.1")
    return job_id


def questions(store: Store, job_id: JobId) -> list[int]:
    """Return the versions of the questions."""
    return [
        recorded.version
        for recorded in store.journal.read(job_id)
        if isinstance(recorded.event, ApprovalAsked)
    ]


def called(store: Store, job_id: JobId, asked: int) -> AnsweredCall:
    """Return the call that a question is about."""
    event = store.journal.read(job_id)[asked - 1].event
    assert isinstance(event, ApprovalAsked)
    assert event.call is not None
    return AnsweredCall(handoff_id=event.call.handoff_id, call_id=event.call.call_id)


def approve(store: Store, job_id: JobId, asked: int, **arguments: object) -> int:
    text = json.dumps(arguments)
    changed = make_ref(text) if arguments else None
    call = called(store, job_id, asked)
    answer = Approved(asked=asked, arguments=changed, call=call)
    return answer_call(store.connection, store.trust, job_id, answer, FIND, [text])


def test_a_handoff_with_a_question_has_no_claim_and_keeps_its_paid_turn(
    store: Store, job_id: JobId
) -> None:
    claimed = granted_claim(store, job_id, "find.1")
    claimed.checkpoint(model_reply(), deferrable=True)
    ask(claimed)

    info = store.jobs.read_handoffs(job_id, [FIND])[FIND]
    assert (info.state, info.claims, info.turns) == ("issued", 0, 1)
    assert info.doing == "waits for approval of send_mail"
    assert claim(store, job_id, "find.1").verdict is ClaimVerdict.DEFERRED
    with pytest.raises(LeaseLost):
        claimed.renew()


def test_a_question_is_an_event_with_its_arguments_as_a_payload(
    store: Store, job_id: JobId
) -> None:
    ask(granted_claim(store, job_id, "find.1"))

    event = store.journal.read(job_id)[-1].event
    assert isinstance(event, ApprovalAsked)
    assert event.call is not None
    digest = event.call.arguments.digest
    assert (event.what, event.call.tool) == (ApprovalOf.TOOLS, "send_mail")
    assert event.call.origins == {"to": ("user", "web")}
    assert store.payloads.get(job_id, [digest]) == {digest: '{"to": "a@example.com"}'}
    (job,) = store.jobs.read([job_id])
    assert (job.status, job.approval) == (JobStatus.WAITING, "tools")
    assert job.calls_to_approve == ("send_mail",)


def test_an_answer_makes_the_handoff_due_and_the_next_claim_gets_it(
    store: Store, job_id: JobId
) -> None:
    ask(granted_claim(store, job_id, "find.1"), a_question("toolu_1"), a_question("toolu_2"))
    first, second = questions(store, job_id)

    approve(store, job_id, first, to="b@example.com")
    due = store.due_work.sweep().due
    again = granted_claim(store, job_id, "find.1")

    assert due[job_id] == [FIND]
    answers = again.read_call_answers()
    assert list(answers) == ["toolu_1"]
    assert answers["toolu_1"].arguments == {"to": "b@example.com"}
    assert answers["toolu_1"].is_approved
    (job,) = store.jobs.read([job_id])
    assert (job.status, job.calls_to_approve) == (JobStatus.WAITING, ("send_mail",))
    note = "Not now."
    rejected = Rejected(asked=second, note=make_ref(note), call=called(store, job_id, second))
    assert answer_call(store.connection, store.trust, job_id, rejected, FIND, [note])
    assert not again.read_call_answers()["toolu_2"].is_approved
    assert again.read_call_answers()["toolu_2"].note == note
    (job,) = store.jobs.read([job_id])
    assert (job.approval, job.calls_to_approve) == ("", ())


def test_the_first_answer_counts(store: Store, job_id: JobId) -> None:
    ask(granted_claim(store, job_id, "find.1"))
    (asked,) = questions(store, job_id)

    assert approve(store, job_id, asked)
    assert not answer_call(store.connection, store.trust, job_id, Rejected(asked=asked), FIND, [])
    assert granted_claim(store, job_id, "find.1").read_call_answers()["toolu_1"].is_approved


def test_a_call_is_asked_about_once(store: Store, job_id: JobId) -> None:
    ask(granted_claim(store, job_id, "find.1"), a_question("toolu_1"), a_question("toolu_2"))
    first, second = questions(store, job_id)
    approve(store, job_id, first)

    ask(granted_claim(store, job_id, "find.1"), a_question("toolu_2"))

    assert questions(store, job_id) == [first, second]
    assert claim(store, job_id, "find.1").verdict is ClaimVerdict.DEFERRED


def test_an_answer_during_the_run_is_not_missed(store: Store, job_id: JobId) -> None:
    """The second answer comes while the agent runs the first call."""
    ask(granted_claim(store, job_id, "find.1"), a_question("toolu_1"), a_question("toolu_2"))
    first, second = questions(store, job_id)
    approve(store, job_id, first)
    again = granted_claim(store, job_id, "find.1")
    approve(store, job_id, second)

    again.ask_about_calls([a_question("toolu_2")], 3_600)  # the claim stays

    again.renew()
    assert set(again.read_call_answers()) == {"toolu_1", "toolu_2"}


def test_the_seconds_of_a_handoff_do_not_run_while_it_waits(store: Store, job_id: JobId) -> None:
    wanted = ClaimRequest(job_id, FIND, compute_digest(text_of("find.1")), "w1", max_seconds=60)
    first = store.claims.claim(wanted)
    ask(first)
    waited_ms = 500_000
    store.connection.redis.hincrby(handoff_key(store, job_id, FIND), "asks_since", -waited_ms)
    approve(store, job_id, questions(store, job_id)[0])

    again = store.claims.claim(
        ClaimRequest(job_id, FIND, compute_digest(text_of("find.1")), "w2", max_seconds=60)
    )

    assert first.ends_at is not None
    assert again.ends_at is not None
    assert again.ends_at >= first.ends_at + waited_ms / 1000


def test_a_handoff_that_ends_closes_its_questions(store: Store, job_id: JobId) -> None:
    """The job's deadline came before the answer, so the handoff ended with a partial result."""
    ask(granted_claim(store, job_id, "find.1"), a_question("toolu_1"), a_question("toolu_2"))
    first, second = questions(store, job_id)
    approve(store, job_id, first)
    finish(granted_claim(store, job_id, "find.1"))

    (job,) = store.jobs.read([job_id])
    assert (job.status, job.approval) == (JobStatus.RUNNING, "")
    assert not approve(store, job_id, second)


def test_the_end_of_a_job_closes_its_questions(store: Store, job_id: JobId) -> None:
    ask(granted_claim(store, job_id, "find.1"))
    (asked,) = questions(store, job_id)
    ended = JobEnded(status=JobStatus.CANCELLED)
    store.journal.commit(
        Commit(
            job_id,
            version_of(store, job_id),
            [ended],
            fields={"status": "cancelled"},
            drop=(FIND, HandoffId("read.1")),
        )
    )

    assert not approve(store, job_id, asked)
    assert claim(store, job_id, "find.1").verdict is ClaimVerdict.DUPLICATE
    assert store.jobs.read([job_id])[0].calls_to_approve == ()


def test_a_cancelled_job_takes_no_answer(store: Store, job_id: JobId) -> None:
    ask(granted_claim(store, job_id, "find.1"))
    (asked,) = questions(store, job_id)
    store.journal.append_unless_ended(job_id, CancelRequested(), {"cancelled": 1})

    assert not approve(store, job_id, asked)


def test_a_deleted_job_leaves_no_handoff_behind(store: Store, job_id: JobId) -> None:
    ask(granted_claim(store, job_id, "find.1"))
    redis = store.connection.redis
    redis.zadd(keys.due("researcher"), {f"{job_id}/find.1": 1})
    redis.delete(keys.job(job_id))

    store.due_work.sweep()

    assert not [
        member for member in redis.zrange(keys.due("researcher"), 0, -1) if b"find.1" in member
    ]


def test_a_lost_answer_of_redis_asks_no_second_question(
    store: Store, job_id: JobId, armed: Path
) -> None:
    claimed = granted_claim(store, job_id, "find.1")
    claimed.checkpoint(ToolObserved(tool_use_id="toolu_0", text="done"))
    (armed / "script.ask_tool_call_approval.after").write_text("drop")

    with pytest.raises((LeaseLost, StoreUnavailable)):
        claimed.ask_about_calls([a_question()], 3_600)

    assert list(armed.glob("script.ask_tool_call_approval.after@*")), "the answer was lost"
    assert len(questions(store, job_id)) == 1
    assert claim(store, job_id, "find.1").verdict is ClaimVerdict.DEFERRED


def test_an_old_claim_asks_nothing(store: Store, job_id: JobId) -> None:
    claimed = granted_claim(store, job_id, "find.1")
    expire_lease(store, claimed)
    granted_claim(store, job_id, "find.1", "w2")

    with pytest.raises(LeaseLost):
        claimed.ask_about_calls([a_question()], 3_600)

    assert questions(store, job_id) == []


@dataclass(frozen=True, slots=True)
class SignedCall:
    """A question about a call in a store whose processes sign their events."""

    url: str
    keys: Path
    job_id: JobId
    asked: int

    def store_of(self, identity: str) -> Store:
        key = find_private_key_file(self.keys, identity)
        return open_store(self.url, Settings(offline=True, keys=self.keys, signing_key=key))

    def answer(self, identity: str, call_id: str = "toolu_1") -> CallAnswer:
        """Store an approval that is signed by an identity. Return the answer that a worker reads.

        Args:
            call_id: the call that the approval names.
        """
        call = AnsweredCall(handoff_id=FIND, call_id=call_id)
        approved = Approved(asked=self.asked, call=call)
        store = self.store_of("client")
        text = approved.to_json()
        if identity:
            (text,) = sign_events(self.store_of(identity).trust, self.job_id, [approved])
        handoff = keys.handoff(self.job_id, "researcher", FIND)
        store.connection.redis.hset(handoff, f"decided:{self.asked}", text)
        claimed = granted_claim(self.store_of("worker-researcher"), self.job_id, "find.1")
        return claimed.read_call_answers()["toolu_1"]


@pytest.fixture
def signed_call(redis_url: str, store: Store, tmp_path: Path) -> SignedCall:
    made = SignedCall(redis_url, tmp_path / "keys", create_job_id(), 0)
    make_keys(made.keys, ["researcher"])
    supervisor = made.store_of("supervisor")
    job_id = a_job(supervisor)
    issue(supervisor, job_id, "find.1")
    ask(granted_claim(made.store_of("worker-researcher"), job_id, "find.1"))
    (asked,) = questions(store, job_id)
    redis = store.connection.redis
    redis.hdel(handoff_key(store, job_id, FIND), "deferred")
    return replace(made, job_id=job_id, asked=asked)


def test_an_answer_of_a_user_counts_by_its_signature(signed_call: SignedCall) -> None:
    assert signed_call.answer("client") == CallAnswer(is_approved=True)


@pytest.mark.parametrize(
    ("identity", "call_id", "why"),
    [
        ("", "toolu_1", "it has no signature"),
        ("client", "toolu_2", "it is about another call"),
    ],
)
def test_a_forged_answer_is_a_rejection(
    signed_call: SignedCall, identity: str, call_id: str, why: str
) -> None:
    answer = signed_call.answer(identity, call_id)

    assert not answer.is_approved
    assert why in str(answer.note)


def test_a_worker_cannot_sign_an_answer(signed_call: SignedCall) -> None:
    with pytest.raises(UserError, match="may not sign approved"):
        signed_call.answer("worker-researcher")
